"""The scores in the scope of an analysis, with the facts of items and conditions that its sections need."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from datasets_app.models import Item, Norm
from grading_app.results.frames import load_condition_labels, load_facets
from grading_app.results.scope import FLAGGED, MISSING_WRONG, Scope
from grading_app.results.scores import Measure, list_measures, load_scores
from grading_app.statistics.intervals import Bounds
from grading_app.statistics.item_scores import Floats, ItemScores
from runs_app.annotations import list_flagged_items
from runs_app.models import Dimension


@dataclass(frozen=True, eq=False)
class Norms:
    """Human norms, aligned with the items of the scores; NaN for items without a norm. n: the number of raters."""

    mean: Floats
    sd: Floats
    n: Floats

    @property
    def has_norm(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.mean)


@dataclass(frozen=True, eq=False)
class AnalysisData:
    """The scores of a scope. Arrays follow the items and conditions of `scores`.

    labels: the conditions' labels by primary key. facets: the names of their model, prompt and sampler.
    keys, categories: of the items. norms: None if the dataset has no norms for the measure's dimension.
    n_measures: of the experiment. other_scores: of the other measures, each with the ends of its scale, if the scope
    corrects p over all measures; else empty.
    """

    scope: Scope
    scores: ItemScores
    labels: dict[int, str]
    facets: dict[int, tuple[str, str, str]]
    keys: list[str]
    categories: list[str]
    norms: Norms | None
    n_measures: int = 1
    other_scores: tuple[tuple[ItemScores, Bounds | None], ...] = ()

    @property
    def conditions(self) -> list[int]:
        return [int(key) for key in self.scores.conditions]

    @property
    def measure(self) -> Measure:
        """The measure of the scope, which knows from the scores whether means are shares."""
        return self.scope.measure.settle(self.scores)

    @property
    def bounds(self) -> Bounds | None:
        return self.measure.bounds

    @property
    def is_share(self) -> bool:
        return self.measure.is_share


def load_analysis_data(scope: Scope) -> AnalysisData:
    """Load the scores of the scope with their items, conditions and norms."""
    all_scores = load_scores(scope.experiment, scope.measure, scope.wave, scope.excluded_answers)
    scores = narrow_scores(scope, all_scores)
    letters = scope.blind.assign_letters() if scope.blind else None
    labels, facets = (
        load_condition_labels(scope.experiment, scope.wave, letters),
        load_facets(scope.experiment, letters),
    )
    scores = scores.select_conditions([key for key in labels if key in scores.conditions])
    measures = list_measures(scope.experiment)
    others = [measure for measure in measures if measure.key != scope.measure.key] if scope.family else []
    items_by_key = Item.objects.filter(dataset=scope.experiment.dataset_id).values_list("pk", "key", "category")
    items = {pk: (key, category) for pk, key, category in items_by_key.iterator()}
    return AnalysisData(
        scope=scope,
        scores=scores,
        labels={key: labels[key] for key in scores.conditions.tolist()},
        facets={key: facets[key] for key in scores.conditions.tolist()},
        keys=[items[int(pk)][0] for pk in scores.items],
        categories=[items[int(pk)][1] for pk in scores.items],
        norms=_load_norms(scope, scores),
        n_measures=len(measures),
        other_scores=tuple(_load_other_scores(scope, measure) for measure in others),
    )


def _load_other_scores(scope: Scope, measure: Measure) -> tuple[ItemScores, Bounds | None]:
    """Return the scores of another measure in the same scope, with the ends of its scale."""
    scope = replace(scope, measure=measure)
    scores = load_scores(scope.experiment, measure, scope.wave, scope.excluded_answers)
    return narrow_scores(scope, scores), measure.settle(scores).bounds


def narrow_scores(scope: Scope, scores: ItemScores) -> ItemScores:
    """Return the scores of the scope's conditions and items, with missing scores counted as the scope says.

    They are binary only if the scale has no other ends than 0 and 1, so that 0 means wrong and 1 means right.
    """
    scores = replace(scores, is_binary=scope.measure.settle(scores).is_share)
    if scope.missing == MISSING_WRONG:
        scores = scores.fill_missing(scope.measure.low if scope.measure.low is not None else 0.0)
    if scope.conditions:
        scores = scores.select_conditions([key for key in scores.conditions.tolist() if key in scope.conditions])
    if FLAGGED in scope.exclude:
        scores = scores.select_items(~np.isin(scores.items, list_flagged_items(scope.experiment)))
    if scope.without:
        scores = scores.select_items(~np.isin(scores.items, scope.without))
    if scope.category:
        category_items = Item.objects.filter(dataset=scope.experiment.dataset_id, category=scope.category)
        scores = scores.select_items(np.isin(scores.items, list(category_items.values_list("pk", flat=True))))
    return scores


def _load_norms(scope: Scope, scores: ItemScores) -> Norms | None:
    """Return the norms of the measure's dimension, matched by name; None if no item has a norm."""
    if scope.measure.dimension is None or not scope.measure.is_rating:
        return None
    name = Dimension.objects.values_list("name", flat=True).get(pk=scope.measure.dimension)
    rows = Norm.objects.filter(item__dataset=scope.experiment.dataset_id, dimension=name)
    by_item = {item: (mean, sd, n) for item, mean, sd, n in rows.values_list("item", "mean", "sd", "n").iterator()}
    values = [by_item.get(int(pk), (None, None, None)) for pk in scores.items]
    mean, sd, n = np.array(values, dtype=np.float64).reshape(-1, 3).T
    return None if np.isnan(mean).all() else Norms(mean, sd, n)
