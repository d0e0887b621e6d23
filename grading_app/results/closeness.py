"""Closeness of models' mean ratings of items to those of people: correlation, error and bias of each condition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from datasets_app.models import Item, Norm
from evalsite.lib.text.number_format import format_count
from grading_app.results.scores import Measure
from grading_app.results.statistic_format import format_number
from grading_app.statistics import reference
from grading_app.statistics.correlation import pearson
from grading_app.statistics.item_scores import Floats, Integers, ItemScores
from runs_app.models import Dimension, Experiment

MAX_LISTED_ITEMS = 1_000  # With more items, all norms of the dataset are read.


@dataclass(frozen=True, eq=False)
class ItemNorms:
    """The ratings of people, item by item; NaN without a norm. n: the number of people."""

    mean: Floats
    sd: Floats
    n: Floats

    @property
    def has_norm(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.mean)


@dataclass(frozen=True, slots=True)
class ConditionCloseness:
    """One condition over the items with its rating and a norm.

    r: Pearson's correlation of item means with its interval; None if it is undefined. error: the mean absolute
    difference of item means, in scale points. bias: the mean difference, above zero if the model rates higher.
    """

    items: int
    r: float | None
    low: float | None
    high: float | None
    error: float
    bias: float


def load_norms(experiment: Experiment, measure: Measure, items: Integers) -> ItemNorms | None:
    """Return the norms of these items on the dimension of a rating, matched by its name; None if no item has one."""
    return load_norms_of_many({experiment.pk: (experiment.dataset_id, measure, items)}).get(experiment.pk)


def load_norms_of_many(wanted: Mapping[int, tuple[int, Measure, Integers]]) -> dict[int, ItemNorms]:
    """Return what `load_norms` returns, by the key of the experiment, in two queries at most.

    wanted: the dataset, the measure and the items of each experiment. Experiments without a norm are left out.
    """
    rated = {key: one for key, one in wanted.items() if one[1].is_rating and one[1].dimension is not None}
    if not rated:
        return {}
    dimensions = Dimension.objects.filter(pk__in={measure.dimension for _, measure, _ in rated.values()})
    names = dict(dimensions.values_list("pk", "name"))
    datasets = {dataset for dataset, *_ in rated.values()}
    rows = Norm.objects.filter(item__dataset__in=datasets, dimension__in=set(names.values()))
    listed = {item for *_, items in rated.values() for item in items.tolist()}
    if len(listed) <= MAX_LISTED_ITEMS:
        rows = rows.filter(item__in=listed)
    by_item = {(item, name): values for item, name, *values in rows.values_list(
        "item", "dimension", "mean", "sd", "n").iterator()}  # fmt: skip
    found = {}
    for key, (_, measure, items) in rated.items():
        name = names[measure.dimension or 0]
        values = [by_item.get((pk, name), (None, None, None)) for pk in items.tolist()]
        mean, sd, n = np.array(values, dtype=np.float64).reshape(-1, 3).T
        if not np.isnan(mean).all():
            found[key] = ItemNorms(mean, sd, n)
    return found


def estimate_closeness(scores: ItemScores, norms: ItemNorms) -> dict[int, ConditionCloseness]:
    """Return the closeness of each condition that rated an item with a norm."""
    found = {}
    for column, condition in enumerate(scores.conditions.tolist()):
        is_used = (scores.n[:, column] > 0) & norms.has_norm
        if not is_used.any():
            continue
        model, people = scores.mean[is_used, column], norms.mean[is_used]
        correlation = pearson(model, people)
        found[condition] = ConditionCloseness(
            len(model),
            correlation.r if correlation else None,
            correlation.low if correlation else None,
            correlation.high if correlation else None,
            float(np.abs(model - people).mean()),
            float((model - people).mean()),
        )
    return found


def describe_norms_off_scale(norms: ItemNorms, measure: Measure, items: Integers) -> str:
    """Return a warning that names the first norm outside the scale of the rating; "" if all norms are within it."""
    if measure.bounds is None:
        return ""
    low, high = measure.bounds
    (outside,) = np.nonzero((norms.mean < low) | (norms.mean > high))
    if not len(outside):
        return ""
    first = Item.objects.get(pk=items[outside[0]])
    return (
        f"Norms outside the scale of {measure.label}, {low:g} to {high:g}: {format_count(len(outside))} of "
        f"{format_count(int(norms.has_norm.sum()))}, the first {format_number(float(norms.mean[outside[0]]))} of item "
        f"{first.key}. If people used another scale, mean error and bias mean nothing; r does not depend on the scale."
    )


def compute_noise_ceiling(norms: ItemNorms) -> float | None:
    """Return the highest r that ratings can have with these norms on average: the root of the norms' reliability."""
    reliability = reference.reference_reliability(norms.mean, norms.sd, norms.n)
    return math.sqrt(reliability) if reliability else None


def negate_errors(scores: ItemScores, norms: ItemNorms) -> ItemScores:
    """Return scores by item and condition that are higher the closer a mean rating is to people: minus the error."""
    rated = scores.select_items(norms.has_norm)
    errors = np.abs(rated.mean - norms.mean[norms.has_norm][:, None])
    return replace(rated, mean=-errors, within=np.zeros_like(errors), is_binary=False)
