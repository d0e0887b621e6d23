"""The creation of bundles: a dataset, the design of an experiment, or an analysis with the rows that it rests on.

A bundle has the format of a snapshot (`snapshot_archive`), with the same schema and checksums. No row records it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO

from django.db import transaction

from datasets_app.models import Dataset
from evalsite.lib.checksummed_zip import ArchiveWriter, read_file
from evalsite.lib.history import Actor
from grading_app.publish.export.bundle_kinds import ANALYSIS, DATASET, KINDS
from grading_app.publish.export.file_formats import export_chunks
from grading_app.publish.export.snapshot_check import IMAGES, SCHEMA
from grading_app.publish.export.snapshots import (
    SnapshotError,
    count_chunks,
    json_part,
    refuse_long_lines,
    refuse_while_live,
)
from grading_app.publish.export.study_card import Counts
from grading_app.publish.export.study_rows import StudyRowReader
from grading_app.results.analysis.data import AnalysisData, load_analysis_data
from grading_app.results.analysis.sections import build_section_tables
from grading_app.results.scope import Scope
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.models import Experiment
from runs_app.planning.manifests import build_manifest
from runs_app.planning.spec_io import to_yaml

FOLDER = "analysis/"
EXPORTED = ("trials", "gradings", "items", "ratings")  # The tables that scores are computed from.


def refuse_bundle(kind: str, source: Experiment | Dataset) -> None:
    """Raise SnapshotError if the source is not in a state to be bundled. The message says what to do first."""
    dataset = source if isinstance(source, Dataset) else source.dataset
    if dataset.is_draft:
        raise SnapshotError(f"{dataset} is a draft: approve it first, so that its content has a hash")
    if kind == ANALYSIS and isinstance(source, Experiment):
        refuse_while_live(source)


@transaction.atomic
def write_bundle(
    kind: str, source: Experiment | Dataset, out: BinaryIO, *, by: Actor, scope: Scope | None = None
) -> str:
    """Write a bundle of a dataset or of an experiment, and return its digest. scope: of an analysis.

    Raise SnapshotError for a draft dataset, or for an analysis while runs are live.
    """
    refuse_bundle(kind, source)
    writer, counts = ArchiveWriter(out), Counts()
    if scope is not None and isinstance(source, Experiment):
        for table in EXPORTED:
            table_chunks = count_chunks(counts, table, export_chunks(source, table, "jsonl"))
            writer.add(f"tables/{table}.jsonl", refuse_long_lines(f"tables/{table}.jsonl", table_chunks))
        for name, content in _build_analysis_parts(load_analysis_data(scope)):
            writer.add(name, [content])
    with StudyRowReader(source, KINDS[kind]) as reader:
        for part in KINDS[kind]:
            writer.add(part.file_name, refuse_long_lines(part.file_name, reader.iterate_chunks(part)))
        writer.add("names.json", [reader.build_names()])
        for image in reader.list_images():
            writer.add(f"{IMAGES}{image.sha256}.{image.format}", read_file(image.shared_file.fetch()))
    writer.add("schema.json", [json_part({"schema": SCHEMA, "kind": kind})])
    if isinstance(source, Experiment):
        writer.add("design.yaml", [to_yaml(source).encode()])
    facts: dict[str, Any] = {
        "bundle": {"kind": kind, "by": str(by or ""), "at": datetime.now(UTC).isoformat(timespec="seconds")},
        DATASET if isinstance(source, Dataset) else "experiment": str(source),
        "title": source.title,
        **({"evalsite": build_manifest(source)["evalsite"]} if isinstance(source, Experiment) else {}),
    }
    writer.add("facts.json", [json_part(facts)])
    writer.add("counts.json", [json_part(counts.content)])
    return writer.close()


def _build_analysis_parts(data: AnalysisData) -> Iterator[tuple[str, bytes]]:
    """Yield the scope, the scores of items that the tables rest on, and each table as CSV and as JSON."""
    yield f"{FOLDER}scope.json", json_part(describe_scope(data))
    tables = [table for section in build_section_tables(data).values() for table in section]
    # A row for each item and condition with a score.
    scores, names = data.scores, dict(data.scope.experiment.conditions.values_list("pk", "condition_id"))
    columns = [
        ResultColumn("item_key", "Item"), ResultColumn("category", "Category"), ResultColumn("condition", "Condition"),
        ResultColumn("n", "n", "count"), ResultColumn("missing", "Missing", "count"),
        ResultColumn("mean", "Mean", "number"), ResultColumn("within", "Sum of squared deviations", "number"),
    ]  # fmt: skip
    rows = [
        {
            "item_key": key, "category": data.categories[row], "condition": names[condition],
            "n": int(scores.n[row, column]), "missing": int(scores.missing[row, column]),
            "mean": float(scores.mean[row, column]) if scores.n[row, column] else None,
            "within": float(scores.within[row, column]),
        }
        for row, key in enumerate(data.keys)
        for column, condition in enumerate(data.conditions)
        if scores.n[row, column] or scores.missing[row, column]
    ]  # fmt: skip
    for table in (ResultTable("item_scores", "Scores of items", tuple(columns), rows), *tables):
        for file_format in ("csv", "json"):
            yield f"{FOLDER}{table.name}.{file_format}", table.render(file_format).encode()


def describe_scope(data: AnalysisData) -> dict[str, Any]:
    """Return the scope by names, because keys differ between sites."""
    scope = data.scope
    names = dict(scope.experiment.conditions.values_list("pk", "condition_id"))
    omitted_items = scope.experiment.dataset.items.filter(pk__in=scope.without).order_by("key")
    return {
        "measure": {"key": scope.measure.key, "label": scope.measure.label},
        "wave": scope.wave.number if scope.wave else None,
        "conditions": [names[key] for key in data.conditions],
        "category": scope.category,
        "without": list(omitted_items.values_list("key", flat=True)),
        "exclude": sorted(scope.exclude),
        "missing": scope.missing,
        "baseline": names[scope.baseline] if scope.baseline else None,
        "margin": scope.margin,
    }
