"""Item scores as cached aggregates, computed once for each state of an experiment."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grading_app.results.cached_aggregates import Cached, get_aggregate, make_answer_aggregate
from grading_app.results.scores import EXCLUSIONS, Measure, find_measure, load_scores
from grading_app.statistics import item_scores
from grading_app.statistics.item_scores import ItemScores
from runs_app.models import Experiment, Wave


@dataclass(frozen=True, slots=True)
class ScoresQuery:
    """A query for the scores of one measure, in one wave or in all. exclude: keys of EXCLUSIONS."""

    experiment: Experiment
    measure: Measure
    wave: Wave | None = None
    exclude: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EncodedScores:
    """Item scores encoded for a JSON column."""

    text: str

    @property
    def scores(self) -> ItemScores:
        return _decode(self.text)


@lru_cache(maxsize=2)  # A million cells take 24 MB.
def _decode(text: str) -> ItemScores:
    return ItemScores.decode(text)


def _load(experiment: Experiment, wave: Wave | None, values: list[Any]) -> ScoresQuery | None:
    key, exclude = values
    measure = find_measure(experiment, key)
    return ScoresQuery(experiment, measure, wave, frozenset(exclude) & set(EXCLUSIONS)) if measure else None


ITEM_SCORES = make_answer_aggregate(
    "item_scores",
    EncodedScores,
    lambda query: EncodedScores(load_scores(query.experiment, query.measure, query.wave, query.exclude).encode()),
    dump=lambda query: [query.measure.key, sorted(query.exclude)],
    load=_load,
    step="adding up scores",
    max_rows=40,
    is_shared=True,
)


def get_item_scores(
    experiment: Experiment, measure: Measure, wave: Wave | None = None, exclude: Collection[str] = ()
) -> Cached[EncodedScores]:
    """Return the scores of a measure, as `.value.scores`. The value is None until a worker has computed the first."""
    return get_aggregate(ITEM_SCORES, experiment.pk, ScoresQuery(experiment, measure, wave, frozenset(exclude)))


def list_items_that_differ(experiment: Experiment, key: str = "") -> list[int] | None:
    """Return the items whose mean scores differ between conditions. key: of the measure; "" for the first measure.

    Return None while a worker computes the scores of a large experiment for the first time.
    """
    measure = find_measure(experiment, key)
    if measure is None:
        return []
    stored = get_item_scores(experiment, measure).value
    if stored is None:
        return None
    scores = stored.scores
    return [int(item) for item in scores.items[item_scores.find_differing_items(scores)]]
