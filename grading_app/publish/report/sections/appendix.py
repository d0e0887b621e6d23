"""Appendices: prompts, dimensions and rubrics in full, the settings of the runs, and how to reproduce the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from evalsite.lib.text.number_format import format_count, format_score
from grading_app.models import Rubric, Snapshot
from grading_app.publish.report.document import (
    Block,
    Code,
    Heading,
    Paragraph,
    Span,
    make_paragraph,
    make_sentence,
    make_table_block,
)
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import count_noun, join_words
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.experiment_files.adaptive_spec import CATEGORY, POINT, RATING, AdaptiveSpec
from runs_app.models import Experiment


def write_prompts(source: ReportSource) -> Iterator[Block]:
    """Yield each prompt once, as the conditions froze it."""
    prompts: dict[tuple[str, str], Any] = {}
    for condition in source.generation_conditions:
        if condition.prompt is not None:
            prompts.setdefault((str(condition.prompt), condition.prompt.content_hash), condition.content["prompt"])
    for (name, content_hash), content in prompts.items():
        yield Heading(f"Prompt {name}")
        yield Paragraph([Span(f"SHA-256 {content_hash}. Answer format: {content['answer_format']}.")], "note")
        yield from _write_turns(content["messages"])


def _write_turns(messages: list[dict[str, Any]]) -> Iterator[Block]:
    """Yield the text of each message; parts that are images appear as such."""
    for turn in messages:
        content = turn.get("content")
        parts = content if isinstance(content, list) else [content]
        texts = [str(part.get("text", "[image]")) if isinstance(part, dict) else str(part) for part in parts]
        yield Code("\n".join(texts), f"{turn.get('role', '')} message")


def write_instructions(source: ReportSource) -> Iterator[Block]:
    for dimension in source.experiment.dimensions.order_by("pk"):
        yield Heading(f"Instructions of the dimension {dimension}")
        yield Code(dimension.instructions, f"SHA-256 {dimension.content_hash}")


def write_rubrics(source: ReportSource) -> Iterator[Block]:
    rubrics: dict[int, Rubric] = {grader.rubric.pk: grader.rubric for grader in source.graders if grader.rubric}
    for rubric in rubrics.values():
        yield Heading(f"Rubric {rubric}")
        yield Paragraph([Span(f"SHA-256 {rubric.content_hash}. {rubric.get_kind_display()}.")], "note")
        yield from _write_turns(rubric.messages)


PROVIDER_DEFAULT = "provider's default"
NAMED = ("temperature", "top_p", "max_tokens", "seed", "reasoning_effort")


def write_samplers(source: ReportSource) -> Block:
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


def write_settings(source: ReportSource) -> Block:
    experiment = source.experiment
    stopping_rule = describe_stopping_rule(experiment) or "none: every cell was asked"
    facts = [*experiment.describe_options(reported=True), ("Stopping rule", stopping_rule)]
    rows = [{"setting": name, "value": value} for name, value in facts]
    columns = [ResultColumn("setting", "Setting"), ResultColumn("value", "Value")]
    return make_table_block(
        ResultTable("run_settings", "Settings of the runs", columns, rows), rows=source.get_url("experiment_detail")
    )


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


def write_summary(source: ReportSource) -> Block | None:
    launches = source.experiment.manifests.count()
    if not launches:
        return None
    manifests = "a manifest" if launches == 1 else "one manifest each"
    return make_paragraph(
        make_sentence(
            f"{count_noun(launches, 'launch', 'launches')} wrote {manifests} with design, hashes, prices and versions.",
            source.get_url("experiment_detail"),
        )
    )


def write_hashes(source: ReportSource) -> Block:
    rows = [{"what": f"Dataset {source.experiment.dataset}", "hash": source.experiment.dataset.content_hash}]
    rows += [
        {"what": f"Dimension {dimension}", "hash": dimension.content_hash}
        for dimension in source.experiment.dimensions.order_by("pk")
    ]
    for condition in source.generation_conditions:
        rows.append(
            {
                "what": f"Condition {condition.condition_id.rpartition('--')[0]}",
                "hash": condition.condition_id.rpartition("--")[2],
            }
        )
    prompts = {
        str(condition.prompt): condition.prompt.content_hash
        for condition in source.generation_conditions
        if condition.prompt
    }
    samplers = {str(condition.sampler): condition.sampler.content_hash for condition in source.conditions}
    rubrics = {str(grader.rubric): grader.rubric.content_hash for grader in source.graders if grader.rubric}
    for kind, hashes in (("Prompt", prompts), ("Sampler", samplers), ("Rubric", rubrics)):
        rows += [{"what": f"{kind} {name}", "hash": value} for name, value in hashes.items()]
    columns = [ResultColumn("what", "Content"), ResultColumn("hash", "SHA-256")]
    notes = ["Conditions: the first 12 digits of the hash, as in the condition ids."]
    return make_table_block(
        ResultTable("hashes", "Hashes", columns, rows, notes=notes), rows=source.get_url("experiment_detail")
    )


def write_launches(source: ReportSource) -> Block | None:
    rows = []
    for manifest in source.experiment.manifests.order_by("pk"):
        software = manifest.content.get("evalsite") or {}
        launch = "a pilot" if manifest.launch.get("pilot") else "all trials"
        version, commit = software.get("version", ""), str(software.get("commit") or "")[:12]
        rows.append(
            {"at": f"{manifest.created_at:%Y-%m-%d %H:%M} UTC", "launch": launch, "version": version, "commit": commit}
        )
    if not rows:
        return None
    columns = [
        ResultColumn("at", "Launched"),
        ResultColumn("launch", "What"),
        ResultColumn("version", "Evalsite"),
        ResultColumn("commit", "Commit"),
    ]
    return make_table_block(
        ResultTable("launches", "Launches", columns, rows), rows=source.get_url("experiment_detail")
    )


def write_snapshots(source: ReportSource) -> Block | None:
    snapshots = list(Snapshot.objects.filter(experiment=source.experiment).order_by("pk"))
    if not snapshots:
        return None
    rows = [
        {"at": f"{snapshot.created_at:%Y-%m-%d %H:%M} UTC", "label": snapshot.label, "digest": snapshot.digest}
        for snapshot in snapshots
    ]
    columns = [ResultColumn("at", "Made"), ResultColumn("label", "Label"), ResultColumn("digest", "Digest (SHA-256)")]
    return make_table_block(
        ResultTable("snapshots", "Snapshots", columns, rows), rows=source.get_url("experiment_results")
    )


def write_software(source: ReportSource) -> Block:
    manifest = source.manifest
    software = manifest["evalsite"]
    versions = {"evalsite": software["version"], "commit of evalsite": software["commit"] or "unknown"}
    versions |= {"python": manifest["python"], **manifest["packages"]}
    rows = [{"package": name, "version": version} for name, version in versions.items()]
    columns = [ResultColumn("package", "Software"), ResultColumn("version", "Version")]
    return make_table_block(ResultTable("software", "Software of this report", columns, rows))


def write_commands(source: ReportSource) -> Block:
    slug = source.experiment.slug
    lines = [f"manage.py report {slug} --out {slug}.pdf", f"manage.py analyse {slug}"]
    lines += [f"manage.py export {slug} --table trials --format parquet --out trials.parquet"]
    lines += [f"manage.py snapshot {slug} --out {slug}.zip", f"manage.py verify_snapshot {slug}.zip"]
    return Code("\n".join(lines), "Commands that produce this report, its tables and its data again")
