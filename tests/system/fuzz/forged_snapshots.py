"""Forged copies of a snapshot or bundle: every column of every table, with checksums and counts that match."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAN, INFINITY = float("nan"), float("inf")
MARKUP = "<script>alert(1)</script>{{ 7 }}{% x %}"
# The values that each kind of column is tried with. A JSON column gets wrong shapes as well.
NUMBERS = [
    -1,
    0,
    NAN,
    INFINITY,
    -INFINITY,
    1e300,
    -1e300,
    2**31,
    2**63,
    10**30,
    "-1000",
    "NaN",
    True,
    None,
    [],
    {},
    1.5,
]
TEXTS = ["", MARKUP, "\x00", "\ud800", "x" * 300, 5, None, True, [], {}, "NaN", "1"]
TIMES = [
    "infinity", "-infinity", "4713-01-01T00:00:00+00:00 BC", "0001-01-01T00:00:00+00:00", "1969-12-31T23:59:59+00:00",
    "9999-12-31T23:59:59+00:00", "9999-12-31T23:59:59-14:00", "294276-01-01T00:00:00+00:00", "2026-01-01", "now", 5,
    None, [], "2026-02-30T00:00:00+00:00",
]  # fmt: skip
SHAPES = [
    5, -1, "x", "", True, None, [], {}, [{}], [[]], [5], [None], {"": {}}, {"x": 5}, {"x": None}, {"a": {"b": []}},
    [MARKUP], {MARKUP: MARKUP}, NAN, 1e300, {"x": NAN}, ["\x00"], {"\ud800": 1}, [[[[[]]]]], {"name": []},
    [{"role": "user", "content": 5}], [{"role": "user", "content": "{{target}}"}], [{"name": 5, "score": "x"}],
    {"scale_min": "x"}, {"launch": 5}, {"members": 5}, {"params": 5}, {"criteria": 5}, {"score": "x"},
    {"definition_hash": []}, {"guess_chance": "x", "params": {}},
]  # fmt: skip
KEYS = [0, -1, 999_999, "1", 1.5, None, [], 2**63, True]
BOOLEANS = ["x", 5, None, [], "true"]


@dataclass(frozen=True)
class Mutation:
    """One changed column of one row. place: the row of the part, from 0."""

    part: str
    column: str
    place: int
    value: Any

    def __str__(self) -> str:
        return f"{self.part.removeprefix('rows/').removesuffix('.jsonl')}.{self.column} = {self.value!r:.60}"


def read_parts(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def list_mutations(parts: dict[str, bytes]) -> list[Mutation]:
    """Return every mutation of the last row of each table."""
    return [
        Mutation(name, column, place, value)
        for name, content in sorted(parts.items())
        if name.startswith("rows/") and (lines := content.splitlines())
        for place in [len(lines) - 1]
        for column, present in json.loads(lines[place]).items()
        for value in choose_values(column, present)
    ] + [
        Mutation("names.json", f"{table}.{number}", 0, value)
        for table, names in json.loads(parts["names.json"]).items()
        for number in list(names)[:1]
        for value in ["", MARKUP, 5, None, "../x", "x" * 200, "UPPER", "a\x00"]
    ]


def choose_values(column: str, present: Any) -> list[Any]:
    if column == "id" or (column.endswith("_id") and not isinstance(present, str)):
        return KEYS
    if column.endswith("_at"):
        return TIMES
    if isinstance(present, bool):
        return BOOLEANS
    if isinstance(present, int | float):
        return NUMBERS
    if isinstance(present, dict | list):
        return SHAPES
    if present is None:
        return [*NUMBERS, *TEXTS[:4], *TIMES[:3], *SHAPES[:10]]
    return TEXTS


def forge(parts: dict[str, bytes], mutation: Mutation) -> dict[str, bytes]:
    """Return the parts with the mutation and with new checksums, as an attacker writes them."""
    changed = dict(parts)
    if mutation.part == "names.json":
        names = json.loads(parts["names.json"])
        table, number = mutation.column.split(".")
        names[table][number] = mutation.value
        changed["names.json"] = json.dumps(names).encode("utf-8", "surrogatepass")
    else:
        lines = parts[mutation.part].splitlines()
        row = json.loads(lines[mutation.place]) | {mutation.column: mutation.value}
        lines[mutation.place] = json.dumps(row).encode("utf-8", "surrogatepass")
        changed[mutation.part] = b"\n".join(lines) + b"\n"
    return changed


def parse_line(parts: dict[str, bytes], part: str, place: int) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(parts[part].splitlines()[place])
    return row


def write_archive(parts: dict[str, bytes], path: Path) -> Path:
    contents = {name: content for name, content in parts.items() if name != "SHA256SUMS"}
    sums = "".join(f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (contents | {"SHA256SUMS": sums.encode()}).items():
            archive.writestr(name, content)
    return path
