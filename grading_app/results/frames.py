"""The aggregates behind tables and figures: counts and scores of an experiment's rows, computed by the database.

A frame has at most one row for each condition, dimension and category (or item), never one for each trial.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.cache import cache

from evalsite.lib.sql import fetch_rows
from grading_app.results import statistic_format
from grading_app.results.scores import (
    IN_SCOPE,
    ConditionScore,
    Measure,
    MeasureScores,
    load_measure_scores,
    make_scope_parameters,
)
from runs_app.models import Condition, Experiment, Wave
from runs_app.models.conditions import make_condition_labels
from runs_app.models.trials import REFUSED_CLASS
from runs_app.monitoring.point_status import PointLine, list_point_lines

CACHE_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class RatedDimension:
    """A dimension on which items are rated: its title and the ends of its scale."""

    title: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The numbers of trials of one condition by outcome.

    `unread`, `empty` and `truncated` count done trials. `refused` counts failed trials, too. A trial may have several
    of these outcomes.
    """

    condition: int
    trials: int
    done: int
    failed: int
    open: int
    unread: int
    empty: int
    truncated: int
    refused: int


@dataclass(frozen=True, slots=True)
class NormPair:
    """One item on one dimension: the mean of a condition's n ratings and the mean of people."""

    condition: int
    dimension: int
    item_key: str
    n: int
    model_mean: float
    human_mean: float


@dataclass(frozen=True, slots=True)
class Frames:
    """All aggregates of an experiment, in one wave or in all.

    `labels` are the names of its conditions, in the order of the design. `scores` are those of its measures: the
    ratings that models give as answers, and the scores of graders.
    """

    labels: dict[int, str]
    dimensions: dict[int, RatedDimension]
    outcomes: list[Outcomes]
    scores: list[MeasureScores]
    rating_counts: dict[tuple[int, int], dict[int, int]]
    norm_pairs: list[NormPair]
    points: list[PointLine] = field(default_factory=list)

    @property
    def lines(self) -> list[ScoreLine]:
        """The scores by measure, then condition in the order of the design."""
        return [
            ScoreLine(found.measure, label, found.conditions[key])
            for found in self.scores
            for key, label in self.labels.items()
            if key in found.conditions
        ]


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """The score of one condition on one measure, with the condition's label."""

    measure: Measure
    condition: str
    score: ConditionScore


def load_frames(experiment: Experiment, wave: Wave | None = None, letters: Mapping[int, str] | None = None) -> Frames:
    """Load all aggregates of the experiment. Each measure takes one pass over its rows in the database."""
    parameters = make_scope_parameters(experiment, wave)
    dimensions = load_dimensions(experiment)
    labels = load_condition_labels(experiment, wave, letters)
    return Frames(
        labels=labels,
        dimensions=dimensions,
        outcomes=sorted(load_outcomes(parameters), key=lambda row: list(labels).index(row.condition)),
        scores=load_measure_scores(experiment, wave),
        rating_counts=load_rating_counts(parameters) if dimensions else {},
        norm_pairs=load_norm_pairs(parameters) if dimensions else [],
        points=list_point_lines(experiment, wave),
    )


def get_frames(experiment: Experiment, wave: Wave | None, state: str) -> Frames:
    """Return the aggregates of the experiment. `state` is its fingerprint."""
    frames: Frames | None = cache.get_or_set(f"frames:{state}", lambda: load_frames(experiment, wave), CACHE_SECONDS)
    return frames or load_frames(experiment, wave)


def estimate_conditions(experiment: Experiment, scores: list[MeasureScores] | None = None) -> list[dict[str, Any]]:
    """Return a record for each measure and condition with scores: n, mean or share, and 95 % interval.

    scores: those of the experiment's measures, if the caller has them.

    Without an interval, `low` and `high` are None and `reason` says why. `text` is the estimate for people.
    """
    labels = load_condition_labels(experiment)
    names = dict(Condition.objects.filter(pk__in=labels).values_list("pk", "condition_id"))
    records = []
    for found in load_measure_scores(experiment) if scores is None else scores:
        measure = found.measure
        for key, score in found.conditions.items():
            if not score.n or key not in names:
                continue
            mean = statistic_format.format_mean(score.mean, measure.is_share)
            ends = statistic_format.format_mean_interval(score.low, score.high, measure.is_share)
            records.append(
                {
                    "measure": measure.key,
                    "label": measure.label,
                    "condition_id": names[key],
                    "condition": labels[key],
                    "is_share": measure.is_share,
                    "n": score.n,
                    "items": score.items,
                    "missing": score.missing,
                    "missing_reasons": score.reasons,
                    "mean": score.mean,
                    "low": score.low,
                    "high": score.high,
                    "method": score.method,
                    "reason": score.reason,
                    "text": mean if score.low is None else f"{mean} [{ends}]",
                }
            )
    return records


