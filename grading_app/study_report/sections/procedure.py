"""Procedure: when the calls were made, how many, how many were repeated, and what came of every trial."""

from __future__ import annotations

from collections import Counter

from django.db.models import Q

from grading_app.reports.result_table import ResultColumn, ResultTable
from grading_app.study_report.document import Block, paragraph, sentence, table_block
from grading_app.study_report.report_source import ReportSource
from grading_app.study_report.words import count_noun, format_days
from runs_app.models import Trial


def write_blocks(source: ReportSource) -> list[Block | None]:
    return [_write_calls(source), _write_import(source), _write_outcomes(source), _write_errors(source)]


def _write_calls(source: ReportSource) -> Block | None:
    done, failed = source.count("n_done"), source.count("n_failed")
    still_open = source.count("n_pending") + source.count("n_running")
    trials = Trial.objects.filter(run__in=[run.pk for run in source.runs])
    retried = trials.filter(attempts__gt=1).count()
    reused = trials.filter(Q(status="done"), from_cache=True).count()
    starts = [run.started_at for run in source.runs if run.started_at]
    ends = [run.finished_at for run in source.runs if run.finished_at]
    when = format_days(min(starts, default=None), max(ends, default=None) or max(starts, default=None))
    progress = source.page("experiment_progress")
    return paragraph(
        sentence(f"The calls were made {'on' if ' to ' not in when else 'from'} {when}. ", progress) if when else None,
        sentence(
            f"{count_noun(source.count('n_attempts'), 'attempt')} produced {count_noun(done, 'answer')}. ", progress
        ),
        sentence(
            f"{count_noun(retried, 'trial') if retried else 'No trial'} needed more than one attempt. ", source.trials()
        ),
        sentence(
            f"{count_noun(failed, 'trial')} failed after the last attempt. " if failed else "No trial failed. ",
            source.trials(status="failed"),
        ),
        sentence(f"{count_noun(reused, 'answer')} came from the response cache. ", source.trials(from_cache="true"))
        if reused
        else None,
        sentence(f"{count_noun(still_open, 'trial')} had no result when this report was made.", progress)
        if still_open
        else None,
    )


def _write_import(source: ReportSource) -> Block | None:
    tool = source.experiment.imported_from
    return paragraph(f"The answers were imported from {tool}. This site made no calls.", tone="note") if tool else None


def _write_outcomes(source: ReportSource) -> Block:
    kinds = {
        "done": "Done",
        "failed": "Failed",
        "open": "Open",
        "empty": "Empty",
        "truncated": "Truncated",
        "refused": "Refused",
        "unread": "No rating",
    }
    is_rated = bool(source.frames.dimensions)
    rows = [
        {"condition": source.frames.labels.get(one.condition, ""), "trials": one.trials}
        | {kind: getattr(one, kind) for kind in kinds}
        for one in source.frames.outcomes
    ]
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("trials", "Trials", "count"),
        *(ResultColumn(kind, label, "count") for kind, label in kinds.items() if kind != "unread" or is_rated),
    ]
    notes = ["Counts of trials. An answer can count as empty, truncated and refused at the same time."]
    table = ResultTable("outcomes", "Outcomes of the trials", columns, rows, notes=notes)
    return table_block(table, rows=source.page("experiment_results"))


def _write_errors(source: ReportSource) -> Block | None:
    counted: Counter[str] = Counter()
    for run in source.runs:
        counted.update(run.errors)
    rows = [{"error": name or "without a class", "attempts": n} for name, n in counted.most_common()]
    if not rows:
        return None
    columns = [ResultColumn("error", "Error class"), ResultColumn("attempts", "Attempts", "count")]
    return table_block(
        ResultTable("errors", "Attempts that failed, by error class", columns, rows),
        rows=source.page("experiment_progress"),
    )
