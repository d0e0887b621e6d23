"""Reproduction: manifests, hashes, versions and the commands that make the same report and tables again."""

from __future__ import annotations

from grading_app.models import Snapshot
from grading_app.publish.report.document import Block, Code, make_paragraph, make_sentence, make_table_block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import count_noun
from grading_app.results.table import ResultColumn, ResultTable


def write_blocks(source: ReportSource) -> list[Block | None]:
    slug = source.experiment.slug
    lines = [f"manage.py report {slug} --out {slug}.pdf", f"manage.py analyse {slug}"]
    lines += [f"manage.py export {slug} --table trials --format parquet --out trials.parquet"]
    lines += [f"manage.py snapshot {slug} --out {slug}.zip", f"manage.py verify_snapshot {slug}.zip"]
    manifest = source.manifest
    software = manifest["evalsite"]
    versions = {"evalsite": software["version"], "commit of evalsite": software["commit"] or "unknown"}
    versions |= {"python": manifest["python"], **manifest["packages"]}
    rows = [{"package": name, "version": version} for name, version in versions.items()]
    columns = [ResultColumn("package", "Software"), ResultColumn("version", "Version")]
    return [
        _write_summary(source),
        _write_hashes(source),
        _write_launches(source),
        _write_snapshots(source),
        make_table_block(ResultTable("software", "Software of this report", columns, rows)),
        Code("\n".join(lines), "Commands that produce this report, its tables and its data again"),
    ]


def _write_summary(source: ReportSource) -> Block | None:
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


def _write_hashes(source: ReportSource) -> Block:
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


def _write_launches(source: ReportSource) -> Block | None:
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


def _write_snapshots(source: ReportSource) -> Block | None:
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