def load_dimensions(experiment: Experiment) -> dict[int, RatedDimension]:
    return {
        dimension.pk: RatedDimension(dimension.title or dimension.name, dimension.scale_min, dimension.scale_max)
        for dimension in experiment.dimensions.order_by("pk")
    }


def load_condition_labels(
    experiment: Experiment, wave: Wave | None = None, letters: Mapping[int, str] | None = None
) -> dict[int, str]:
    """Return labels of the conditions that have runs (in this wave), in the order of the design.

    `letters` are the letters of a blind reading by model. They replace the names of models and give the order.
    """
    runs = experiment.answer_runs.filter(wave=wave) if wave else experiment.answer_runs
    conditions = Condition.objects.filter(pk__in=runs.values("condition"))
    return make_condition_labels(list(conditions.select_related("model", "prompt", "sampler").order_by("pk")), letters)


FACTORS = ("Model", "Prompt", "Sampler")
"""The factors of a design, in the order of `load_facets`."""


def load_facets(
    experiment: Experiment, letters: Mapping[int, str] | None = None, *, is_brief: bool = False
) -> dict[int, tuple[str, str, str]]:
    """Return model, prompt and sampler of each condition by name, with the versions of prompt and sampler.

    is_brief: without versions where names alone distinguish all levels of a factor.
    """
    conditions = list(experiment.answer_conditions.select_related("model", "prompt", "sampler"))
    full = {condition.pk: condition.name_facets(True, letters) for condition in conditions}
    if not is_brief:
        return full
    brief = {condition.pk: condition.name_facets(False, letters) for condition in conditions}
    shown = [
        brief if len({names[at] for names in brief.values()}) == len({names[at] for names in full.values()}) else full
        for at in range(len(FACTORS))
    ]
    return {pk: (shown[0][pk][0], shown[1][pk][1], shown[2][pk][2]) for pk in full}


def sum_outcomes(outcomes: Collection[Outcomes]) -> Outcomes:
    """Return the sum over several conditions. The condition of the sum is 0."""
    counts = ([getattr(row, name) for row in outcomes] for name in Outcomes.__slots__[1:])
    return Outcomes(0, *map(sum, counts))


def load_outcomes(parameters: Mapping[str, int | None]) -> list[Outcomes]:
    """Return a row for each condition, in the order of the design."""
    statement = f"""SELECT condition_id, count(*), count(*) FILTER (WHERE status = 'done'),
            count(*) FILTER (WHERE status = 'failed'),
            count(*) FILTER (WHERE status IN ('pending', 'running')),
            count(*) FILTER (WHERE status = 'done' AND parse_error <> ''),
            count(*) FILTER (WHERE status = 'done' AND answer = ''),
            count(*) FILTER (WHERE status = 'done' AND truncated),
            count(*) FILTER (WHERE status = 'done' AND refused
                OR status = 'failed' AND error_class = '{REFUSED_CLASS}')
        FROM runs_app_answer WHERE {IN_SCOPE} GROUP BY 1 ORDER BY 1"""  # noqa: S608
    return [Outcomes(*row) for row in fetch_rows(statement, parameters)]


def load_rating_counts(parameters: Mapping[str, int | None]) -> dict[tuple[int, int], dict[int, int]]:
    """Return the number of answers with each rating, by condition and dimension."""
    statement = f"""SELECT condition_id, dimension_id, rating, count(*) FROM runs_app_answer
        WHERE {IN_SCOPE} AND status = 'done' AND dimension_id IS NOT NULL AND rating IS NOT NULL
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""  # noqa: S608
    counts: dict[tuple[int, int], dict[int, int]] = {}
    for condition, dimension, rating, count in fetch_rows(statement, parameters):
        counts.setdefault((condition, dimension), {})[rating] = count
    return counts


def load_norm_pairs(parameters: Mapping[str, int | None]) -> list[NormPair]:
    """Return the items that have both ratings and a human norm. Norms are matched by the dimension's name."""
    statement = f"""SELECT of_item.condition_id, of_item.dimension_id, i.key, of_item.n, of_item.mean, h.mean FROM (
            SELECT condition_id, dimension_id, item_id, count(*) AS n, avg(rating)::float8 AS mean
            FROM runs_app_answer
            WHERE {IN_SCOPE} AND status = 'done' AND rating IS NOT NULL GROUP BY 1, 2, 3
        ) AS of_item
        JOIN runs_app_dimension d ON d.id = of_item.dimension_id
        JOIN datasets_app_item i ON i.id = of_item.item_id
        JOIN datasets_app_norm h ON h.item_id = of_item.item_id AND h.dimension = d.name
        ORDER BY 1, 2, i.position"""  # noqa: S608
    return [NormPair(*row) for row in fetch_rows(statement, parameters)]
