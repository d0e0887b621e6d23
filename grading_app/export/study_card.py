"""The study card: a description of the tables beside it, in Markdown. Pure: facts and counts to text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Tree = Mapping[str, Any]


def study_card(facts: Tree, counts: Tree) -> str:
    """Return the study card.

    facts: about the site when the snapshot was made. counts: from the snapshot's tables (`card_counts.Counts`).
    """
    parts = (_head, _dataset, _asked, _numbers, _results, _failures, _money, _ratings, _grading, _software)
    return "\n\n".join(text for part in parts for text in part(facts, counts)) + "\n"


def _head(facts: Tree, counts: Tree) -> Iterator[str]:
    made = facts["snapshot"]
    yield f"# {_inline(facts['title'] or facts['experiment'])}"
    label = f" `{_inline(made['label'])}`" if made["label"] else ""
    yield f"Snapshot{label} of the experiment `{facts['experiment']}`, made {made['at']} by {_inline(made['by'])}."
    yield from [_inline(text) for text in (made["reason"], facts["description"]) if text]
    when = counts.get("when", {})
    yield _table(("what", "first", "last"), [(name, *when[name]) for name in sorted(when)])


def _dataset(facts: Tree, counts: Tree) -> Iterator[str]:
    found = facts["dataset"]
    yield "## The items"
    yield _table(
        ("", ""), [(name, found[name] or "not said") for name in ("name", "title", "source", "licence", "hash")]
    )
    items = counts.get("items", {})
    yield f"{items.get('active', 0)} active items, {items.get('excluded', 0)} excluded."
    if excluded := counts.get("exclusions"):
        yield _table(("excluded because", "items"), excluded.items())


def _asked(facts: Tree, counts: Tree) -> Iterator[str]:
    yield "## What was asked of whom"
    yield f"{facts['samples']} repetitions of each cell. What was asked is in `conditions/` and `design.yaml`."
    yield _table(
        ("condition", "stage", "model", "served as", "endpoint"),
        [(one["id"], one["stage"], one["model"], one["served_as"], one["endpoint"]) for one in facts["conditions"]],
    )


def _numbers(facts: Tree, counts: Tree) -> Iterator[str]:
    yield "## How many"
    yield _table(("table", "rows"), counts["rows"].items())
    kinds = ("done", "failed", "cancelled", "pending", "running", "empty", "truncated")
    rows = [
        (condition, wave, *(found.get(kind, 0) for kind in kinds))
        for condition, waves in counts.get("trials", {}).items()
        for wave, found in waves.items()
    ]
    yield _table(("condition", "wave", *kinds), rows)


def _results(facts: Tree, counts: Tree) -> Iterator[str]:
    yield "## Results"
    found = facts["results"]
    if not found["scores"]:
        yield "No answer has a rating or a score."
        return
    yield _table(
        ("measure", "condition", "scores", "items", "no score", "mean or share", "SE", "95 % interval", "method"),
        [
            (one["measure"], one["condition"], one["n"], one["items"], one["unread"], _number(one["mean"]),
             _number(one["se"]), _ends(one), one["method"] or one["reason"])
            for one in found["scores"]
        ],
    )  # fmt: skip
    if found["norms"]:
        yield "Means by item compared with the dataset's norms:"
        yield _table(
            ("dimension", "condition", "items", "r", "95 % interval", "mean difference", "method"),
            [
                (one["dimension"], one["condition"], one["items"], _number(one["r"]), _ends(one),
                 _number(one["difference"]), one["method"] or one["reason"])
                for one in found["norms"]
            ],
        )  # fmt: skip


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:z.4g}"


def _ends(one: Tree) -> str:
    return "-" if one["low"] is None else f"{_number(one['low'])} to {_number(one['high'])}"


def _failures(facts: Tree, counts: Tree) -> Iterator[str]:
    yield "## Errors"
    yield _table(("trials that failed, by class", "trials"), counts.get("failed", {}).items())
    yield _table(("calls with an error, by class", "calls"), counts.get("errors of calls", {}).items())
    calls = counts.get("calls", {})
    rows = [(stage, outcome, n) for stage, outcomes in calls.items() for outcome, n in outcomes.items()]
    yield _table(("stage", "outcome", "calls"), rows)


def _money(facts: Tree, counts: Tree) -> Iterator[str]:
    yield "## Costs"
    yield _table(
        ("stage", "model", "calls", "of unknown cost", "paid, US dollars"),
        [
            (stage, model, found["attempts"], found["unpriced"], found["paid_usd"])
            for stage, models in counts.get("money", {}).items()
            for model, found in models.items()
        ],
    )


def _ratings(facts: Tree, counts: Tree) -> Iterator[str]:
    """Yield the counts of ratings, if the study has any."""
    by_models, by_people = counts.get("ratings", {}), counts.get("people", {})
    if by_models or by_people:
        yield "## Ratings"
    if by_models:
        yield _table(("rated by the model", "on", "", "answers"), _leaves(by_models))
    if by_people:
        yield _table(("rated by people of the queue", "on", "kind", "ratings"), _leaves(by_people))


def _leaves(tree: Tree) -> list[tuple[str, ...]]:
    return [(one, on, kind, n) for one, of in tree.items() for on, found in of.items() for kind, n in found.items()]


def _grading(facts: Tree, counts: Tree) -> Iterator[str]:
    if not counts.get("gradings") and (counts.get("ratings") or counts.get("people")):
        return  # In a rating study the ratings are the scores: nobody grades them.
    yield "## Grades"
    rows = [(by, kind, n) for by, found in counts.get("gradings", {}).items() for kind, n in found.items()]
    yield _table(("graded by", "", "answers"), rows)
    yield f"How far those who graded agree: {facts['agreement']} on the site, or computed from `tables/gradings.jsonl`."


def _software(facts: Tree, counts: Tree) -> Iterator[str]:
    yield "## Software"
    made = facts["evalsite"]
    named = {"evalsite": made["version"], "commit of evalsite": made["commit"] or "not known"}
    yield _table(("package", "version"), {**named, **facts["packages"]}.items())
    yield f"{len(facts['manifests'])} launches; what each wrote down is in `manifests/`."


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [[_cell(value) for value in row] for row in rows]
    if not lines:
        return "None."
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in ([_cell(name) for name in head], rule, *lines))


def _cell(value: Any) -> str:
    return _inline(str(value)).replace("|", "\\|")


def _inline(text: str) -> str:
    """Return people's text as one line without markup."""
    plain = " ".join(str(text).split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#" and not _is_name(plain) else letter for letter in plain)


def _is_name(text: str) -> bool:
    """Return True for a name, a hash or an id. No character of it is markup within a cell."""
    return all(letter.isalnum() or letter in "-_.@:/+ " for letter in text)
