"""The creation of snapshots: all tables at this moment, counted while they are written, and a row with the digest.

The facts of a snapshot include the results: each number with its interval and the method.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from django.contrib.auth.models import User
from django.db import transaction
from django.urls import reverse

from evalsite.lib.checksummed_zip import ArchiveWriter, read_file
from evalsite.lib.history import Actor, record_changes
from grading_app.models import Snapshot
from grading_app.publish.export.file_formats import TABLES, export_chunks
from grading_app.publish.export.snapshot_check import IMAGES, MAX_MARKUP, SCHEMA, check_line
from grading_app.publish.export.study_card import Counts, StudyCard
from grading_app.publish.export.study_rows import TABLES as STUDY_TABLES
from grading_app.publish.export.study_rows import StudyRowReader
from grading_app.publish.report.build import PART, freeze_report
from grading_app.results.frames import load_frames
from grading_app.statistics.correlation import pearson
from runs_app.models import Attempt, Experiment
from runs_app.planning.manifests import build_manifest
from runs_app.planning.spec_io import to_yaml

CONFIDENCE = 0.95
TOO_FEW = "too few items"
NUMBERS = ("n", "items", "mean", "sd", "se", "low", "high", "effective_n", "method", "reason")
ListParts = Callable[[StudyRowReader], Iterable[tuple[str, Iterable[bytes]]]]


class SnapshotError(ValueError):
    """A snapshot that cannot be created now. The message says what to do first."""


def make_snapshot(experiment: Experiment, *, label: str = "", reason: str = "", by: Actor) -> Snapshot:
    """Write the file, then the row.

    Raise SnapshotError while runs are live, because the tables would be inconsistent.
    """
    refuse_while_live(experiment)
    folder = Snapshot.folder()
    folder.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as out:
            digest, counts = write_archive(experiment, out, label=label, reason=reason, by=by)
            out.flush()
            os.fsync(out.fileno())
        refuse_while_live(experiment)
        Path(draft).replace(folder / f"{digest}.zip")
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    size = (Snapshot.folder() / f"{digest}.zip").stat().st_size
    with transaction.atomic():
        snapshot = Snapshot.objects.create(
            experiment=experiment,
            label=label,
            reason=reason,
            digest=digest,
            counts=counts,
            size=size,
            actor=str(by or ""),
            created_by=by if isinstance(by, User) else None,
        )
        record_changes([(experiment, "", f"{label} {digest[:12]}".strip())], by=by, reason=reason, aspect="snapshot")
    return snapshot


def write_study(experiment: Experiment, out: BinaryIO, *, by: Actor) -> str:
    """Write a snapshot into a file that no row of this site records, and return its digest. Raise SnapshotError."""
    refuse_while_live(experiment)
    return write_archive(experiment, out, by=by)[0]


def refuse_while_live(experiment: Experiment) -> None:
    """Raise SnapshotError while any run of the experiment is live."""
    if any(run.is_live for run in experiment.runs.all()):
        raise SnapshotError(f"{experiment} is running; pause it, or wait until it is done, and make the snapshot then")


def write_archive(
    experiment: Experiment,
    out: BinaryIO,
    *,
    label: str = "",
    reason: str = "",
    by: Actor,
    list_further_parts: ListParts = lambda reader: (),
) -> tuple[str, dict[str, Any]]:
    """Write a snapshot, with further parts, and return its digest and the numbers of its study card."""
    writer, counts = ArchiveWriter(out), Counts()
    facts = _build_facts(experiment, label, reason, by)
    facts = json.loads(json_part(facts))  # The same form as when read back, so that the study card comes out the same.
    for table in TABLES:
        name = f"tables/{table}.jsonl"
        chunks = count_chunks(counts, table, export_chunks(experiment, table, "jsonl"))
        writer.add(name, refuse_long_lines(name, chunks))
    with StudyRowReader(experiment) as reader:
        for part in STUDY_TABLES:
            writer.add(part.file_name, refuse_long_lines(part.file_name, reader.iterate_chunks(part)))
        writer.add("names.json", [reader.build_names()])
        for further_part in list_further_parts(reader):
            writer.add(*further_part)
        for image in reader.list_images():
            writer.add(f"{IMAGES}{image.sha256}.{image.format}", read_file(image.shared_file.fetch()))
    writer.add("schema.json", [json_part({"schema": SCHEMA})])
    writer.add("design.yaml", [to_yaml(experiment).encode()])
    for condition in experiment.conditions.order_by("pk").iterator():
        writer.add(f"conditions/{condition.condition_id}.json", [json_part(condition.content)])
    for manifest in experiment.manifests.order_by("pk").iterator():
        writer.add(f"manifests/{manifest.pk}.json", [json_part(manifest.content)])
    writer.add("facts.json", [json_part(facts)])
    writer.add(PART, [json_part(freeze_report(experiment))])
    writer.add("counts.json", [json_part(counts.content)])
    writer.add("study-card.md", [StudyCard(facts, counts.content).to_markdown().encode()])
    return writer.close(), counts.content


def count_chunks(counts: Counts, table: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same chunks, and count their lines. Each chunk holds whole lines."""
    counts.touch(table)
    for chunk in chunks:
        for line in chunk.split(b"\n")[:-1]:
            counts.take(table, line)
        yield chunk


