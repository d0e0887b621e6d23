"""Settings: the samplers, and what the experiment sets for calls, retries and the budget."""

from __future__ import annotations

import json

from evalsite.lib.text.number_format import format_money
from grading_app.reports.result_table import ResultColumn, ResultTable
from grading_app.study_report.document import Block, table_block
from grading_app.study_report.report_source import ReportSource

PROVIDER_DEFAULT = "provider's default"
NAMED = ("temperature", "top_p", "max_tokens", "seed", "reasoning_effort")


def blocks(source: ReportSource) -> list[Block | None]:
    return [_samplers(source), _settings(source)]


def _samplers(source: ReportSource) -> Block:
    rows = {}
    for condition in [*source.generating, *source.judging]:
        content = condition.content.get("sampler", condition.sampler.content)
        extra = {name: value for name, value in content.items() if name not in NAMED}
        rows[condition.sampler_id] = {
            "sampler": str(condition.sampler),
            **{name: str(content.get(name, PROVIDER_DEFAULT)) for name in NAMED},
            "other": json.dumps(extra, sort_keys=True, ensure_ascii=False) if extra else "",
            "hash": condition.sampler.content_hash,
        }
    columns = [
        ResultColumn("sampler", "Sampler"),
        ResultColumn("temperature", "Temperature"),
        ResultColumn("top_p", "Top p"),
        ResultColumn("max_tokens", "Max. tokens"),
        ResultColumn("seed", "Seed"),
        ResultColumn("reasoning_effort", "Reasoning effort"),
        ResultColumn("other", "Other"),
        ResultColumn("hash", "SHA-256"),
    ]
    shown = [column.name for column in columns if column.name not in ("hash", "other")]
    shown += ["other"] if any(row["other"] for row in rows.values()) else []
    notes = ["Seed: of the first repetition; each further one adds 1."]
    table = ResultTable("samplers", "Samplers", columns, list(rows.values()), notes=notes)
    return table_block(table, shown, source.page("experiment_detail"))


def _settings(source: ReportSource) -> Block:
    one = source.experiment
    facts = {
        "Repetitions of each cell": str(one.samples),
        "Reuse of cached answers": "yes" if one.cache else "no",
        "Cache buster in each request": "yes" if one.cache_buster else "no",
        "Provider batches": "yes" if one.batch else "no",
        "Conditions": "one after the other" if one.sequential else "in parallel",
        "Calls in flight per condition, at most": str(one.max_concurrency),
        "Time-out of a call": f"{one.request_timeout_s:g} s",
        "Attempts of a trial, at most": str(one.max_attempts),
        "Wait before the first retry": f"{one.backoff_s:g} s, doubled each time up to {one.max_backoff_s:g} s",
        "Empty answers": one.get_on_empty_display(),
        "Answers without a readable rating": one.get_on_unreadable_display(),
        "Budget": format_money(one.max_usd) if one.max_usd is not None else "none",
    }
    rows = [{"setting": name, "value": value} for name, value in facts.items()]
    columns = [ResultColumn("setting", "Setting"), ResultColumn("value", "Value")]
    return table_block(
        ResultTable("run_settings", "Settings of the runs", columns, rows), rows=source.page("experiment_detail")
    )
