"""Statistics over the verdicts of grade conditions, and their cached aggregates.

An aggregate over the verdicts of one grade condition is valid until a relevant verdict is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from django.contrib.postgres.aggregates import Corr
from django.db.models import Count
from django.db.models.functions import Length

from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.hashing import hash_content
from grading_app.models import GradeCondition, Grading, Preference
from grading_app.results.cached_aggregates import Aggregate, Cached, StepReporter, get_aggregates
from grading_app.results.scores import ConditionScore, Measure, estimate, load_graded_scores
from runs_app.models import Dimension, Experiment

ValueT = TypeVar("ValueT")
GradeConditions = Sequence[GradeCondition]
"""All grade conditions of an experiment."""

VERSION = 5  # Increase it when the same verdicts give another value.
MAX_VERDICTS_PER_REQUEST = 10_000
"""The maximum number of verdicts that are summed while the page waits: 10 ms, 100 with answer lengths, 200 in pairs."""
MIN_LENGTH_CORRELATION = 0.3  # A correlation of score and length is flagged from this size on ...
MIN_LENGTH_ANSWERS = 30  # ... if it covers at least this number of answers.
BY_CODE = """SELECT g.condition_id, g.parse_error, count(*) FROM grading_app_grading g
    WHERE g.condition_id = ANY(%(conditions)s) AND g.parse_error <> '' GROUP BY 1, 2
    UNION ALL SELECT p.condition_id, p.parse_error, count(*) FROM grading_app_preference p
    WHERE p.condition_id = ANY(%(conditions)s) GROUP BY 1, 2 ORDER BY 3 DESC, 2"""
# For graded answers: how many got a score without a call, by reason; and how many were judged although they were
# truncated or refused.
BY_NOTE = """SELECT g.condition_id, note, count(*) FROM grading_app_grading g
    CROSS JOIN LATERAL (SELECT g.detail ->> 'code' AS note WHERE g.detail ? 'code'
        UNION ALL SELECT jsonb_array_elements_text(g.detail -> 'flags')) AS notes
    WHERE g.condition_id = ANY(%(judges)s) AND g.detail ?| ARRAY['code', 'flags'] GROUP BY 1, 2 ORDER BY 3 DESC, 2"""
# For each member of a panel: how many answers lack its verdict, among the answers that another member graded and the
# panel did not.
WITHOUT_PANEL = """WITH seat AS (SELECT p.id AS panel, member::bigint FROM grading_app_gradecondition p
        CROSS JOIN LATERAL jsonb_array_elements_text(p.parameters -> 'members') AS member WHERE p.id = ANY(%(panels)s)),
    met AS (SELECT seat.panel, g.trial_id, array_agg(g.condition_id) AS there
        FROM seat JOIN grading_app_grading g ON g.condition_id = seat.member GROUP BY 1, 2),
    left_out AS (SELECT panel, there, count(*) AS n FROM met WHERE NOT EXISTS (SELECT FROM grading_app_grading g
        WHERE g.condition_id = met.panel AND g.trial_id = met.trial_id OFFSET 0) GROUP BY 1, 2)
