"""What reading a file gives: items, images, norms, and remarks about what was wrong with which row."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from datasets_app.importing.limits import LIMITS
from evalsite.lib.text.hashing import content_hash


class Refused(Exception):
    """The file as a whole cannot be read; the message says why, for the person who chose it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record of a table: `number` counts from 1; `line` is where it starts in the file, if lines are known."""

    number: int
    line: int | None
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Remark:
    """An error or a warning. `row` is None where it concerns the whole file."""

    row: int | None
    line: int | None
    field: str
    message: str

    def __str__(self) -> str:
        if self.row is None:
            return f"{self.field}: {self.message}"
        line = "" if self.line is None else f" (line {self.line})"
        return f"row {self.row}{line}, {self.field}: {self.message}"


@dataclass(slots=True)
class Report:
    """Errors and warnings as they are found; the first hundred of each are kept, all are counted."""

    keep: int = LIMITS.remarks
    errors: list[Remark] = field(default_factory=list)
    warnings: list[Remark] = field(default_factory=list)
    error_total: int = 0
    warning_total: int = 0

    def error(self, row: Row | None, where: str, message: str) -> None:
        self.error_total += 1
        self._note(self.errors, row, where, message)

    def warning(self, row: Row | None, where: str, message: str) -> None:
        self.warning_total += 1
        self._note(self.warnings, row, where, message)

    def _note(self, remarks: list[Remark], row: Row | None, where: str, message: str) -> None:
        if len(remarks) < self.keep:
            number, line = (row.number, row.line) if row else (None, None)
            remarks.append(Remark(number, line, where, message))


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """An image as it will be stored: re-encoded, upright, without metadata. `format` is "jpeg" or "png"."""

    sha256: str
    data: bytes
    format: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class StashedImage:
    """An ImageRecord whose bytes wait in a temporary file, so that an import holds one image at a time."""

    sha256: str
    path: Path
    format: str
    width: int
    height: int
    size: int
    original_name: str


@dataclass(frozen=True, slots=True)
class NormRecord:
    """Human reference for one item on one dimension; `sd` and `n` are None where the table leaves them blank."""

    key: str
    dimension: str
    mean: float
    sd: float | None = None
    n: int | None = None


@dataclass(frozen=True, slots=True)
class ItemRecord:
    key: str
    input: str = ""
    image: StashedImage | None = None
    target: str = ""
    choices: tuple[str, ...] = ()
    grading_scheme: str = ""
    category: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    norms: tuple[NormRecord, ...] = ()

    def content(self) -> dict[str, Any]:
        """What identifies the item, as `item_content` gives it."""
        return item_content(
            key=self.key,
            input=self.input,
            image_sha256=self.image.sha256 if self.image else None,
            target=self.target,
            choices=self.choices,
            grading_scheme=self.grading_scheme,
            category=self.category,
            metadata=self.metadata,
            norms=[(norm.dimension, norm.mean, norm.sd, norm.n) for norm in self.norms],
        )


class ScratchFolder:
    """A temporary folder that goes when nobody holds this object any more, and at the latest when Python ends."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="evalsite-import-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    @classmethod
    def at(cls, path: Path) -> ScratchFolder:
        """A folder that somebody else made, and removes."""
        scratch = cls.__new__(cls)
        scratch.path = path
        return scratch


@dataclass(slots=True)
class Reading:
    """A whole file, read. With an error in it, nothing of it may be saved.

    `mapping` is the one that was used (given or guessed), `columns` are those of the table. The images lie in a
    temporary folder that lives as long as this object.
    """

    items: list[ItemRecord]
    columns: list[str]
    mapping: dict[str, str]
    source_name: str
    source_sha256: str
    report: Report
    scratch: ScratchFolder | None = None

    @property
    def ok(self) -> bool:
        return not self.report.error_total

    @property
    def errors(self) -> list[Remark]:
        return self.report.errors

    @property
    def warnings(self) -> list[Remark]:
        return self.report.warnings


def item_content(
    *,
    key: str,
    input: str,
    image_sha256: str | None,
    target: str,
    choices: Iterable[str],
    grading_scheme: str,
    category: str,
    metadata: Mapping[str, Any],
    norms: Iterable[tuple[str, float, float | None, int | None]],
) -> dict[str, Any]:
    """The content of one item as plain data; neither its place in the set nor a note about it belongs to it."""
    return {
        "key": key,
        "input": input,
        "image": image_sha256,
        "target": target,
        "choices": list(choices),
        "grading_scheme": grading_scheme,
        "category": category,
        "metadata": dict(metadata),
        "norms": {dimension: [mean, sd, n] for dimension, mean, sd, n in norms},
    }


def dataset_hash(contents: Iterable[dict[str, Any]]) -> str:
    """SHA-256 over (key, hash of the content) of the active items, whatever their order. 64 hexadecimal digits.

    A hash of hashes, so that only one item's content is held at a time.
    """
    return content_hash(sorted((content["key"], content_hash(content)) for content in contents))
