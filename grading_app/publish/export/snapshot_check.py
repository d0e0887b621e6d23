"""The check of a snapshot file: its checksums, its values, and its study card, counted again from its tables. Pure.

Each line is read once, and one line at a time. A line may hold long texts, but little else: the brackets and commas of
a few megabytes become gigabytes of Python objects.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from datasets_app.importing.records import FileError
from evalsite.lib.checksummed_zip import PIECE, SUMS, format_checksums
from grading_app.publish.export.row_checks import RowError, Rules, check_row, read_row
from grading_app.publish.export.row_shapes import Shape, find_mismatch
from grading_app.publish.export.study_card import (
    COUNTED,
    CardFacts,
    Counts,
    StudyCard,
    find_differences,
    read_card_row,
)

TABLES, ROWS, IMAGES = "tables/", "rows/", "images/"
SCHEMA_FILE = "schema.json"
STUDY = "study"  # The kind of a snapshot. Bundles have other kinds.
MAX_LINE = 64 * 2**20  # Bytes: two copies of the longest answer (16 MiB), with their escapes.
MAX_MARKUP = 4 * 2**20  # Bytes of a line outside its texts.
MAX_PART = 64 * 2**20  # Of a part that is parsed as a whole.
MAX_PROBLEMS = 100
# A text of JSON. One without an end reaches to the end of the line, so that no quote is tried twice.
TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
SCHEMA = 5  # The version of the format that this site writes and reads.
# The errors of zipfile for a damaged archive, which only calls of zipfile may raise. RuntimeError: encrypted, or by an
# unknown method.
BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, RuntimeError, ValueError, KeyError,
)  # fmt: skip


class SnapshotFileError(FileError):
    """A file that is not a snapshot. The message says why."""


class PartError(ValueError):
    """A part of an archive that cannot be read. The message says why."""


@contextmanager
def refuse_damage() -> Iterator[None]:
    """Turn the errors of zipfile, which have many types, into a PartError. The block calls zipfile and nothing else."""
    try:
        yield
    except BROKEN as error:
        raise PartError(str(error) or type(error).__name__) from None


class SchemaPart(Shape):
    schema_: int = Field(alias="schema")
    kind: str = STUDY


@dataclass(slots=True)
class SnapshotVerdict:
    """The result of a check.

    content: the digest of rows and images. kind: "study", or the kind of a bundle. problems: sentences; none if the
    file is unchanged.
    """

    digest: str
    content: str = ""
    schema: int = SCHEMA
    kind: str = STUDY
    files: int = 0
    rows: int = 0
    problems: list[str] = field(default_factory=list)


def verify(path: Path, rules: Rules | None = None) -> SnapshotVerdict:
    """Check a snapshot file. Raise SnapshotFileError if it cannot be read as a snapshot.

    With rules, also check each value of its rows. For files of unknown origin, `upload_reader` calls this in a
    process with limits.
    """
    with open_archive(path) as archive:
        try:
            return _Check(archive, rules).run()
        except (PartError, RowError) as error:
            raise SnapshotFileError(describe_damage(path, error)) from None


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open a snapshot or bundle. Raise SnapshotFileError if it is no zip."""
    try:
        return zipfile.ZipFile(path)
    except BROKEN as error:
        raise SnapshotFileError(describe_damage(path, error)) from None


def describe_damage(path: Path, error: Exception) -> str:
    """Return why a file cannot be read as a snapshot, and what to do."""
    if isinstance(error, FileNotFoundError):
        return f"there is no file {path}"
    try:
        with zipfile.ZipFile(path) as archive:
            if SUMS not in archive.namelist():
                return f"{path.name} is a zip, but no snapshot or bundle of Evalsite: it has no {SUMS}"
    except BROKEN:
        pass
    return f"{path.name} is not a complete snapshot: {error}. Download or copy it again"


def content_digest(sums: dict[str, str]) -> str:
    """Return the digest of the rows and images alone: the same on each site that holds the study.

    Names, times of the snapshot and the site's own keys are no part of it.
    """
    content = {name: digest for name, digest in sums.items() if name.startswith((ROWS, IMAGES))}
    return hashlib.sha256(format_checksums(content).encode()).hexdigest()


def describe_schema(schema: int) -> str:
    """Return why this site does not read a file of this schema, and what to do; empty if it does."""
    if schema > SCHEMA:
        return f"schema {schema}, of a newer version; update this site"
    if schema < SCHEMA:
        return f"schema {schema}, of an older version; make a new file on its site, with the version of this site"
    return ""


def check_line(line: bytes) -> None:
    """Raise PartError for a line that is too long, or that has too much besides texts."""
    if len(line) >= MAX_LINE:
        raise PartError(f"a line is longer than {MAX_LINE // 2**20} MiB")
    if len(line) <= MAX_MARKUP:
        return
    end, in_texts = 0, 0
    for text in TEXT.finditer(line):
        end = text.end()
        in_texts += end - text.start()
        if end - in_texts > MAX_MARKUP:
            break
    else:
        end = len(line)
    if end - in_texts > MAX_MARKUP:
        raise PartError(f"a line has more than {MAX_MARKUP // 2**20} MiB besides its texts")


