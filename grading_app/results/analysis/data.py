"""The scores in the scope of an analysis, with the facts of items and conditions that its sections need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from datasets_app.models import Item
from grading_app.results.closeness import ItemNorms, load_norms
from grading_app.results.frames import load_condition_labels, load_facets
from grading_app.results.scope import FLAGGED, MISSING_WRONG, Scope
from grading_app.results.scores import Measure, list_measures, load_scores
from grading_app.statistics.condition_pairs import fill_worst_cases
from grading_app.statistics.intervals import Bounds
from grading_app.statistics.item_scores import ItemScores
from runs_app.models.annotations import list_flagged_items


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
    norms: ItemNorms | None
    n_measures: int = 1
    other_scores: tuple[tuple[ItemScores, Bounds | None], ...] = ()

    @cached_property
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

    @property
    def has_ends(self) -> bool:
        """True for ratings, whose missing answers have no worst value, so that both ends of the scale are tried."""
        return self.scope.measure.is_rating

    def fill_worst_cases(self) -> Iterator[AnalysisData]:
        """Yield the data with their missing answers filled; nothing without missing answers.

        For ratings, the conditions with the higher means get the high end and the others the low end of the scale, then
        the other way round.
        """
        is_scored = self.scores.n > 0
        means = np.where(is_scored, self.scores.mean, 0.0).sum(axis=0) / np.maximum(is_scored.sum(axis=0), 1)
        sides = (np.argsort(np.argsort(means)) >= len(means) / 2).astype(int).tolist()
        for scores in fill_worst_cases(self.scores, self.bounds, at_ends=self.has_ends, sides=sides):
            yield replace(self, scores=scores)


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
    others = []
    for measure in measures if scope.family else ():
        if measure.key != scope.measure.key:
            of_measure = load_scores(scope.experiment, measure, scope.wave, scope.excluded_answers)
            narrowed = narrow_scores(replace(scope, measure=measure), of_measure)
            others.append((narrowed, measure.settle(of_measure).bounds))
    items_by_key = Item.objects.filter(dataset=scope.experiment.dataset_id).values_list("pk", "key", "category")
    items = {pk: (key, category) for pk, key, category in items_by_key.iterator()}
    return AnalysisData(
        scope=scope,
        scores=scores,
        labels={key: labels[key] for key in scores.conditions.tolist()},
        facets={key: facets[key] for key in scores.conditions.tolist()},
        keys=[items[int(pk)][0] for pk in scores.items],
        categories=[items[int(pk)][1] for pk in scores.items],
        norms=load_norms(scope.experiment, scope.measure, scores.items),
        n_measures=len(measures),
        other_scores=tuple(others),
    )


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
