"""The cells of a page of the matrix: the answers of one condition to one item, over waves and repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evalsite.lib.sql import fetch_rows
from grading_app.results.scope import MISSING_WRONG, Scope
from grading_app.results.scores import EXCLUSIONS, IN_SCOPE, OF_MEASURE, make_parameters

EXCERPT_LENGTH = 80
"""The number of characters of an answer that a cell shows."""
AMOUNTS = {"length": "length(answer)", "cost": "cost_usd", "latency": "latency_ms / 1000.0"}
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
    runs = scope.experiment.answer_runs.filter(condition__in=list(conditions))
    runs = runs.filter(wave=scope.wave) if scope.wave else runs
    parameters = {
        **make_parameters(scope.experiment, scope.measure, scope.wave),
        "runs": list(runs.values_list("pk", flat=True)),
        "items": list(items),
        "excerpt": EXCERPT_LENGTH,
    }
    counts_missing, cells = scope.missing == MISSING_WRONG, {}
    for item, condition, trials, failed, open_, missing, found, extracted, mean_amount in fetch_rows(
        _build_statement(scope, amount), parameters
    ):
        scores = tuple(found or ())
        counted = (*scores, *[scope.measure.lowest] * missing) if counts_missing else scores
        mean = sum(counted) / len(counted) if counted else None
        shown = None if mean_amount is None else float(mean_amount)
        cells[item, condition] = MatrixCell(trials, failed, open_, missing, scores, mean, extracted or "", shown)
    return cells


def _build_statement(scope: Scope, amount: str) -> str:
    """Return SQL for the cells. A cell shows what the grader read from the answers, or else their beginnings."""
    filters = "".join(f" AND {EXCLUSIONS[name]}" for name in sorted(scope.excluded_answers))
    mean_amount = f"avg({AMOUNTS[amount]}) FILTER (WHERE status = 'done')" if amount else "NULL"
    source, extracted = "grading_app_answerscore", "nullif(left(score_raw, %(excerpt)s), '')"
    if scope.measure.is_rating:
        extracted = "score::integer::text"
    elif scope.measure.is_of_people:  # They were asked about some answers only.
        source = """(SELECT a.*, g.score, g.score_raw, g.is_graded, %(kind)s::text AS grader_kind,
            %(grader)s::bigint AS grader_id FROM runs_app_answer a LEFT JOIN grading_app_answerscore g
            ON g.trial_id = a.trial_id AND g.grader_kind = %(kind)s AND g.grader_id = %(grader)s) AS shown"""
    return f"""SELECT item_id, condition_id, count(*), count(*) FILTER (WHERE status = 'failed'),
            count(*) FILTER (WHERE status IN ('pending', 'running')),
            count(*) FILTER (WHERE score IS NULL AND is_graded AND status = 'done'),
            array_agg(score) FILTER (WHERE score IS NOT NULL),
            coalesce(mode() WITHIN GROUP (ORDER BY {extracted}),
                min(nullif(left(answer, %(excerpt)s), '')) FILTER (WHERE status = 'done')),
            {mean_amount}
        FROM {source}
        WHERE {IN_SCOPE} AND {OF_MEASURE} AND run_id = ANY(%(runs)s) AND item_id = ANY(%(items)s){filters}
        GROUP BY 1, 2"""  # noqa: S608
