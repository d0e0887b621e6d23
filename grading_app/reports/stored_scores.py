"""Item scores that are computed once for each state of an experiment: at once if there are few answers, else stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db.models import Sum

from grading_app.reports.cached_aggregates import Aggregate, Cached, StepReporter, get_aggregate
from grading_app.reports.frame_cache import fingerprint_results
from grading_app.reports.score_matrix import EXCLUSIONS, Measure, find_measure, list_measures, load_item_scores
from grading_app.statistics import item_order
from grading_app.statistics.item_scores import ItemScores
from runs_app.models import Experiment, Wave

MOST_AT_ONCE = 20_000
"""So many answers are added up while a page waits: about 50 ms."""


@dataclass(frozen=True, slots=True)
class ScoresQuery:
    """The scores of one measure, in one wave or in all, without the excluded answers."""

    experiment: Experiment
    measure: Measure
    wave: Wave | None = None
    exclude: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EncodedScores:
    """Item scores as a row of the database holds them."""

    text: str

    @property
    def scores(self) -> ItemScores:
        return _decode(self.text)


@lru_cache(maxsize=2)  # A million cells take 24 MB.
def _decode(text: str) -> ItemScores:
    return ItemScores.decode(text)


def has_many_answers(experiment: Experiment, wave: Wave | None) -> bool:
    """Return True if the answers are too many to be added up during a request. Read from the counters of runs."""
    runs = experiment.runs.generating().filter(wave=wave) if wave else experiment.runs.generating()
    return (runs.aggregate(n=Sum("n_done"))["n"] or 0) > MOST_AT_ONCE


def _dump(query: ScoresQuery) -> Any:
    wave = query.wave.number if query.wave else None
    return [query.experiment.pk, query.measure.key, wave, sorted(query.exclude)]


def _load(experiment: Experiment, content: Any) -> ScoresQuery | None:
    _, key, number, exclude = content
    measure = find_measure(experiment, key)
    wave = experiment.waves.filter(number=number).first() if number is not None else None
    if measure is None or (number is not None and wave is None):
        return None
    return ScoresQuery(experiment, measure, wave, frozenset(exclude) & set(EXCLUSIONS))


def _compute(queries: Sequence[ScoresQuery], tell: StepReporter) -> list[EncodedScores]:
    loaded = [load_item_scores(one.experiment, one.measure, one.wave, one.exclude) for one in queries]
    return [EncodedScores(scores.encode()) for scores in loaded]


ITEM_SCORES: Aggregate[ScoresQuery, EncodedScores] = Aggregate(
    name="item_scores",
    value_type=lambda: EncodedScores,
    dump=_dump,
    load=_load,
    fingerprint=lambda query: fingerprint_results(query.experiment, query.wave),
    is_large=lambda queries: any(has_many_answers(one.experiment, one.wave) for one in queries),
    compute=_compute,
    steps=("adding up scores",),
    kept=40,
)


def get_item_scores(
    experiment: Experiment, measure: Measure, wave: Wave | None = None, exclude: Collection[str] = ()
) -> Cached[EncodedScores]:
    """Return the scores of a measure: `.value.scores`, None until a worker has computed the first ones."""
    return get_aggregate(ITEM_SCORES, experiment.pk, ScoresQuery(experiment, measure, wave, frozenset(exclude)))


def list_items_that_differ(experiment: Experiment, key: str = "") -> list[int] | None:
    """Return the items whose mean scores differ between conditions, by the measure with this key, else the first one.

    Return None while a worker computes the scores of a large experiment for the first time.
    """
    measures = list_measures(experiment)
    measure = next((one for one in measures if one.key == key or not key), None)
    if measure is None:
        return []
    stored = get_item_scores(experiment, measure).value
    if stored is None:
        return None
    scores = stored.scores
    return [int(item) for item in scores.items[item_order.differs(scores)]]
