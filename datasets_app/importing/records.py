"""The results of reading a file: items, images, norms, and remarks about rows."""

from __future__ import annotations

import json
import shutil
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from datasets_app.content_hash import describe_item_content
from datasets_app.importing.limits import LIMITS
from evalsite.lib.text.characters import replace_unstorable

PREVIEW_CHARS = 5_000


class FileError(Exception):
    """A file that cannot be read at all. The message gives the reason to the person who chose the file.

    problems: the parts of the message, each a sentence.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.problems = [message]


class NoValue(ValueError):
    """An error for an expression without a value in this row. The message gives the reason."""


class BadField(Exception):
    """An error for a cell that cannot become this field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class TableRow:
    """One record of a table. `number` counts from 1; `line` is its first line in the file, or None if unknown.

    decimal_comma: whether a comma in a number can only be a decimal comma, as in CSV with semicolons.
    """

    number: int
    line: int | None
    values: dict[str, Any]
    decimal_comma: bool = False


def to_text(value: Any) -> str:
    """Return a cell as text: "" for null, JSON for numbers, lists and objects. Raise NoValue for bytes."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        raise NoValue("contains bytes, not text")
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise NoValue("contains values that are not text") from None


def make_preview(value: Any) -> str:
    """Return a cell as text of bounded length."""
    try:
        text = to_text(value)
    except NoValue:
        text = "(bytes)"
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}… and {len(text) - PREVIEW_CHARS:,} more"


@dataclass(frozen=True, slots=True)
class Remark:
    """An error or a warning. `row` is None if it concerns the whole file."""

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
class ReadingReport:
    """The errors and warnings of a file. The first `keep` of each are stored; all are counted.

    With `leaves_out`, an error of a row only leaves it out, with a warning. `left_out` are these rows, each with its
    cells as text and its "problem". `has_decimal_commas` is true after the warning about the first one.
    """

    keep: int = LIMITS.remarks
    errors: list[Remark] = field(default_factory=list)
    warnings: list[Remark] = field(default_factory=list)
    error_total: int = 0
    warning_total: int = 0
    leaves_out: bool = False
    left_out: list[dict[str, str]] = field(default_factory=list)
    left_out_total: int = 0
    has_decimal_commas: bool = False

    def error(self, row: TableRow | None, where: str, message: str) -> None:
        if self.leaves_out and row is not None:
            self.warning(row, where, f"left out: {message}")
            self.left_out_total += 1
            if len(self.left_out) < self.keep:
                cells = {column: make_preview(value) for column, value in row.values.items()}
                cells = {"problem": f"row {row.number}, {where}: {message}", **cells}
                self.left_out.append({replace_unstorable(k): replace_unstorable(v) for k, v in cells.items()})
            return
        self.error_total += 1
        self._note(self.errors, row, where, message)

    def warning(self, row: TableRow | None, where: str, message: str) -> None:
        self.warning_total += 1
        self._note(self.warnings, row, where, message)

    def _note(self, remarks: list[Remark], row: TableRow | None, where: str, message: str) -> None:
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
class BufferedImage:
    """An image whose bytes are in a temporary file, so that an import has only one image in memory."""

    sha256: str
    path: Path
    format: str
    width: int
    height: int
    size: int
    original_name: str


@dataclass(frozen=True, slots=True)
class NormRecord:
    """A human norm for one item on one dimension. `sd` and `n` are None if the table leaves them blank."""

    key: str
    dimension: str
    mean: float
    sd: float | None = None
    n: int | None = None


@dataclass(frozen=True, slots=True)
class ItemRecord:
    key: str
    input: str = ""
    image: BufferedImage | None = None
    target: str = ""
    choices: tuple[str, ...] = ()
    grading_scheme: str = ""
    category: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    norms: tuple[NormRecord, ...] = ()

    def content(self) -> dict[str, Any]:
        """Return the content that identifies the item, in the form of `item_content`."""
        return describe_item_content(
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
    """A temporary folder that is deleted with the last reference to this object, or when Python exits."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="evalsite-import-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    @classmethod
    def at(cls, path: Path) -> ScratchFolder:
        """Return an object for a folder that another process creates and deletes."""
        scratch = cls.__new__(cls)
        scratch.path = path
        return scratch


@dataclass(slots=True)
class ItemReading:
    """The result of reading a whole file. If it has an error, none of it may be saved.

    `mapping` is the mapping that was used, given or guessed. `columns` are the columns of the table. The images are in
    a temporary folder that exists as long as this object.
    """

    items: list[ItemRecord]
    columns: list[str]
    mapping: dict[str, str]
    source_name: str
    source_sha256: str
    report: ReadingReport
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
