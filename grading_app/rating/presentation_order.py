"""In which order one rater meets what is rated. Pure: keys in, steps out; the same seed gives the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

Kind = Literal["practice", "item", "check"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to rate, an item or an answer, on one aspect, by its place. In the order of the session."""

    item: int
    aspect: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Material:
    """Keys: for practice (in this order), to be rated, and to check attention. No key comes twice.

    alike: a key's group, where several belong together (the answers to one item); they are kept apart.
    """

    practice: Sequence[int]
    items: Sequence[int]
    checks: Sequence[int]
    alike: Mapping[int, int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.items


def steps(material: Material, aspects: Sequence[int], *, seed: int, in_blocks: bool) -> list[Step]:
    """Practice first, then items in a shuffled order with the checks spread among them.

    In blocks, each aspect (a dimension, a criterion) has its practice and an order of its own; otherwise each item is
    rated on all of them, in the order given, before the next one.
    """
    rng = Random(seed)  # noqa: S311 - the order of a study, not a secret.
    if not in_blocks:
        return list(_crossed(_session(material, rng), aspects))
    return [step for aspect in aspects for step in _crossed(_session(material, rng), [aspect])]


def _session(material: Material, rng: Random) -> list[tuple[int, Kind]]:
    practice: list[tuple[int, Kind]] = [(item, "practice") for item in material.practice]
    items = _shuffled(material.items, rng)
    if material.alike:
        items = kept_apart(items, material.alike, rng)
    return practice + _mixed(items, _shuffled(material.checks, rng), rng)


def kept_apart(shuffled: Sequence[int], alike: Mapping[int, int], rng: Random) -> list[int]:
    """The same keys in another random order in which no two of one group are neighbours, as far as that can be.

    One after the other is drawn from all that are left, but not from the last one's group; a group that has more left
    than all others together comes every other time, or could never be kept apart.
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


def _crossed(session: Sequence[tuple[int, Kind]], aspects: Sequence[int]) -> Iterator[Step]:
    for item, kind in session:
        for aspect in aspects:
            yield Step(item, aspect, kind)


def _shuffled(keys: Sequence[int], rng: Random) -> list[int]:
    """Sorted first: the order in which rows happened to come must not matter."""
    order = sorted(keys)
    rng.shuffle(order)
    return order


def _mixed(items: Sequence[int], checks: Sequence[int], rng: Random) -> list[tuple[int, Kind]]:
    """One check at a random place in each of as many equal stretches of the items; none before the first item."""
    mixed: list[tuple[int, Kind]] = [(item, "item") for item in items]
    stretch = len(items) / max(1, len(checks))
    places = [int(stretch * at + rng.random() * stretch) + 1 for at in range(len(checks))]
    for place, check in sorted(zip(places, checks, strict=True), reverse=True):
        mixed.insert(place, (check, "check"))
    return mixed


def most_wanted(missing: Mapping[int, int], *, most: int | None, seed: int) -> list[int]:
    """Which items a new rater gets: those that miss the most ratings first, at most `most`; ties in a random order.

    missing: how many raters each item still wants; an item that wants none is given to nobody.
    """
    rng = Random(seed)  # noqa: S311 - as above.
    open_items = _shuffled([item for item, count in missing.items() if count > 0], rng)
    return sorted(open_items, key=lambda item: -missing[item])[:most]


def shown_first(pair: tuple[int, int], *, seed: int, key: int) -> tuple[int, int]:
    """Two answers in the order in which one rater sees them: at random for each rater and pair."""
    rng = Random(f"{seed}:{key}")  # noqa: S311 - as above.
    return pair if rng.random() < 0.5 else (pair[1], pair[0])


def least_used(counts: Mapping[int, int]) -> int:
    """The dimension that the fewest raters have; the first of those in the order given."""
    return min(counts, key=lambda dimension: counts[dimension])
