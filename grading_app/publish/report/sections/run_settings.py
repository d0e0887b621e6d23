"""Settings: the samplers, and what the experiment sets for calls and retries."""

from __future__ import annotations

import json

from evalsite.lib.text.number_format import format_count, format_score
from grading_app.publish.report.document import Block, make_table_block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import join_words
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.experiment_files.adaptive_spec import CATEGORY, POINT, RATING, AdaptiveSpec
from runs_app.models import Experiment

PROVIDER_DEFAULT = "provider's default"
NAMED = ("temperature", "top_p", "max_tokens", "seed", "reasoning_effort")


def write_blocks(source: ReportSource) -> list[Block | None]:
    experiment = source.experiment
    stopping_rule = describe_stopping_rule(experiment) or "none: every cell was asked"
    facts = [*experiment.describe_options(reported=True), ("Stopping rule", stopping_rule)]
    rows = [{"setting": name, "value": value} for name, value in facts]
    columns = [ResultColumn("setting", "Setting"), ResultColumn("value", "Value")]
    return [
        _write_samplers(source),
        make_table_block(
            ResultTable("run_settings", "Settings of the runs", columns, rows), rows=source.get_url("experiment_detail")
        ),
    ]


def _write_samplers(source: ReportSource) -> Block:
    rows = {}
    for condition in [*source.generation_conditions, *source.judge_conditions]:
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
    column_names = [column.name for column in columns if column.name not in ("hash", "other")]
    column_names += ["other"] if any(row["other"] for row in rows.values()) else []
    notes = ["Seed: of the first repetition; each further one adds 1."]
    table = ResultTable("samplers", "Samplers", columns, list(rows.values()), notes=notes)
    return make_table_block(table, column_names, source.get_url("experiment_detail"))


def describe_stopping_rule(experiment: Experiment) -> str:
    """Return the rule that decided how many cases of a point were asked, as a sentence; "" without one."""
    if not experiment.adaptive:
        return ""
    defaults = {name: AdaptiveSpec.model_fields[name].default for name in ("round", "max", "confidence")}
    rule = defaults | experiment.adaptive
    by, is_rating = rule["by"], rule["scorer"] == RATING
    points = {CATEGORY: "category", POINT: "point of the parametric space"}
    point = points[by] if isinstance(by, str) else f"combination of {join_words(by)}"
    text = f"Each condition was asked the cases of each {point} in rounds of {rule['round']}"
    if rule.get("targetci") is not None:
        width = format_score(rule["targetci"]) if is_rating else f"{100 * rule['targetci']:g} percentage points"
        quantity = "mean rating" if is_rating else "accuracy"
        text += f", until the {100 * rule['confidence']:g} % interval of the {quantity} had a half-width of {width}"
    text += f", with at most {format_count(rule['max'])} cases."
    if rule.get("abortht") is not None:
        text += f" A {point} was given up if more than {100 * rule['abortht']:g} % of its answers were truncated."
    if rule.get("tasks"):
        text += f" Other limits applied to {join_words(sorted(rule['tasks']))}."
    return text
