"""Readings as files: the process that reads an upload passes its result to the storing process in this form.

A hostile file may have taken over the reader process, so its output is not trusted. The format is therefore JSON, and
each image is checked against its hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets_app.importing.norm_reader import NormReading
from datasets_app.importing.records import (
    BufferedImage,
    FileError,
    ItemReading,
    ItemRecord,
    NormRecord,
    ReadingReport,
    Remark,
    ScratchFolder,
)

HEADER, ITEMS = "reading.json", "items.jsonl"
SHA256 = re.compile(r"[0-9a-f]{64}\Z")
FORMATS = frozenset({"jpeg", "png"})


def write_readings(folder: Path, reading: ItemReading, norms: NormReading) -> None:
    """Write a reading and the norms read with it. The images are in the folder already."""
    with (folder / ITEMS).open("w", encoding="utf-8") as out:
        for item in reading.items:
            image = item.image
            facts = image and [image.sha256, image.format, image.width, image.height, image.size, image.original_name]
            content = {
                "key": item.key,
                "input": item.input,
                "image": facts,
                "target": item.target,
                "choices": item.choices,
                "grading_scheme": item.grading_scheme,
                "category": item.category,
                "metadata": item.metadata,
                "norms": [_norm_to_json(norm) for norm in item.norms],
            }
            out.write(json.dumps(content, ensure_ascii=False) + "\n")
    header = {
        "columns": reading.columns,
        "mapping": reading.mapping,
        "source_name": reading.source_name,
        "source_sha256": reading.source_sha256,
        "item_count": len(reading.items),
        "report": report_to_json(reading.report),
        "norms": [_norm_to_json(norm) for norm in norms.norms],
        "norms_report": report_to_json(norms.report),
    }
    (folder / HEADER).write_text(json.dumps(header, ensure_ascii=False), encoding="utf-8")


def load_readings(scratch: ScratchFolder) -> tuple[ItemReading, NormReading]:
    """Return the readings that `write_readings` wrote. Raise FileError if an image does not match its hash."""
    header = json.loads((scratch.path / HEADER).read_text(encoding="utf-8"))
    items = list(_load_items(scratch.path)) if not header["report"]["error_total"] else []
    reading = ItemReading(
        items,
        header["columns"],
        header["mapping"],
        header["source_name"],
        header["source_sha256"],
        report_from_json(header["report"]),
        scratch,
    )
    return reading, NormReading(
        [NormRecord(*norm) for norm in header["norms"]], report_from_json(header["norms_report"])
    )


def report_to_json(report: ReadingReport) -> dict[str, Any]:
    return {
        "errors": [_remark_to_json(remark) for remark in report.errors],
        "warnings": [_remark_to_json(remark) for remark in report.warnings],
        "error_total": report.error_total,
        "warning_total": report.warning_total,
        "left_out": report.left_out,
        "left_out_total": report.left_out_total,
    }


def report_from_json(content: dict[str, Any]) -> ReadingReport:
    return ReadingReport(
        errors=[Remark(*remark) for remark in content["errors"]],
        warnings=[Remark(*remark) for remark in content["warnings"]],
        error_total=content["error_total"],
        warning_total=content["warning_total"],
        left_out=content.get("left_out", []),
        left_out_total=content.get("left_out_total", 0),
    )


def _remark_to_json(remark: Remark) -> list[Any]:
    return [remark.row, remark.line, remark.field, remark.message]


def _norm_to_json(norm: NormRecord) -> list[Any]:
    return [norm.key, norm.dimension, norm.mean, norm.sd, norm.n]


def _load_items(folder: Path) -> Iterator[ItemRecord]:
    images: dict[str, BufferedImage] = {}
    with (folder / ITEMS).open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            content = json.loads(line)
            image = content.pop("image")
            if image and image[0] not in images:
                images[image[0]] = load_image(folder, *image)
            yield ItemRecord(
                image=images[image[0]] if image else None,
                choices=tuple(content.pop("choices")),
                norms=tuple(NormRecord(*norm) for norm in content.pop("norms")),
                **content,
            )


def load_image(
    folder: Path, sha256: str, form: str, width: int, height: int, size: int, original_name: str
) -> BufferedImage:
    """Return the image in a folder of the reader process. Raise FileError if it is not the image of that hash."""
    if not SHA256.match(sha256) or form not in FORMATS:
        raise FileError("the reader named an image that cannot be one")
    path = folder / f"{sha256}.{form}"
    if path.is_symlink() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise FileError(f"the image {original_name!r} is not what the reader says it is")
    return BufferedImage(sha256, path, form, width, height, size, original_name)
