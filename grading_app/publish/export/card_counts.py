"""The numbers of a study card, counted from the rows of the tables. Pure.

`verify_snapshot` counts them again with this code, so the numbers of a file can be checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

Row = Mapping[str, Any]
Tree = dict[str, Any]


class Counts:
    """Counters that take rows one by one. `content` is a tree of names with numbers at its ends."""

    def __init__(self) -> None:
        self._tree: Tree = {}

    def take(self, table: str, line: bytes) -> None:
        """Count one line of a table in JSON lines. Money is exact."""
        self._add(1, "rows", table)
        if (count := COUNTED.get(table)) is not None:
            count(self, json.loads(line, parse_float=Decimal))

    def touch(self, table: str) -> None:
        """Add a table that may have no rows, with a count of 0."""
        self._add(0, "rows", table)

    @property
    def content(self) -> Tree:
        """The tree with sorted names, and money as text. The same rows in any order give the same tree."""
        content: Tree = _normalise(self._tree)
        return content

    def _add(self, amount: int | Decimal, *path: str) -> None:
        *above, leaf = path
        node = self._tree
        for name in above:
            node = node.setdefault(name, {})
        node[leaf] = node.get(leaf, 0) + amount

    def _extend_span(self, name: str, moment: str | None) -> None:
        if moment:
            span = self._tree.setdefault("when", {}).setdefault(name, [moment, moment])
            span[:] = [min(span[0], moment), max(span[1], moment)]

    def trial(self, row: Row) -> None:
        where = ("trials", row["condition_id"], row["wave_label"] or f"wave {row['wave']}")
        self._add(1, *where, row["status"])
        for name, holds in (("empty", row["answer"] == ""), ("truncated", row["truncated"])):
            if row["status"] == "done" and holds:
                self._add(1, *where, name)
        if row["status"] == "failed":
            self._add(1, "failed", row["error_class"] or "without a class")
        if row["dimension"] and row["status"] == "done":
            outcome = "ratings" if row["rating"] is not None else f"no rating: {row['parse_error'] or 'without a code'}"
            self._add(1, "ratings", row["condition_id"], row["dimension"], outcome)
        if row.get("raw_response_sha256"):
            self._add(1, "removed", "raw responses of trials")
        self._extend_span("answers", row["completed_at"])

    def rating(self, row: Row) -> None:
        if row["rating"] is not None and not row["excluded"]:
            self._add(1, "people", row["queue"], row["rated_on"], row["kind"])

    def attempt(self, row: Row) -> None:
        self._add(1, "calls", row["stage"], row["outcome"])
        if row["error_class"]:
            self._add(1, "errors of calls", row["error_class"])
        if row.get("raw_response_sha256"):
            self._add(1, "removed", "raw responses of attempts")
        self._extend_span("calls", row["finished_at"])

    def grading(self, row: Row) -> None:
        where = ("gradings", row["grade_condition_id"])
        self._add(1, *where, "gradings")
        if row["parse_error"]:
            self._add(1, *where, f"no score: {row['parse_error']}")
        if row["unasked"]:
            self._add(1, *where, f"not asked: {row['unasked']}")

    def item(self, row: Row) -> None:
        self._add(1, "items", "excluded" if row["excluded"] else "active")
        if row["excluded"]:
            self._add(1, "exclusions", row["note"] or "without a note")

    def money(self, row: Row) -> None:
        where = ("money", row["stage"], row["model"])
        for name in ("attempts", "unpriced"):
            self._add(row[name] or 0, *where, name)
        self._add(Decimal(row["cost_usd"] or 0), *where, "paid_usd")


COUNTED: Mapping[str, Callable[[Counts, Row], None]] = {
    "trials": Counts.trial,
    "attempts": Counts.attempt,
    "gradings": Counts.grading,
    "items": Counts.item,
    "ratings": Counts.rating,
    "ledger": Counts.money,
}


def _normalise(node: Any) -> Any:
    if isinstance(node, dict):
        return {name: _normalise(node[name]) for name in sorted(node)}
    return f"{node:f}" if isinstance(node, Decimal) else node


def find_differences(card: Any, tables: Any, path: str = "") -> list[str]:
    """Return the differences of two trees, such as `trials / a--1 / done: the card says 3, the tables 2`."""
    if isinstance(card, dict) and isinstance(tables, dict):
        return [
            line
            for name in sorted(set(card) | set(tables))
            for line in find_differences(card.get(name), tables.get(name), f"{path} / {name}" if path else name)
        ]
    return [] if card == tables else [f"{path}: the card says {card}, the tables {tables}"]
