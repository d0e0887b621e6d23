"""The check of a snapshot file: its checksums, and its study card, counted again from its tables. Pure."""

from __future__ import annotations

import hashlib
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalsite.lib.checksummed_zip import SUMS, format_checksums, iterate_pieces
from grading_app.export.card_counts import Counts, find_differences
from grading_app.export.study_card import study_card

TABLES, ROWS, IMAGES = "tables/", "rows/", "images/"
SCHEMA_FILE = "schema.json"
STUDY = "study"  # The kind of a snapshot. Bundles have other kinds.
MAX_LINE = 256 * 2**20
SCHEMA = 4  # The version of the format that this site writes, and the newest that it reads.
# The errors of zipfile for a damaged archive. RuntimeError: encrypted, or by an unknown method.
BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, RuntimeError, ValueError, KeyError,
)  # fmt: skip


class SnapshotFileError(ValueError):
    """A file that is not a snapshot. The message says why."""


@dataclass(slots=True)
class Verdict:
    """The result of a check.

    content: the digest of rows and images; empty for schema 1. kind: "study", or the kind of a bundle. problems:
    sentences; none if the file is unchanged.
    """

    digest: str
    content: str = ""
    schema: int = 1
    kind: str = STUDY
    files: int = 0
    rows: int = 0
    problems: list[str] = field(default_factory=list)


def verify(path: Path) -> Verdict:
    """Check a snapshot file. Raise SnapshotFileError if it cannot be read as a snapshot."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _Check(archive).run()
    except (TypeError, *BROKEN) as error:
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
    """Return the digest of the rows and images alone: the same on each site that holds the study. Empty for schema 1.

    Names, times of the snapshot and the site's own keys are no part of it.
    """
    content = {name: digest for name, digest in sums.items() if name.startswith((ROWS, IMAGES))}
    return hashlib.sha256(format_checksums(content).encode()).hexdigest() if content else ""


class _Check:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.sums = archive.read(SUMS)
        self.verdict = Verdict(hashlib.sha256(self.sums).hexdigest())

    def run(self) -> Verdict:
        sums = {name: digest for digest, name in (line.split("  ", 1) for line in self.sums.decode().splitlines())}
        self.verdict.content = content_digest(sums)
        self.verdict.schema, self.verdict.kind = self._read_schema()
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
            except BROKEN as error:
                self._report(f"{name}: cannot be read: {error}")
        if self.verdict.schema > SCHEMA:
            self._report(
                f"{SCHEMA_FILE}: schema {self.verdict.schema} is newer than this site's {SCHEMA}; update this site"
            )
        else:
            self._check_card(counts.content)
        return self.verdict

    def _read_schema(self) -> tuple[int, str]:
        """Return the version of the format and the kind. The first version had no file for them."""
        if SCHEMA_FILE not in self.archive.namelist():
            return 1, STUDY
        content = json.loads(self.archive.read(SCHEMA_FILE))
        return int(content["schema"]), str(content.get("kind", STUDY))

    def _compute_digest(self, name: str, counts: Counts) -> str:
        """Return the sha256 of one file. Count the rows of a table on the way."""
        digest = hashlib.sha256()
        table = name.removeprefix(TABLES).removesuffix(".jsonl") if name.startswith(TABLES) else ""
        if not table:
            for piece in iterate_pieces(self.archive, name):
                digest.update(piece)
            return digest.hexdigest()
        counts.touch(table)
        for line in self._read_lines(name):
            digest.update(line)
            counts.take(table, line)
            self.verdict.rows += 1
        return digest.hexdigest()

    def _read_lines(self, name: str) -> Iterator[bytes]:
        with self.archive.open(name) as part:
            while line := part.readline(MAX_LINE):
                if len(line) == MAX_LINE:
                    raise ValueError(f"a line is longer than {MAX_LINE // 2**20} MB")
                yield line

    def _check_card(self, table_counts: dict[str, Any]) -> None:
        counts, facts = (json.loads(self.archive.read(f"{name}.json")) for name in ("counts", "facts"))
        for line in find_differences(counts, table_counts):
            self._report(line)
        if self.verdict.kind != STUDY:
            return  # Only a snapshot has a study card.
        if study_card(facts, table_counts) != self.archive.read("study-card.md").decode():
            self._report("study-card.md: it does not match the facts and tables")

    def _report(self, problem: str) -> None:
        self.verdict.problems.append(problem)
