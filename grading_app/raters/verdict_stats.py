"""Statistics over the verdicts of grade conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalsite.lib.sql import fetch_rows
from grading_app.models import GradeCondition
from grading_app.raters.verdict_aggregates import GradeConditions, make_verdict_aggregate
from grading_app.results.scores import ConditionScore, Measure, estimate, load_graded_scores
from grading_app.statistics.intervals import Bounds
from runs_app.models import Dimension

MIN_LENGTH_CORRELATION = 0.3  # A correlation of score and length is flagged from this size on ...
MIN_LENGTH_ANSWERS = 30  # ... if it covers at least this number of answers.

BY_LENGTH = """SELECT g.condition_id, corr(g.score, char_length(t.answer)), count(g.score)
    FROM grading_app_grading g JOIN runs_app_trial t ON t.id = g.trial_id
    WHERE g.condition_id = ANY(%(conditions)s) GROUP BY 1"""
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
    parameters = {"conditions": [condition.pk for condition in conditions], "judges": judges}
    means = _estimate_means(conditions)
    lengths = {rule: (r, n) for rule, r, n in fetch_rows(BY_LENGTH, parameters)}
    codes = _group_by_condition(fetch_rows(BY_CODE, parameters))
    notes = _group_by_condition(fetch_rows(BY_NOTE, parameters)) if judges else {}
    scores = {
        rule: _make_scores(means.get(rule, ()), codes.get(rule, ()), lengths.get(rule, (None, 0)), notes.get(rule, ()))
        for rule in parameters["conditions"]
    }
    panels = [condition.pk for condition in conditions if _may_leave_out(condition, scores)]
    by_panel: dict[int, list[tuple[int, int]]] = {}
    totals: dict[int, int] = {}
    for panel, member, n, left_out in fetch_rows(WITHOUT_PANEL, {"panels": list(panels)}) if panels else ():
        by_panel.setdefault(panel, []).append((member, n or 0))
        totals[panel] = left_out
    return scores | {
        panel: replace(scores[panel], left_out=totals[panel], missing=tuple((pk, n) for pk, n in members if n))
        for panel, members in by_panel.items()
    }


def _list_source_conditions(condition: GradeCondition, _among: GradeConditions) -> list[int]:
    return [condition.pk, *condition.list_panel_members()]


SCORES = make_verdict_aggregate("scores", VerdictScores, read_scores, _list_source_conditions)


def _may_leave_out(condition: GradeCondition, scores: Mapping[int, VerdictScores]) -> bool:
    """Return True if the panel may lack an answer that a member graded, because their numbers of gradings differ."""
    members = condition.list_panel_members()
    graded = {scores[pk].graded if pk in scores else None for pk in members}
    return bool(members) and graded != {scores[condition.pk].graded}


def _make_scores(
    means: Sequence[AnswerScores],
    codes: Sequence[tuple[str, int]],
    length: tuple[float | None, int],
    notes: Sequence[tuple[str, int]],
) -> VerdictScores:
    return VerdictScores(
        means=tuple(means),
        codes=tuple((code, n) for code, n in codes if code),
        length=length[0],
        length_n=length[1],
        graded=sum(scores.score.planned for scores in means),
        preferred=sum(n for code, n in codes if not code),
        noted=tuple(notes),
    )


def _estimate_means(conditions: Sequence[GradeCondition]) -> dict[int, list[AnswerScores]]:
    """Return the estimates of each grade condition, with intervals that suit its scale."""
    measures = []
    for condition in conditions:
        # The scale of the answers' own ratings is that of the dimension.
        ends = None if condition.scorer == "rating" else condition.score_range
        kind = "rater" if condition.kind == GradeCondition.Kind.PERSON else condition.kind
        measures.append(Measure("", "", kind, condition.pk, None, *(ends or (None, None))))
    estimates: dict[int, list[AnswerScores]] = {}
    dimensions = _load_dimension_bounds(conditions)
    for measure, scores in load_graded_scores(conditions[0].experiment_id, measures, dimensions) if conditions else ():
        estimates.setdefault(measure.grader, []).extend(
            AnswerScores(key, measure.dimension, measure.is_share, estimate(scores, measure, key))
            for key in sorted(scores.conditions.tolist())
        )
    return estimates


def _load_dimension_bounds(conditions: Sequence[GradeCondition]) -> dict[int, Bounds]:
    experiments = {condition.experiment_id for condition in conditions if condition.scorer == "rating"}
    dimensions = Dimension.objects.filter(experiments__in=experiments) if experiments else Dimension.objects.none()
    return {pk: (float(low), float(high)) for pk, low, high in dimensions.values_list("pk", "scale_min", "scale_max")}


def _group_by_condition(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[str, int]]]:
    counts: dict[int, list[tuple[str, int]]] = {}
    for rule, name, n in rows:
        counts.setdefault(rule, []).append((name, n))
    return counts
