"""Conduct of an experiment: the models that answered, the calls and their outcomes, and the costs."""

from __future__ import annotations

from collections import Counter

from django.db.models import Q

from evalsite.lib.text.number_format import format_money
from grading_app.publish.report.document import (
    Block,
    count_noun,
    format_day,
    format_days,
    join_words,
    make_paragraph,
    make_sentence,
    make_table_block,
)
from grading_app.publish.report.report_source import ReportSource
from grading_app.results.leaderboard_tables import make_outcome_table
from grading_app.results.table import ResultColumn, ResultTable, Row
from runs_app.models import Condition, LedgerEntry, Trial
from runs_app.monitoring.ledger_report import MODEL, STAGE, LedgerLine, Sums, filter_experiment, sum_by_group

UNREPORTED = "not reported"


def write_models(source: ReportSource) -> list[Block | None]:
    models = sorted({condition.model.name for condition in source.generation_conditions})
    return [
        make_paragraph(
            make_sentence(
                f"Answers come from {count_noun(len(models), 'model')}: {join_words(models)}. ",
                source.get_url("experiment_progress"),
            ),
            "Served models and providers are as the replies of the provider name them.",
        ),
        _make_model_table(source, source.generation_conditions, "models", "Models that answered"),
        _make_model_table(source, source.judge_conditions, "judge_models", "Models that judged")
        if source.judge_conditions
        else None,
    ]


def _make_model_table(source: ReportSource, conditions: list[Condition], name: str, title: str) -> Block:
    columns = [
        ResultColumn("model", "Model"),
        ResultColumn("model_id", "Model id"),
        ResultColumn("provider", "Provider"),
        ResultColumn("served_as", "Served model"),
        ResultColumn("served_by", "Served by"),
        ResultColumn("calls", "Calls", "count"),
        ResultColumn("first", "First call"),
        ResultColumn("last", "Last call"),
    ]
    by_model: dict[int, list[Condition]] = {}
    for condition in conditions:
        by_model.setdefault(condition.model_id, []).append(condition)
    rows: list[Row] = []
    for model_conditions in by_model.values():
        model = model_conditions[0].model
        entries = [entry for condition in model_conditions for entry in source.served_models.get(condition.pk, [])]
        rows.append(
            {
                "model": model.name,
                "model_id": model.model,
                "provider": model.endpoint.provider or UNREPORTED,
                "served_as": join_words(sorted({entry.model for entry in entries if entry.model})) or UNREPORTED,
                "served_by": join_words(sorted({entry.provider for entry in entries if entry.provider})) or UNREPORTED,
                "calls": sum(entry.calls for entry in entries),
                "first": format_day(min((entry.first for entry in entries if entry.first), default=None)),
                "last": format_day(max((entry.last for entry in entries if entry.last), default=None)),
            }
        )
    return make_table_block(ResultTable(name, title, columns, rows), rows=source.get_url("experiment_progress"))


def write_calls(source: ReportSource) -> Block | None:
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


def write_import(source: ReportSource) -> Block | None:
    tool = source.experiment.imported_from
    text = f"The answers were imported from {tool}. This site made no calls."
    return make_paragraph(text, tone="note") if tool else None


def write_outcomes(source: ReportSource) -> Block:
    table = make_outcome_table(source.frames.outcomes, source.frames.labels, is_rated=bool(source.frames.dimensions))
    return make_table_block(table, rows=source.get_url("experiment_results"))


def write_errors(source: ReportSource) -> Block | None:
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


def write_costs(source: ReportSource) -> list[Block | None]:
    entries = LedgerEntry.objects.filter(filter_experiment(source.experiment))
    by_stage, by_model = sum_by_group(entries, STAGE), sum_by_group(entries, MODEL)
    limit = source.experiment.max_usd
    text = f"The budget was {format_money(limit)}. " if limit is not None else "There was no budget. "
    budget = make_sentence(text, source.get_url("experiment_detail"))
    if not by_stage:
        return [make_paragraph(budget, "No call has been recorded.", tone="note")]
    total = Sums.add_up(by_stage)
    ledger = source.get_url("experiment_ledger")
    judges = ", including those of judges" if source.judge_conditions else ""
    has_cost = total.unpriced < total.calls or total.paid_usd
    return [
        make_paragraph(
            budget,
            make_sentence(
                f"{count_noun(total.calls, 'call')} cost {format_money(total.paid_usd)} in all{judges}. ",
                ledger,
            )
            if has_cost
            else None,
            make_sentence(f"At list prices, they would have cost {format_money(total.list_usd)}. ", ledger)
            if total.saved_usd
            else None,
            make_sentence(
                f"The cost of {count_noun(total.unpriced, 'call')} is unknown"
                f"{' and not in these sums' if has_cost else ''}.",
                ledger,
            )
            if total.unpriced
            else None,
        ),
        _make_cost_table("cost_by_stage", "Costs by stage", "Stage", by_stage, ledger),
        _make_cost_table("cost_by_model", "Costs by model", "Model", by_model, ledger),
    ]


def _make_cost_table(name: str, title: str, label: str, lines: list[LedgerLine], ledger: str) -> Block:
    columns = [
        ResultColumn("group", label),
        ResultColumn("calls", "Calls", "count"),
        ResultColumn("reused", "Reused answers", "count"),
        ResultColumn("input_tokens", "Input tokens", "count"),
        ResultColumn("output_tokens", "Output tokens", "count"),
        ResultColumn("paid_usd", "Paid", "money"),
        ResultColumn("saved_usd", "Saved", "money"),
        ResultColumn("unpriced", "Calls of unknown cost", "count"),
    ]
    rows = [
        {"group": line.label}
        | {
            column.name: float(value) if column.kind == "money" else value
            for column in columns[1:]
            for value in [getattr(line.sums, column.name)]
        }
        for line in lines
    ]
    return make_table_block(ResultTable(name, title, columns, rows), rows=ledger, is_detail=True)
