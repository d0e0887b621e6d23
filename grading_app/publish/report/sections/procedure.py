"""Procedure: when the calls were made, how many, how many were repeated, and what came of every trial."""

from __future__ import annotations

from collections import Counter

from django.db.models import Q

from grading_app.publish.report.document import Block, make_paragraph, make_sentence, make_table_block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import count_noun, format_days
from grading_app.results.outcome_table import make_outcome_table
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.models import Trial


def write_blocks(source: ReportSource) -> list[Block | None]:
    table = make_outcome_table(source.frames.outcomes, source.frames.labels, is_rated=bool(source.frames.dimensions))
    tool = source.experiment.imported_from
    return [
        _write_calls(source),
        (
            make_paragraph(f"The answers were imported from {tool}. This site made no calls.", tone="note")
            if tool
            else None
        ),
        make_table_block(table, rows=source.get_url("experiment_results")),
        _write_errors(source),
    ]


def _write_calls(source: ReportSource) -> Block | None:
    n_done, n_failed = source.count("n_done"), source.count("n_failed")
    open_trials = source.count("n_pending") + source.count("n_running")
    trials = Trial.objects.filter(run__in=[run.pk for run in source.runs])
    n_retried = trials.filter(attempts__gt=1).count()
    n_reused = trials.filter(Q(status="done"), from_cache=True).count()
    starts = [run.started_at for run in source.runs if run.started_at]
    ends = [run.finished_at for run in source.runs if run.finished_at]
    period = format_days(min(starts, default=None), max(ends, default=None) or max(starts, default=None))
    progress = source.get_url("experiment_progress")
    return make_paragraph(
        make_sentence(f"The calls were made {'on' if ' to ' not in period else 'from'} {period}. ", progress)
        if period
        else None,
        make_sentence(
            f"{count_noun(source.count('n_attempts'), 'attempt')} produced {count_noun(n_done, 'answer')}. ", progress
        ),
        make_sentence(
            f"{count_noun(n_retried, 'trial') if n_retried else 'No trial'} needed more than one attempt. ",
            source.get_trials_url(),
        ),
        make_sentence(
            f"{count_noun(n_failed, 'trial')} failed after the last attempt. " if n_failed else "No trial failed. ",
            source.get_trials_url(status="failed"),
        ),
        make_sentence(
            f"{count_noun(n_reused, 'answer')} came from the response cache. ", source.get_trials_url(from_cache="true")
        )
        if n_reused
        else None,
        make_sentence(f"{count_noun(open_trials, 'trial')} had no result when this report was made.", progress)
        if open_trials
        else None,
    )


def _write_errors(source: ReportSource) -> Block | None:
    errors: Counter[str] = Counter()
    for run in source.runs:
        errors.update(run.errors)
    rows = [{"error": name or "without a class", "attempts": n} for name, n in errors.most_common()]
    if not rows:
        return None
    columns = [ResultColumn("error", "Error class"), ResultColumn("attempts", "Attempts", "count")]
    return make_table_block(
        ResultTable("errors", "Attempts that failed, by error class", columns, rows),
        rows=source.get_url("experiment_progress"),
    )
