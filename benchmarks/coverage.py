"""The simulated coverage of each interval on a page: `python benchmarks/coverage.py [SAMPLES]`.

It prints the table that `docs/statistics.md` holds. Each cell is the lowest coverage of 95 % intervals over the TRUTHS
of its method, with fixed seeds. With 1,000 samples its standard error is .007 at .95. The intervals come from the
functions that the pages call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from evalsite.lib.stats.t_interval import bounded_mean
from grading_app.statistics.alpha import krippendorff_alpha
from grading_app.statistics.bootstrap import bootstrap
from grading_app.statistics.clusters import ClusterSums
from grading_app.statistics.concordance import lins_concordance
from grading_app.statistics.correlation import pearson
from grading_app.statistics.intervals import estimate_mean
from grading_app.statistics.judge_bias import judge_bias
from grading_app.statistics.kappas import cohens_kappa
from grading_app.statistics.paired import FEW, change_of
from grading_app.statistics.ratings import ratings_of
from grading_app.statistics.reference import spearman

Draw = np.random.Generator
Ends = tuple[float | None, float | None]
ITEMS, REPETITIONS, SAMPLES, SEED = (10, 40, 200), (1, 20), 1000, 20260301
SHARES = (0.5, 0.7, 0.9, 0.95, 0.99)
CORRELATIONS = (0.0, 0.1, 0.3, 0.6)
SCALE = np.arange(1, 8)
# The share of each rating from 1 to 7: spread around the middle, at both ends, skewed, and nearly all alike.
SHAPES = ((0.02, 0.08, 0.2, 0.4, 0.2, 0.08, 0.02), (0.5, 0, 0, 0, 0, 0, 0.5), (0.7, 0.15, 0.07, 0.04, 0.02, 0.01, 0.01),
          (0, 0, 0, 0, 0, 0.05, 0.95))  # fmt: skip
CHANGES = ((0.02, 0.0), (0.1, 0.02), (0.3, 0.05), (0.2, 0.2))


def sums_of(values: Any) -> ClusterSums:
    """Return the sums of a table of items x repetitions."""
    items, each = values.shape
    totals = values.sum(axis=1)
    squares = float((values**2).sum())
    total = float(totals.sum())
    return ClusterSums(items * each, total, squares, items, float(totals @ totals), each * total, items * each**2)


def share(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    """Yield each truth with a function that draws a sample and returns its interval."""
    for p in SHARES:
        for alike in CORRELATIONS if each > 1 else (0.0,):

            def once(p: float = p, alike: float = alike) -> Ends:
                more = 1 / alike - 1 if alike else 0.0
                chances = draw.beta(p * more, (1 - p) * more, items) if alike else np.full(items, p)
                found = estimate_mean(sums_of((draw.random((items, each)) < chances[:, None]).astype(float)), (0, 1))
                return (found.low, found.high) if found else (None, None)

            yield p, once


def rating(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    for shape in SHAPES:

        def once(shape: tuple[float, ...] = shape) -> Ends:
            found = estimate_mean(sums_of(_ratings(draw, shape, items, each)), (1, 7))
            return (found.low, found.high) if found else (None, None)

        yield float(SCALE @ shape), once


def rated_point(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    for shape in SHAPES:

        def once(shape: tuple[float, ...] = shape) -> Ends:
            means = _ratings(draw, shape, items, each).mean(axis=1)
            found = bounded_mean(items, float(means.mean()), float(means.std(ddof=1)), (1, 7))
            return found.low, found.high

        yield float(SCALE @ shape), once


def changed_share(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    for gained, lost in CHANGES:

        def once(gained: float = gained, lost: float = lost) -> Ends:
            kinds = draw.choice([1.0, -1.0, 0.0], size=items, p=[gained, lost, 1 - gained - lost])
            # An item that changes does so in all repetitions; the others are right half of the time.
            noise = (draw.binomial(each, 0.5, items) - draw.binomial(each, 0.5, items)) / each if each > 1 else 0.0
            return _change(np.where(kinds, kinds, noise), 1.0, once=each == 1)

        yield gained - lost, once


def changed_rating(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    for shift, spread in ((0.0, 0.0), (0.5, 0.5), (1.0, 1.5)):

        def once(shift: float = shift, spread: float = spread) -> Ends:
            return _change(draw.normal(shift, np.sqrt(spread**2 + 0.5 / each), items), 6.0)

        yield shift, once


def bias(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    def once() -> Ends:
        judge = draw.normal(0.3, 0.5, (items, 1)) + draw.normal(0, 0.5, (items, each))
        table = np.stack([judge.ravel(), np.zeros(items * each)], axis=1)
        found = judge_bias(ratings_of(table), 0, {unit: unit // each for unit in range(items * each)}).result()
        return found.low, found.high

    yield 0.3, once


def alpha(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    for noise in (1.0, 0.5):

        def once(noise: float = noise) -> Ends:
            table = draw.standard_normal((items, 1)) + noise * draw.standard_normal((items, 3))
            found = bootstrap(krippendorff_alpha(ratings_of(table), "interval"), seed=1, resamples=300)
            return found.low, found.high

        yield 1 / (1 + noise**2), once


def kappa(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    for agreed in (0.3, 0.7):

        def once(agreed: float = agreed) -> Ends:
            one, other = ((draw.random(items) < 0.6).astype(float) for _ in range(2))
            table = np.stack([one, np.where(draw.random(items) < agreed, one, other)], axis=1)
            found = bootstrap(cohens_kappa(ratings_of(table)), seed=1, resamples=300)
            return found.low, found.high

        yield agreed, once


def lin(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    def once() -> Ends:
        table = draw.standard_normal((items, 1)) + 0.5 * draw.standard_normal((items, 2))
        found = bootstrap(lins_concordance(ratings_of(table)), seed=1, resamples=300)
        return found.low, found.high

    yield 0.8, once


def correlation(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    for skewed in (False, True):

        def once(skewed: bool = skewed) -> Ends:
            x, e = (draw.exponential(1, items) if skewed else draw.standard_normal(items) for _ in range(2))
            found = pearson(list(x), list(0.6 * x + 0.8 * e))
            return (found.low, found.high) if found else (None, None)

        yield 0.6, once


def rank_correlation(draw: Draw, items: int, each: int) -> Iterator[tuple[float, Callable[[], Ends]]]:
    def once() -> Ends:
        x, e = draw.standard_normal(items), draw.standard_normal(items)
        found = spearman(x, 0.6 * x + 0.8 * e)
        return found[1] if found and found[1] else (None, None)

    yield 6 / np.pi * np.arcsin(0.3), once


# Name in the document -> truths and intervals; True if repetitions matter.
METHODS: dict[str, tuple[Callable[[Draw, int, int], Iterator[tuple[float, Callable[[], Ends]]]], bool]] = {
    "share of right answers": (share, True),
    "mean rating on 1 to 7": (rating, True),
    "rated point": (rated_point, True),
    "change of a share": (changed_share, True),
    "change of a rating": (changed_rating, True),
    "judge's bias": (bias, True),
    "Krippendorff's alpha": (alpha, False),
    "Cohen's kappa": (kappa, False),
    "Lin's concordance": (lin, False),
    "Pearson's r": (correlation, False),
    "Spearman's rho": (rank_correlation, False),
}


def coverage(name: str, items: int, each: int, samples: int = SAMPLES) -> float:
    """Return the lowest coverage over the truths of a method. Samples without an interval do not count."""
    method, _ = METHODS[name]
    draw = np.random.default_rng([SEED, items, each])
    rates: list[float] = []
    for truth, once in method(draw, items, each):
        ends = [once() for _ in range(samples)]
        given = [(low, high) for low, high in ends if low is not None and high is not None]
        rates.append(float(np.mean([low - 1e-9 <= truth <= high + 1e-9 for low, high in given])) if given else np.nan)
    return float(np.nanmin(rates))


def row_of(name: str, samples: int = SAMPLES) -> str:
    """Return the row of the document's table, in per cent."""
    repeated = METHODS[name][1]
    cells = [
        f"{100 * coverage(name, items, each, samples):.1f}" if each == 1 or repeated else "-"
        for items in ITEMS
        for each in REPETITIONS
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _ratings(draw: Draw, shape: tuple[float, ...], items: int, each: int) -> Any:
    """Return ratings of which an item keeps its own value seven times in ten."""
    own = draw.choice(SCALE, p=shape, size=(items, 1))
    others = draw.choice(SCALE, p=shape, size=(items, each))
    return np.where(draw.random((items, each)) < 0.7, own, others).astype(float)


def _change(differences: Any, span: float, *, once: bool = False) -> Ends:
    n = len(differences)
    few = differences.tolist() if n <= FEW else ()
    sd = float(differences.std(ddof=1))
    found = change_of(n, float(differences.mean()), sd, few, span=span, once=once)
    return (found.low, found.high) if found else (None, None)


def main() -> None:
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES
    for name in METHODS:
        print(row_of(name, samples), flush=True)


if __name__ == "__main__":
    main()
