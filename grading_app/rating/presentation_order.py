"""The order in which a rater sees the things to rate. Pure functions: the same seed gives the same order."""

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
    """Keys of practice (in this order), of rated things, and of attention checks. No key occurs twice.

    `alike` maps a key to its group (the answers to one item). Keys of one group are not shown in a row.
    """

    practice: Sequence[int]
    items: Sequence[int]
    checks: Sequence[int]
    alike: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.items


def order_steps(material: SessionItems, questions: Sequence[int], *, seed: int, in_blocks: bool) -> list[Step]:
    """Return the steps: practice first, then the items in random order with the checks spread among them.

    With `in_blocks`, each question (a dimension, a criterion) has its own practice and its own order.
    Otherwise each item is rated on all questions, in the given order, before the next item.
    """
    rng = Random(seed)  # noqa: S311 - the order of a study, not a secret.
    if not in_blocks:
        return list(_cross_with_questions(_order_items(material, rng), questions))
    return [step for question in questions for step in _cross_with_questions(_order_items(material, rng), [question])]


def _order_items(material: SessionItems, rng: Random) -> list[tuple[int, Kind]]:
    practice: list[tuple[int, Kind]] = [(item, "practice") for item in material.practice]
    items = _shuffle(material.items, rng)
    if material.alike:
        items = shuffle_apart(items, material.alike, rng)
    return practice + _insert_checks(items, _shuffle(material.checks, rng), rng)


def shuffle_apart(shuffled: Sequence[int], alike: Mapping[int, int], rng: Random) -> list[int]:
    """Return the keys in another random order that separates keys of one group as far as possible.

    Each key is drawn from the remaining keys outside the last key's group. A group with more than half of the remaining
    keys comes every other time; otherwise it could not be separated.
    """
    waiting: dict[int, list[int]] = {}
    for key in reversed(shuffled):
        waiting.setdefault(alike.get(key, key), []).append(key)
    left = Counter({group: len(keys) for group, keys in waiting.items()})
    order: list[int] = []
    last: int | None = None
    while left:
        last = _next_group(left, last, rng)
        order.append(waiting[last].pop())
        left[last] -= 1
        if not left[last]:
            del left[last]
    return order


def _next_group(left: Counter[int], last: int | None, rng: Random) -> int:
    (largest, most), total = left.most_common(1)[0], left.total()
    if largest != last and 2 * most > total:
        return largest
    groups = [group for group in left if group != last] or [largest]
    return rng.choices(groups, [left[group] for group in groups])[0]


def _cross_with_questions(session: Sequence[tuple[int, Kind]], questions: Sequence[int]) -> Iterator[Step]:
    for item, kind in session:
        for question in questions:
            yield Step(item, question, kind)


def _shuffle(keys: Sequence[int], rng: Random) -> list[int]:
    """Return the keys shuffled. Sorting first makes the result independent of the row order."""
    order = sorted(keys)
    rng.shuffle(order)
    return order


def _insert_checks(items: Sequence[int], checks: Sequence[int], rng: Random) -> list[tuple[int, Kind]]:
    """Insert one check at a random position in each of equal stretches of the items, never before the first item."""
    mixed: list[tuple[int, Kind]] = [(item, "item") for item in items]
    stretch = len(items) / max(1, len(checks))
    places = [int(stretch * at + rng.random() * stretch) + 1 for at in range(len(checks))]
    for place, check in sorted(zip(places, checks, strict=True), reverse=True):
        mixed.insert(place, (check, "check"))
    return mixed


def choose_most_wanted(missing: Mapping[int, int], *, most: int | None, seed: int) -> list[int]:
    """Return the items for a new rater: at most `most`, those that miss the most ratings first, ties in random order.

    `missing` maps each item to the number of raters that it still needs. Items that need none are left out.
    """
    rng = Random(seed)  # noqa: S311 - as above.
    open_items = _shuffle([item for item, count in missing.items() if count > 0], rng)
    return sorted(open_items, key=lambda item: -missing[item])[:most]


def order_pair(pair: tuple[int, int], *, seed: int, key: int) -> tuple[int, int]:
    """Return the two answers in the order that one rater sees: random per rater and pair."""
    rng = Random(f"{seed}:{key}")  # noqa: S311 - as above.
    return pair if rng.random() < 0.5 else (pair[1], pair[0])


def find_least_used(counts: Mapping[int, int]) -> int:
    """Return the dimension with the fewest raters; on a tie, the first in the given order."""
    return min(counts, key=lambda dimension: counts[dimension])
