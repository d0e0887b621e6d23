"""The study card: a description of the tables beside it, in Markdown, and the numbers in it. Pure.

The numbers are counted from the rows of the tables. `verify_snapshot` counts them again with this code, so the numbers
of a file can be checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from grading_app.publish.export.row_shapes import Shape

Tree = Mapping[str, Any]


class SnapshotFacts(Shape):
    label: Any
    at: Any
    by: Any
    reason: Any


class DatasetFacts(Shape):
    name: Any
    title: Any
    source: Any
    licence: Any
    hash: Any


class ConditionFacts(Shape):
    id: Any
    stage: Any
    model: Any
    served_as: Any
    endpoint: Any


class ScoreFacts(Shape):
    measure: Any
    condition: Any
    n: Any
    items: Any
    unread: Any
    mean: float | None
    se: float | None
    low: float | None
    high: float | None
    method: Any
    reason: Any


class NormFacts(Shape):
    dimension: Any
    condition: Any
    items: Any
    r: float | None
    low: float | None
    high: float | None
    difference: float | None
    method: Any
    reason: Any


class ResultFacts(Shape):
    scores: list[ScoreFacts]
    norms: list[NormFacts]


class SiteFacts(Shape):
    version: Any
    commit: Any


class CardFacts(Shape):
    """The facts that a study card shows, as `facts.json` has them."""

    snapshot: SnapshotFacts
    experiment: Any
    title: Any
    description: Any
    samples: Any
    dataset: DatasetFacts
    conditions: list[ConditionFacts]
    manifests: list[Any]
    agreement: Any
    results: ResultFacts
    evalsite: SiteFacts
    packages: dict[str, Any]


@dataclass(frozen=True)
class StudyCard:
    """A study card. facts: about the site when the snapshot was made. counts: from the snapshot's tables (`Counts`)."""

    facts: Tree
    counts: Tree

    def to_markdown(self) -> str:
        texts = [
            *self.write_head(),
            *self.write_items(),
            *self.write_conditions(),
            *self.write_counts(),
            *self.write_results(),
            *self.write_errors(),
            *self.write_costs(),
            *self.write_ratings(),
            *self.write_grades(),
            *self.write_software(),
        ]
        return "\n\n".join(texts) + "\n"

    def write_head(self) -> Iterator[str]:
        snapshot = self.facts["snapshot"]
        yield f"# {_escape_markup(self.facts['title'] or self.facts['experiment'])}"
        label = f" `{_escape_markup(snapshot['label'])}`" if snapshot["label"] else ""
        by = _escape_markup(snapshot["by"])
        yield f"Snapshot{label} of the experiment `{self.facts['experiment']}`, made {snapshot['at']} by {by}."
        yield from [_escape_markup(text) for text in (snapshot["reason"], self.facts["description"]) if text]
        spans = self.counts.get("when", {})
        yield _format_table(("what", "first", "last"), [(name, *spans[name]) for name in sorted(spans)])

    def write_items(self) -> Iterator[str]:
        dataset = self.facts["dataset"]
        yield "## The items"
        yield _format_table(
            ("", ""), [(name, dataset[name] or "not said") for name in ("name", "title", "source", "licence", "hash")]
        )
        items = self.counts.get("items", {})
        yield f"{items.get('active', 0)} active items, {items.get('excluded', 0)} excluded."
        if exclusions := self.counts.get("exclusions"):
            yield _format_table(("excluded because", "items"), exclusions.items())

    def write_conditions(self) -> Iterator[str]:
        yield "## What was asked of whom"
        yield f"{self.facts['samples']} repetitions of each cell. What was asked is in `conditions/` and `design.yaml`."
        yield _format_table(
            ("condition", "stage", "model", "served as", "endpoint"),
            [
                (condition["id"], condition["stage"], condition["model"], condition["served_as"], condition["endpoint"])
                for condition in self.facts["conditions"]
            ],
        )

    def write_counts(self) -> Iterator[str]:
        yield "## How many"
        yield _format_table(("table", "rows"), self.counts.get("rows", {}).items())
        kinds = ("done", "failed", "cancelled", "pending", "running", "empty", "truncated")
        rows = [
            (condition, wave, *(statuses.get(kind, 0) for kind in kinds))
            for condition, waves in self.counts.get("trials", {}).items()
            for wave, statuses in waves.items()
        ]
        yield _format_table(("condition", "wave", *kinds), rows)
        if removed := self.counts.get("removed"):
            yield _format_table(("removed by the retention rule of the site", "rows"), removed.items())

    def write_results(self) -> Iterator[str]:
        yield "## Results"
        results = self.facts["results"]
        if not results["scores"]:
            yield "No answer has a rating or a score."
            return
        yield _format_table(
            ("measure", "condition", "scores", "items", "no score", "mean or share", "SE", "95 % interval", "method"),
            [
                (score["measure"], score["condition"], score["n"], score["items"], score["unread"],
                 _format_number(score["mean"]), _format_number(score["se"]), _format_interval(score),
                 score["method"] or score["reason"])
                for score in results["scores"]
            ],
        )  # fmt: skip
        if results["norms"]:
            yield "Means by item compared with the dataset's norms:"
            yield _format_table(
                ("dimension", "condition", "items", "r", "95 % interval", "mean difference", "method"),
                [
                    (norm["dimension"], norm["condition"], norm["items"], _format_number(norm["r"]),
                     _format_interval(norm), _format_number(norm["difference"]), norm["method"] or norm["reason"])
                    for norm in results["norms"]
                ],
            )  # fmt: skip

    def write_errors(self) -> Iterator[str]:
        yield "## Errors"
        yield _format_table(("trials that failed, by class", "trials"), self.counts.get("failed", {}).items())
        yield _format_table(("calls with an error, by class", "calls"), self.counts.get("errors of calls", {}).items())
        calls = self.counts.get("calls", {})
        rows = [(stage, outcome, n) for stage, outcomes in calls.items() for outcome, n in outcomes.items()]
        yield _format_table(("stage", "outcome", "calls"), rows)

    def write_costs(self) -> Iterator[str]:
        yield "## Costs"
        yield _format_table(
            ("stage", "model", "calls", "of unknown cost", "paid, US dollars"),
            [
                (stage, model, totals["attempts"], totals["unpriced"], totals["paid_usd"])
                for stage, models in self.counts.get("money", {}).items()
                for model, totals in models.items()
            ],
        )

    def write_ratings(self) -> Iterator[str]:
        """Yield the counts of ratings, if the study has any."""
        by_models, by_people = self.counts.get("ratings", {}), self.counts.get("people", {})
        if by_models or by_people:
            yield "## Ratings"
        if by_models:
            yield _format_table(("rated by the model", "on", "", "answers"), _list_leaves(by_models))
        if by_people:
            yield _format_table(("rated by people of the queue", "on", "kind", "ratings"), _list_leaves(by_people))

    def write_grades(self) -> Iterator[str]:
        if not self.counts.get("gradings") and (self.counts.get("ratings") or self.counts.get("people")):
            return  # In a rating study the ratings are the scores, and nobody grades them.
        yield "## Grades"
        rows = [
            (grader, kind, n) for grader, kinds in self.counts.get("gradings", {}).items() for kind, n in kinds.items()
        ]
        yield _format_table(("graded by", "", "answers"), rows)
        agreement = self.facts["agreement"]
        yield f"How far those who graded agree: {agreement} on the site, or computed from `tables/gradings.jsonl`."

    def write_software(self) -> Iterator[str]:
        yield "## Software"
        site = self.facts["evalsite"]
        versions = {"evalsite": site["version"], "commit of evalsite": site["commit"] or "not known"}
        yield _format_table(("package", "version"), {**versions, **self.facts["packages"]}.items())
        yield f"{len(self.facts['manifests'])} launches; what each wrote down is in `manifests/`."


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:z.4g}"