SELECT seat.panel, seat.member, sum(l.n) FILTER (WHERE seat.member <> ALL(l.there))::bigint, sum(l.n)::bigint
FROM seat JOIN left_out l ON l.panel = seat.panel GROUP BY 1, 2 ORDER BY 3 DESC NULLS LAST, 2"""


@dataclass(frozen=True, slots=True)
class VerdictQuery:
    """The verdicts of one condition, among all conditions of its experiment."""

    condition: GradeCondition
    among: GradeConditions


def make_verdict_aggregate(
    name: str,
    value_type: Any,
    compute_values: Callable[[Sequence[GradeCondition], GradeConditions], Mapping[int, ValueT]],
    list_sources: Callable[[GradeCondition, GradeConditions], Collection[int]],
) -> Aggregate[VerdictQuery, ValueT]:
    """Return an aggregate over verdicts.

    compute_values: return the values of these conditions by their keys.
    list_sources: return the keys of the conditions whose verdicts enter the value of one condition.
    """

    def fingerprint(query: VerdictQuery) -> str:
        changes = {condition.pk: condition.changes for condition in query.among}
        return hash_content(sorted((pk, changes.get(pk, 0)) for pk in list_sources(query.condition, query.among)))

    def is_large(queries: Sequence[VerdictQuery]) -> bool:
        # Counting stops at MAX_VERDICTS_PER_REQUEST.
        conditions = {pk for query in queries for pk in list_sources(query.condition, query.among)}
        verdicts = (model.objects.filter(condition__in=conditions).order_by() for model in (Grading, Preference))
        return sum(rows[: MAX_VERDICTS_PER_REQUEST + 1].count() for rows in verdicts) > MAX_VERDICTS_PER_REQUEST

    def compute(queries: Sequence[VerdictQuery], _: StepReporter) -> list[ValueT]:
        values = compute_values([query.condition for query in queries], queries[0].among)
        return [values[query.condition.pk] for query in queries]

    return Aggregate(
        name=name,
        value_type=lambda: value_type,
        dump=lambda query: query.condition.pk,
        load=_load,
        fingerprint=fingerprint,
        is_large=is_large,
        compute=compute,
        version=VERSION,
        steps=("adding up",),
    )


def get_aggregates_by_condition(
    aggregate: Aggregate[VerdictQuery, ValueT], conditions: Sequence[GradeCondition], among: GradeConditions
) -> dict[int, Cached[ValueT]]:
    """Return the values of these conditions by their keys. among: all conditions of their experiment."""
    if not conditions:
        return {}
    queries = [VerdictQuery(condition, among) for condition in conditions]
    values = get_aggregates(aggregate, conditions[0].experiment_id, queries)
    return {query.condition.pk: value for query, value in zip(queries, values, strict=True)}


def _load(experiment: Experiment, key: int) -> VerdictQuery | None:
    among = list(experiment.grade_conditions.select_related("rubric").order_by("pk"))
    condition = next((candidate for candidate in among if candidate.pk == key), None)
    return VerdictQuery(condition, among) if condition else None


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """The scores of the graded answers of one condition, on one dimension if items are rated."""

    condition: int
    dimension: int | None
    is_share: bool
    score: ConditionScore


@dataclass(frozen=True, slots=True)
class VerdictScores:
    """The aggregated verdicts of a grade condition.

    means: by dimension, then by answering condition. There is no mean over several answering conditions.
    codes: (error code, count) of unreadable verdicts, the most frequent first.
    length: Pearson's r of the score and the answer's length in characters, over `length_n` answers. None without
    variance.
    graded: the number of gradings, readable or not. preferred: the number of readable pairwise verdicts.
    noted: as `codes`, for answers that were scored without a call, truncated or refused.
    left_out: for a panel, the number of answers that a member graded and the panel could not grade.
    missing: for a panel, (condition of a member, number of these answers without its verdict).
    """

    means: tuple[AnswerScores, ...] = ()
    codes: tuple[tuple[str, int], ...] = ()
    length: float | None = None
    length_n: int = 0
    graded: int = 0
    preferred: int = 0
    noted: tuple[tuple[str, int], ...] = ()
    left_out: int = 0
    missing: tuple[tuple[int, int], ...] = ()

    @property
    def n(self) -> int:
        """The number of readable scores."""
        return sum(scores.score.n for scores in self.means)

    @property
    def unread(self) -> int:
        return sum(n for _, n in self.codes)

    @property
    def follows_length(self) -> bool:
        return (
            self.length is not None
            and self.length_n >= MIN_LENGTH_ANSWERS
            and abs(self.length) >= MIN_LENGTH_CORRELATION
        )


def read_scores(conditions: Sequence[GradeCondition], among: GradeConditions = ()) -> dict[int, VerdictScores]:
    """Return the scores of these conditions, by condition."""
    judges = [condition.pk for condition in conditions if condition.kind == GradeCondition.Kind.JUDGE]
    keys = [condition.pk for condition in conditions]
    means = _estimate_means(conditions)
    gradings = Grading.objects.filter(condition__in=keys).order_by().values_list("condition")
    correlations = gradings.annotate(r=Corr("score", Length("trial__answer")), n=Count("score"))
    lengths = {rule: (r, n) for rule, r, n in correlations}
    codes = _group_by_condition(fetch_rows(BY_CODE, {"conditions": keys}))
    notes = _group_by_condition(fetch_rows(BY_NOTE, {"judges": judges})) if judges else {}
    scores: dict[int, VerdictScores] = {}
    for rule in keys:
        length, length_n = lengths.get(rule, (None, 0))
        scores[rule] = VerdictScores(
            means=tuple(means.get(rule, ())),
            codes=tuple((code, n) for code, n in codes.get(rule, ()) if code),
            length=length,
            length_n=length_n,
            graded=sum(scores_of.score.planned for scores_of in means.get(rule, ())),
            preferred=sum(n for code, n in codes.get(rule, ()) if not code),
            noted=tuple(notes.get(rule, ())),
        )
    # A panel may lack an answer that a member graded if their numbers of gradings differ.
    panels = []
    for condition in conditions:
        graded = {scores[pk].graded if pk in scores else None for pk in condition.list_panel_members()}
        panels += [condition.pk] if graded and graded != {scores[condition.pk].graded} else []
    by_panel: dict[int, list[tuple[int, int]]] = {}
    totals: dict[int, int] = {}
    for panel, member, n, left_out in fetch_rows(WITHOUT_PANEL, {"panels": list(panels)}) if panels else ():
        by_panel.setdefault(panel, []).append((member, n or 0))
        totals[panel] = left_out
    return scores | {
        panel: replace(scores[panel], left_out=totals[panel], missing=tuple((pk, n) for pk, n in members if n))
        for panel, members in by_panel.items()
    }


SCORES = make_verdict_aggregate(
    "scores",
    VerdictScores,
    read_scores,
    lambda condition, _among: [condition.pk, *condition.list_panel_members()],
)


def _estimate_means(conditions: Sequence[GradeCondition]) -> dict[int, list[AnswerScores]]:
    """Return the estimates of each grade condition, with intervals that suit its scale."""
    measures = []
    for condition in conditions:
        # The scale of the answers' own ratings is that of the dimension.
        ends = None if condition.repeats_ratings else condition.score_range
        kind = "rater" if condition.kind == GradeCondition.Kind.PERSON else condition.kind
        measures.append(Measure("", "", kind, condition.pk, None, *(ends or (None, None))))
    estimates: dict[int, list[AnswerScores]] = {}
    rated = {condition.experiment_id for condition in conditions if condition.repeats_ratings}
    rows = Dimension.objects.filter(experiments__in=rated) if rated else Dimension.objects.none()
    scales = rows.values_list("pk", "scale_min", "scale_max")
    dimensions = {pk: (float(low), float(high)) for pk, low, high in scales}
    for measure, scores in load_graded_scores(conditions[0].experiment_id, measures, dimensions) if conditions else ():
        estimates.setdefault(measure.grader, []).extend(
            AnswerScores(key, measure.dimension, measure.is_share, estimate(scores, measure, key))
            for key in sorted(scores.conditions.tolist())
        )
    return estimates


def _group_by_condition(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[str, int]]]:
    counts: dict[int, list[tuple[str, int]]] = {}
    for rule, name, n in rows:
        counts.setdefault(rule, []).append((name, n))
    return counts
