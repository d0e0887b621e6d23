"""Sampling of items from a pool of (key, category). The same pool, size and seed give the same draw.

Every strategy goes through one order: the sorted keys, shuffled by the seed. The order of the pool therefore does not
matter. A larger draw contains the smaller one, as far as each category's share allows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

Strategy = Literal["stratified", "uniform", "random", "all"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


class SamplingError(ValueError):
    """A draw that the pool does not allow. The message is for the person who requested it."""


def sample(pool: Iterable[tuple[str, str]], strategy: Strategy, n: int | None, seed: int) -> list[str]:
    """Return keys drawn from the pool, each once, in the order drawn.

    - stratified: each category in proportion to its size, at least one of each (see `stratified_shares`).
    - uniform: the same number of each category.
    - random: any n keys.
    - all: every key, sorted; n and seed are ignored.

    Raise SamplingError if the draw is impossible.
    """
    categories = _index_categories(pool)
    if strategy == "all":
        return sorted(categories)
    if n is None or not 1 <= n <= len(categories):
        raise SamplingError(f"cannot draw {n} of {len(categories)} items")
    order = _shuffle(categories, seed)
    if strategy == "random":
        return order[:n]
    sizes = Counter(categories.values())
    if strategy == "uniform":
        return _take_first(order, categories, allocate_uniformly(sizes, n))
    if strategy == "stratified":
        return _take_first(order, categories, allocate_proportionally(sizes, n))
    raise SamplingError(f"unknown strategy {strategy!r}: choose one of {', '.join(STRATEGIES)}")


def allocate_proportionally(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """Return the number of items per category: max(1, round(n * size / total)).

    If the sum exceeds n, the excess is taken, one by one, from the largest share. If the sum is below n, items are
    added, one by one, to the smallest share with items left. The alphabetically first category wins ties. Rounding is
    Python's, half to even. Raise SamplingError if n does not fit the pool.
    """
    total = sum(sizes.values())
    if n > total:
        raise SamplingError(f"cannot draw {n} of {total} items")
    if n < len(sizes):
        raise SamplingError(f"{n} items cannot hold one of each of {len(sizes)} categories")
    shares = {name: max(1, round(n * sizes[name] / total)) for name in sorted(sizes)}
    while sum(shares.values()) > n:
        shares[max(shares, key=lambda name: shares[name])] -= 1
    while sum(shares.values()) < n:
        shares[min((name for name in shares if shares[name] < sizes[name]), key=lambda name: shares[name])] += 1
    return shares


def allocate_uniformly(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """Return n / (number of categories) for each category.

    Raise SamplingError if that is not a whole number or a category has fewer items.
    """
    share, remainder = divmod(n, len(sizes))
    if remainder or not share:
        raise SamplingError(f"{n} is not a multiple of the number of categories, which is {len(sizes)}")
    too_small = [f"{name or 'no category'} ({size})" for name, size in sorted(sizes.items()) if size < share]
    if too_small:
        raise SamplingError(f"{share} of each category are needed, and some have fewer: {', '.join(too_small)}")
    return dict.fromkeys(sorted(sizes), share)


def replace_one(pool: Iterable[tuple[str, str]], selection: Sequence[str], key: str, seed: int) -> list[str]:
    """Return the chosen keys with `key` replaced, at its position, by an unchosen key of the same category."""
    categories = _index_categories(pool)
    _require_known(categories, selection)
    if key not in selection:
        raise SamplingError(f"{key} is not among the chosen items")
    selected_keys, category = set(selection), categories[key]
    order = _shuffle(categories, seed)
    candidates = [
        candidate for candidate in order if categories[candidate] == category and candidate not in selected_keys
    ]
    if not candidates:
        raise SamplingError(f"no other item of the category {category or '(none)'} is left to replace {key}")
    return [candidates[0] if old == key else old for old in selection]


def reshuffle(pool: Iterable[tuple[str, str]], selection: Sequence[str], seed: int) -> list[str]:
    """Return a new draw with the same number of each category as in `selection`."""
    categories = _index_categories(pool)
    _require_known(categories, selection)
    return _take_first(_shuffle(categories, seed), categories, Counter(categories[key] for key in selection))


def _index_categories(pool: Iterable[tuple[str, str]]) -> dict[str, str]:
    categories: dict[str, str] = {}
    for key, category in pool:
        if key in categories:
            raise SamplingError(f"the key {key} is in the pool twice")
        categories[key] = category
    return categories


def _require_known(categories: Mapping[str, str], selection: Sequence[str]) -> None:
    unknown_keys = sorted(set(selection) - set(categories))
    if unknown_keys:
        raise SamplingError(f"not in the pool: {', '.join(unknown_keys[:5])}{' ...' if len(unknown_keys) > 5 else ''}")
    if len(set(selection)) < len(selection):
        raise SamplingError("an item is chosen twice")


def _shuffle(keys: Iterable[str], seed: int) -> list[str]:
    order = sorted(keys)
    random.Random(seed).shuffle(order)  # noqa: S311 - the draw must be repeatable, not secret
    return order


def _take_first(order: Sequence[str], categories: Mapping[str, str], shares: Mapping[str, int]) -> list[str]:
    remaining = dict(shares)
    keys = []
    for key in order:
        if remaining.get(categories[key], 0):
            remaining[categories[key]] -= 1
            keys.append(key)
    return keys
