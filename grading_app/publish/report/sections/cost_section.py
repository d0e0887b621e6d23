"""Costs: the budget, what the calls cost by stage and model, and what caches and batches saved."""

from __future__ import annotations

from evalsite.lib.text.number_format import format_money
from grading_app.publish.report.document import Block, make_paragraph, make_sentence, make_table_block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import count_noun
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.models import LedgerEntry
from runs_app.monitoring.ledger_report import MODEL, STAGE, LedgerLine, Sums, filter_experiment, sum_by_group


def write_blocks(source: ReportSource) -> list[Block | None]:
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
    return [
        make_paragraph(
            budget,
            make_sentence(
                f"{count_noun(total.calls, 'call')} cost {format_money(total.paid_usd)} in all{judges}. ",
                ledger,
            ),
            make_sentence(f"At list prices, they would have cost {format_money(total.list_usd)}. ", ledger)
            if total.saved_usd
            else None,
            make_sentence(f"The cost of {count_noun(total.unpriced, 'call')} is unknown and not in these sums.", ledger)
            if total.unpriced
            else None,
        ),
        _write_table("cost_by_stage", "Costs by stage", "Stage", by_stage, ledger),
        _write_table("cost_by_model", "Costs by model", "Model", by_model, ledger),
    ]


def _write_table(name: str, title: str, label: str, lines: list[LedgerLine], ledger: str) -> Block:
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
    return make_table_block(ResultTable(name, title, columns, rows), rows=ledger)
