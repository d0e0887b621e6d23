"""Ratings of one dimension by item and condition, with the norms: what the figures of a rating study show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from datasets_app.models import Item
from grading_app.results.closeness import load_norms
from grading_app.results.scores import Measure
from grading_app.statistics.item_scores import Floats, ItemScores
from runs_app.models import Experiment

HUMAN = "Human norms"


@dataclass(frozen=True, eq=False)
class Series:
    """The means and standard deviations of one condition's ratings (or of the norms), by item. NaN: not known.

    n: ratings behind each mean.
    """

    label: str
    mean: Floats
    sd: Floats
    n: Floats
    is_human: bool = False

    @property
    def rated(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.mean)


@dataclass(frozen=True, eq=False)
class RatingData:
    """One dimension. Arrays of the series follow `keys`, `categories` and `items`."""

    measure: Measure
    items: list[int]
    keys: list[str]
    categories: list[str]
    conditions: list[Series]
    norms: Series | None

    @property
    def all_series(self) -> list[Series]:
        return [*self.conditions, *([self.norms] if self.norms else [])]

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the scale."""
        return float(self.measure.low or 0), float(self.measure.high or 1)

    def pool_conditions(self) -> Series:
        """Return the mean over conditions by item."""
        if len(self.conditions) == 1:
            return self.conditions[0]
        means, sds = (np.vstack([getattr(series, name) for series in self.conditions]) for name in ("mean", "sd"))
        n = np.sum([series.n for series in self.conditions], axis=0)
        return Series("Mean of conditions", _average_rows(means), _average_rows(sds), n)

    @cached_property
    def category_names(self) -> list[str]:
        return sorted(set(self.categories))


def _average_rows(rows: Floats) -> Floats:
    counts = (~np.isnan(rows)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(counts > 0, np.nansum(rows, axis=0) / np.maximum(counts, 1), np.nan)
    return means


def load_rating_data(
    experiment: Experiment, measure: Measure, scores: ItemScores | None, labels: Mapping[int, str]
) -> RatingData | None:
    """Return the ratings of a dimension; None without a rating. labels: of the conditions."""
    if scores is None or not scores.n.any():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.where(scores.n > 1, np.sqrt(scores.within / (scores.n - 1)), np.nan)
    conditions = [
        Series(labels[int(key)], scores.mean[:, index], sd[:, index], scores.n[:, index].astype(np.float64))
        for index, key in enumerate(scores.conditions)
        if int(key) in labels and scores.n[:, index].any()
    ]
    rows = Item.objects.filter(dataset=experiment.dataset_id).values_list("pk", "key", "category")
    items = {pk: (key, category) for pk, key, category in rows.iterator()}
    keys = [int(pk) for pk in scores.items]
    norms = load_norms(experiment, measure, scores.items)
    return RatingData(
        measure,
        keys,
        [items[pk][0] for pk in keys],
        [items[pk][1] for pk in keys],
        conditions,
        Series(HUMAN, norms.mean, norms.sd, np.nan_to_num(norms.n), is_human=True) if norms else None,
    )


def match_items(first: RatingData, second: RatingData) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of the common items in both."""
    places = {key: index for index, key in enumerate(second.items)}
    common = [(index, places[key]) for index, key in enumerate(first.items) if key in places]
    return np.array([a for a, _ in common], dtype=np.intp), np.array([b for _, b in common], dtype=np.intp)