class _Check:
    def __init__(self, archive: zipfile.ZipFile, rules: Rules | None = None) -> None:
        self.archive, self.rules = archive, rules or {}
        self.sums = self._read_part(SUMS)
        self.verdict = SnapshotVerdict(hashlib.sha256(self.sums).hexdigest())

    def run(self) -> SnapshotVerdict:
        lines = [line.partition("  ") for line in self._decode(SUMS, self.sums).splitlines()]
        if not all(separator for _, separator, _ in lines):
            raise PartError(f"{SUMS} has a line without a checksum and a name")
        sums = {name: digest for digest, _, name in lines}
        self.verdict.content = content_digest(sums)
        # The first version of the format had no file for the version and the kind.
        schema: dict[str, Any] = {"schema": 1}
        if SCHEMA_FILE in self.archive.namelist():
            schema = self._parse(SCHEMA_FILE)
            self._require_shape(SCHEMA_FILE, SchemaPart, schema)
        self.verdict.schema, self.verdict.kind = schema["schema"], schema.get("kind", STUDY)
        names = [name for name in self.archive.namelist() if name != SUMS]
        for name in sorted(set(sums) ^ set(names)):
            self._report(f"{name}: {'missing' if name in sums else 'not in the checksums'}")
        if len(set(names)) < len(names):
            self._report("a file is in it twice")
        counts = Counts()
        for name in sorted(set(sums) & set(names)):
            self.verdict.files += 1
            try:
                if self._compute_digest(name, counts) != sums[name]:
                    self._report(f"{name}: its content does not match its checksum")
            except RowError as error:
                self._report(f"{name}, {error}")
            except PartError as error:
                self._report(f"{name}: cannot be read: {error}")
        if problem := describe_schema(self.verdict.schema):
            self._report(f"{SCHEMA_FILE}: it has {problem}")
        else:
            self._check_card(counts.content)
        return self.verdict

    def _compute_digest(self, name: str, counts: Counts) -> str:
        """Return the sha256 of one file. Count the rows of a table, and check the rows of the study, on the way."""
        digest = hashlib.sha256()
        table = name.removeprefix(TABLES).removesuffix(".jsonl") if name.startswith(TABLES) else ""
        if name.startswith(ROWS):
            stored_table = name.removeprefix(ROWS).removesuffix(".jsonl")
            rules = self.rules.get(stored_table)
            for number, line in enumerate(self._read_lines(name), start=1):
                digest.update(line)
                try:
                    if rules is not None:
                        check_row(read_row(line), stored_table, rules)
                except RowError as error:  # A column cannot hold a value.
                    raise RowError(f"row {number}: {error}") from None
            return digest.hexdigest()
        if not table:
            for piece in self._read(name, PIECE):
                digest.update(piece)
            return digest.hexdigest()
        counts.touch(table)
        for number, line in enumerate(self._read_lines(name), start=1):
            digest.update(line)
            counts.take_row(table, self._read_counted_row(table, number, line))
            self.verdict.rows += 1
        return digest.hexdigest()

    def _read(self, name: str, size: int, *, by_line: bool = False) -> Iterator[bytes]:
        """Yield the pieces or the lines of a part, of at most `size` bytes each. Raise PartError if it is damaged."""
        with refuse_damage():
            part = self.archive.open(name)
        with part:
            while True:
                with refuse_damage():
                    piece = part.readline(size) if by_line else part.read(size)
                if not piece:
                    return
                yield piece

    def _read_lines(self, name: str) -> Iterator[bytes]:
        for line in self._read(name, MAX_LINE, by_line=True):
            check_line(line)
            yield line

    def _read_counted_row(self, table: str, number: int, line: bytes) -> Mapping[str, Any]:
        """Return a row of a table, or an empty one if the study card counts none of its columns."""
        if table not in COUNTED:
            return {}
        try:
            row = read_card_row(line)
        except (ValueError, RecursionError) as error:
            raise RowError(f"row {number}: it is not JSON: {error}") from None
        if (mismatch := find_mismatch(COUNTED[table].shape, row)) is not None:
            raise RowError(f"row {number}: {': '.join(filter(None, mismatch))}")
        return row

    def _read_part(self, name: str) -> bytes:
        with refuse_damage():
            if (info := self.archive.getinfo(name)).file_size > MAX_PART:
                raise ValueError(f"{name} has more than {MAX_PART // 2**20} MiB")
            return self.archive.read(info)

    def _decode(self, name: str, content: bytes) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise PartError(f"{name}: {error}") from None

    def _parse(self, name: str) -> Any:
        try:
            return json.loads(self._decode(name, self._read_part(name)))
        except (json.JSONDecodeError, RecursionError) as error:
            raise PartError(f"{name}: {error}") from None

    def _require_shape(self, name: str, shape: type[Shape], content: Any) -> None:
        if (mismatch := find_mismatch(shape, content)) is not None:
            raise PartError(f"{name}: {': '.join(filter(None, mismatch))}")

    def _check_card(self, table_counts: dict[str, Any]) -> None:
        counts, facts = self._parse("counts.json"), self._parse("facts.json")
        for line in find_differences(counts, table_counts):
            self._report(line)
        if self.verdict.kind != STUDY:
            return  # Only a snapshot has a study card.
        self._require_shape("facts.json", CardFacts, facts)
        card = self._decode("study-card.md", self._read_part("study-card.md"))
        if StudyCard(facts, table_counts).to_markdown() != card:
            self._report("study-card.md: it does not match the facts and tables")

    def _report(self, problem: str) -> None:
        if len(self.verdict.problems) < MAX_PROBLEMS:
            self.verdict.problems.append(problem)
