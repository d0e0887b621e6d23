"""The order in which a rater sees the units to rate. Pure functions: the same seed gives the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

Kind = Literal["practice", "item", "check"]


@dataclass(frozen=True, slots=True)
class Step:
    """One item or answer to rate on one question, given by its index. Steps come in session order."""

    item: int
    question: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class SessionItems:
    """Keys of practice (in this order), of rated units, and of attention checks. No key occurs twice.

    `groups` maps a key to its group (the answers to one item). Keys of one group are not shown in a row.
    """

    practice: Sequence[int]
    items: Sequence[int]
    checks: Sequence[int]
    groups: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.items


def order_steps(session_items: SessionItems, questions: Sequence[int], *, seed: int, in_blocks: bool) -> list[Step]:
    """Return the steps: practice first, then the items in random order with the checks spread among them.

    With `in_blocks`, each question (a dimension, a criterion) has its own practice and its own order.
    Otherwise each item is rated on all questions, in the given order, before the next item.
    """
    rng = Random(seed)  # noqa: S311 - the order of a study, not a secret.
    if not in_blocks:
        return list(_cross_with_questions(_order_items(session_items, rng), questions))
    return [
        step for question in questions for step in _cross_with_questions(_order_items(session_items, rng), [question])
    ]


def _order_items(session_items: SessionItems, rng: Random) -> list[tuple[int, Kind]]:
    practice: list[tuple[int, Kind]] = [(item, "practice") for item in session_items.practice]
    items = _shuffle(session_items.items, rng)
    if session_items.groups:
        items = shuffle_with_spacing(items, session_items.groups, rng)
    # Insert one check at a random position in each of equal segments of the items, never before the first item.
    checks = _shuffle(session_items.checks, rng)
    mixed: list[tuple[int, Kind]] = [(item, "item") for item in items]
    segment = len(items) / max(1, len(checks))
    positions = [int(segment * index + rng.random() * segment) + 1 for index in range(len(checks))]
    for position, check in sorted(zip(positions, checks, strict=True), reverse=True):
        mixed.insert(position, (check, "check"))
    return practice + mixed


def shuffle_with_spacing(shuffled: Sequence[int], groups: Mapping[int, int], rng: Random) -> list[int]:
    """Return the keys in another random order that separates keys of one group as far as possible.

    Each key is drawn from the remaining keys outside the last key's group. A group with more than half of the remaining
    keys comes every other time; otherwise it could not be separated.
    """
    keys_by_group: dict[int, list[int]] = {}
    for key in reversed(shuffled):
        keys_by_group.setdefault(groups.get(key, key), []).append(key)
    remaining = Counter({group: len(keys) for group, keys in keys_by_group.items()})
    order: list[int] = []
    last: int | None = None
    while remaining:
        last = _choose_next_group(remaining, last, rng)
        order.append(keys_by_group[last].pop())
        remaining[last] -= 1
        if not remaining[last]:
            del remaining[last]
    return order


def _choose_next_group(remaining: Counter[int], last: int | None, rng: Random) -> int:
    (largest, count), total = remaining.most_common(1)[0], remaining.total()
    if largest != last and 2 * count > total:
        return largest
    groups = [group for group in remaining if group != last] or [largest]
    return rng.choices(groups, [remaining[group] for group in groups])[0]


def _cross_with_questions(session: Sequence[tuple[int, Kind]], questions: Sequence[int]) -> Iterator[Step]:
    for item, kind in session:
        for question in questions:
            yield Step(item, question, kind)


def _shuffle(keys: Sequence[int], rng: Random) -> list[int]:
    """Return the keys shuffled. Sorting first makes the result independent of the row order."""
    order = sorted(keys)
    rng.shuffle(order)
    return order


def choose_by_demand(missing: Mapping[int, int], *, limit: int | None, seed: int) -> list[int]:
    """Return the items for a new rater: those with the most missing ratings first, ties in random order.

    `missing` maps each item to the number of raters that it still needs. Items that need no rater are left out.
    """
    rng = Random(seed)  # noqa: S311 - as above.
    open_items = _shuffle([item for item, count in missing.items() if count > 0], rng)
    return sorted(open_items, key=lambda item: -missing[item])[:limit]


def order_pair(pair: tuple[int, int], *, seed: int, key: int) -> tuple[int, int]:
    """Return the two answers in the order that one rater sees: random per rater and pair."""
    rng = Random(f"{seed}:{key}")  # noqa: S311 - as above.
    return pair if rng.random() < 0.5 else (pair[1], pair[0])


def find_least_used(counts: Mapping[int, int]) -> int:
    """Return the dimension with the fewest raters; on a tie, the first in the given order."""
    return min(counts, key=lambda dimension: counts[dimension])