def _format_interval(row: Tree) -> str:
    return "-" if row["low"] is None else f"{_format_number(row['low'])} to {_format_number(row['high'])}"


def _list_leaves(tree: Tree) -> list[tuple[str, ...]]:
    return [
        (rater, subject, kind, n)
        for rater, subjects in tree.items()
        for subject, kinds in subjects.items()
        for kind, n in kinds.items()
    ]


def _format_table(head: Sequence[str], rows: Any) -> str:
    lines = [[_format_cell(value) for value in row] for row in rows]
    if not lines:
        return "None."
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in ([_format_cell(name) for name in head], rule, *lines))


def _format_cell(value: Any) -> str:
    return _escape_markup(str(value)).replace("|", "\\|")


def _escape_markup(text: str) -> str:
    """Return people's text as one line without markup."""
    plain = " ".join(str(text).split())
    if all(letter.isalnum() or letter in "-_.@:/+ " for letter in plain):
        return plain  # A name, a hash or an id has no markup within a cell.
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#" else letter for letter in plain)


Row = Mapping[str, Any]
CountTree = dict[str, Any]


class Counts:
    """Counters that take rows one by one. `content` is a tree of names with numbers at its ends."""

    def __init__(self) -> None:
        self._tree: CountTree = {}

    def take(self, table: str, line: bytes) -> None:
        """Count one line of a table in JSON lines. Money is exact."""
        self.take_row(table, read_card_row(line) if table in COUNTED else {})

    def take_row(self, table: str, row: Row) -> None:
        self._add(1, "rows", table)
        if table in COUNTED:
            COUNTED[table].add(self, row)

    def touch(self, table: str) -> None:
        """Add a table that may have no rows, with a count of 0."""
        self._add(0, "rows", table)

    @property
    def content(self) -> CountTree:
        """The tree with sorted names, and money as text. The same rows in any order give the same tree."""
        content: CountTree = _normalise(self._tree)
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


class CountedTrial(Shape):
    condition_id: str
    wave: int
    wave_label: str | None
    status: str
    answer: Any
    truncated: Any
    error_class: str | None
    dimension: str | None
    rating: Any
    parse_error: str | None
    completed_at: str | None


class CountedAttempt(Shape):
    stage: str
    outcome: str
    error_class: str | None
    finished_at: str | None


class CountedGrading(Shape):
    grade_condition_id: str
    parse_error: str | None
    unasked: str | None


class CountedItem(Shape):
    excluded: Any
    note: str | None


class CountedRating(Shape):
    queue: str
    rated_on: str
    kind: str
    rating: Any
    excluded: Any


class CountedMoney(Shape):
    stage: str
    model: str
    attempts: int | None
    unpriced: int | None
    cost_usd: Decimal | int | None


class CountedTable(NamedTuple):
    """A table whose rows are counted: the columns that are read, and the method that counts a row."""

    shape: type[Shape]
    add: Callable[[Counts, Row], None]


COUNTED: Mapping[str, CountedTable] = {
    "trials": CountedTable(CountedTrial, Counts.trial),
    "attempts": CountedTable(CountedAttempt, Counts.attempt),
    "gradings": CountedTable(CountedGrading, Counts.grading),
    "items": CountedTable(CountedItem, Counts.item),
    "ratings": CountedTable(CountedRating, Counts.rating),
    "ledger": CountedTable(CountedMoney, Counts.money),
}


def read_card_row(line: bytes) -> Row:
    """Return the row of a line of JSON. Amounts of money are exact."""
    row: Row = json.loads(line, parse_float=Decimal)
    return row


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
