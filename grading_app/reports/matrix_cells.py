"""The cells of a page of the matrix: the answers of one condition to one item, over waves and repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalsite.lib.sql import fetch_rows
from grading_app.reports.frames import BY_PEOPLE, BY_RULES, IN_SCOPE, make_scope_parameters
from grading_app.reports.scope import MISSING_WRONG, Scope
from grading_app.reports.score_matrix import EXCLUSIONS
from runs_app.models import Run

EXCERPT_LENGTH = 80
"""The number of characters of an answer that a cell shows."""
AMOUNTS = {"length": "length(t.answer)", "cost": "t.cost_usd", "latency": "t.latency_ms / 1000.0"}
"""The amounts that cells can show: means over the done trials, in characters, US dollars or seconds."""


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """The trials of one item under one condition.

    failed: failed trials. open: trials that are pending or running. missing: answers without a score.
    scores: of the scored answers, in no order. mean: over the scores, with missing scores as the scope counts them.
    extracted: the most frequent extracted answer, or else the beginning of an answer. amount: the requested mean.
    """

    trials: int
    failed: int
    open: int
    missing: int
    scores: tuple[float, ...]
    mean: float | None
    extracted: str
    amount: float | None


def load_cells(
    scope: Scope, items: Sequence[int], conditions: Sequence[int], amount: str = ""
) -> dict[tuple[int, int], MatrixCell]:
    """Load the cells of these items and conditions in one query, by (item, condition). Cells without trials are absent.

    The unique index of trials finds the trials by (run, item). amount: a key of AMOUNTS, or "".
    """
    parameters = {
        **make_scope_parameters(scope.experiment, scope.wave),
        "dimension": scope.measure.dimension,
        "rules": [scope.measure.grader],
        "runs": _list_runs(scope, conditions),
        "items": list(items),
        "excerpt": EXCERPT_LENGTH,
    }
    low = scope.measure.low if scope.measure.low is not None else 0.0
    missing_score = low if scope.missing == MISSING_WRONG else None
    return {
        (row[0], row[1]): _make_cell(row[2:], missing_score)
        for row in fetch_rows(_build_statement(scope, amount), parameters)
    }


def _list_runs(scope: Scope, conditions: Sequence[int]) -> list[int]:
    runs = Run.objects.filter(experiment=scope.experiment, condition__in=list(conditions)).generating()
    wave_runs = runs.filter(wave=scope.wave) if scope.wave else runs
    return list(wave_runs.values_list("pk", flat=True))


def _make_cell(row: Sequence[Any], missing_score: float | None) -> MatrixCell:
    trials, failed, open_, missing, score_array, extracted, amount = row
    scores = tuple(score_array or ())
    all_scores = scores if missing_score is None else (*scores, *[missing_score] * missing)
    mean = sum(all_scores) / len(all_scores) if all_scores else None
    amount = None if amount is None else float(amount)
    return MatrixCell(trials, failed, open_, missing, scores, mean, extracted or "", amount)


def _build_statement(scope: Scope, amount: str) -> str:
    if scope.measure.is_rating:
        source, score = "runs_app_trial t", "t.rating"
        missing, extracted = "t.status = 'done' AND t.rating IS NULL", "t.rating::text"
    else:
        by_people = scope.measure.grader is not None and scope.measure.grader < 0
        graded = BY_PEOPLE if by_people else BY_RULES.replace("score FROM", "score, score_raw FROM")
        source = f"runs_app_trial t LEFT JOIN ({graded}) g ON g.trial_id = t.id"
        score, missing = "g.score", "g.trial_id IS NOT NULL AND g.score IS NULL"
        extracted = "NULL::text" if by_people else "nullif(left(g.score_raw, %(excerpt)s), '')"
    mean_amount = f"avg({AMOUNTS[amount]}) FILTER (WHERE t.status = 'done')" if amount else "NULL"
    filters = "".join(f" AND {EXCLUSIONS[name]}" for name in sorted(scope.excluded_answers))
    return f"""SELECT t.item_id, r.condition_id, count(*), count(*) FILTER (WHERE t.status = 'failed'),
            count(*) FILTER (WHERE t.status IN ('pending', 'running')), count(*) FILTER (WHERE {missing}),
            array_agg({score}::float8) FILTER (WHERE {score} IS NOT NULL),
            coalesce(mode() WITHIN GROUP (ORDER BY {extracted}),
                min(nullif(left(t.answer, %(excerpt)s), '')) FILTER (WHERE t.status = 'done')),
            {mean_amount}
        FROM {source} JOIN runs_app_run r ON r.id = t.run_id
        WHERE {IN_SCOPE} AND t.run_id = ANY(%(runs)s) AND t.item_id = ANY(%(items)s)
            AND (%(dimension)s::bigint IS NULL OR t.dimension_id = %(dimension)s){filters}
        GROUP BY 1, 2"""  # noqa: S608