def refuse_long_lines(name: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same chunks. Raise SnapshotError for a line that no import would read. Each chunk holds whole lines."""
    for chunk in chunks:
        if len(chunk) > MAX_MARKUP:  # Otherwise no line in it is too long.
            for line in chunk.splitlines():
                try:
                    check_line(line)
                except ValueError as error:
                    raise SnapshotError(f"{name}: {error}: {line[:60].decode(errors='replace')}...") from None
        yield chunk


def json_part(content: Any) -> bytes:
    """Return the content of a JSON part. The same content gives the same bytes."""
    return (json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _build_facts(experiment: Experiment, label: str, reason: str, by: Actor) -> dict[str, Any]:
    """Return facts about the site at this moment that the tables do not contain."""
    dataset, manifest = experiment.dataset, build_manifest(experiment)
    conditions = experiment.conditions.select_related("model__endpoint").order_by("pk")
    # The names of the models that served each condition, as the providers reported them.
    reported = Attempt.objects.filter(run__experiment=experiment).exclude(served_model="").order_by("served_model")
    served_models: dict[int, list[str]] = {}
    for key, name in reported.values_list("run__condition_id", "served_model").distinct():
        served_models.setdefault(int(key), []).append(name)
    return {
        "snapshot": {
            "label": label,
            "reason": reason,
            "by": str(by or ""),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        },
        "experiment": experiment.slug,
        "title": experiment.title,
        "description": experiment.description,
        "samples": experiment.samples,
        "dataset": {
            "name": str(dataset),
            "title": dataset.title,
            "source": dataset.source,
            "licence": dataset.licence,
            "hash": dataset.content_hash,
        },
        "conditions": [
            {
                "id": condition.condition_id,
                "stage": condition.stage,
                "model": condition.model.name,
                "model_id": condition.model.model,
                "served_as": ", ".join(served_models.get(condition.pk, [])),
                "endpoint": condition.model.endpoint.name,
            }
            for condition in conditions
        ],
        "manifests": list(experiment.manifests.order_by("pk").values_list("pk", flat=True)),
        "agreement": reverse("experiment_agreement", args=[experiment.slug]),
        "evalsite": manifest["evalsite"],
        "results": build_result_facts(experiment),
        "packages": {"python": manifest["python"], **manifest["packages"]},
    }


def build_result_facts(experiment: Experiment) -> dict[str, Any]:
    """Return the numbers of the results page.

    scores: a mean or share for each measure and condition. norms: the correlation of a condition's means with the
    norms, by dimension.
    """
    frames = load_frames(experiment)
    scores = [
        {
            "measure": line.measure.label,
            "condition": line.condition,
            "is_share": line.measure.is_share,
            "unread": line.score.missing,
            **{name: getattr(line.score, name) for name in NUMBERS},
        }
        for line in frames.lines
    ]
    pairs: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for pair in frames.norm_pairs:
        pairs.setdefault((pair.condition, pair.dimension), []).append((pair.model_mean, pair.human_mean))
    facts = []
    for (condition, dimension), means in pairs.items():
        models, humans = zip(*means, strict=True)
        r = pearson(models, humans)
        has_ends = r is not None and r.low is not None
        facts.append(
            {
                "dimension": frames.dimensions[dimension].title,
                "condition": frames.labels[condition],
                "items": len(means),
                "r": r.r if r else None,
                "low": r.low if r else None,
                "high": r.high if r else None,
                "difference": sum(models) / len(models) - sum(humans) / len(humans),
                "method": f"{r.method} over items" if r and has_ends else "",
                "reason": "" if has_ends else TOO_FEW if len(means) < 4 else "no variance",
            }
        )
    return {"confidence": CONFIDENCE, "scores": scores, "norms": facts}
