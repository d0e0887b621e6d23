"""Two conditions compared over the items that both have scores of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evalsite.lib.stats.wilson import normal_quantile
from grading_app.statistics.intervals import Bounds
from grading_app.statistics.item_scores import Floats, ItemScores
from grading_app.statistics.paired import FEW, Change, estimate_change

ALIKE = 1e-9


@dataclass(frozen=True, slots=True)
class TwoByTwo:
    """Items by right and wrong under two conditions, A and B.

    p: McNemar's exact test. odds_ratio: gained / lost; None if nothing was lost. low, high: its exact interval; `high`
    is None without an upper limit.
    """

    both_right: int
    gained: int  # Wrong under A, right under B.
    lost: int  # Right under A, wrong under B.
    both_wrong: int
    p: float
    odds_ratio: float | None
    low: float
    high: float | None

    @property
    def n(self) -> int:
        return self.both_right + self.gained + self.lost + self.both_wrong


@dataclass(frozen=True, slots=True)
class ConditionPair:
    """The comparison of condition b with condition a over their common items.

    mean_a, mean_b: means of item means. change: b minus a, with interval and test. wins, losses, ties: items on which b
    is higher, lower, equal. effect: the mean difference over the SD of the differences; None without variance.
    two_by_two: for scores of 0 and 1 with one answer per item. only_a, only_b: items that only one of them has.
    """

    a: int
    b: int
    items: int
    mean_a: float
    mean_b: float
    change: Change
    wins: int
    losses: int
    ties: int
    effect: float | None
    two_by_two: TwoByTwo | None
    only_a: int
    only_b: int


def compare_conditions(scores: ItemScores, a: int, b: int, bounds: Bounds | None = None) -> ConditionPair | None:
    """Return the comparison of b with a; None without a common item. Raise KeyError for an unknown condition."""
    one, other = scores.find_column(a), scores.find_column(b)
    both, apart = scores.pair_conditions(a, b)
    n = len(apart)
    if not n:
        return None
    mean_a, mean_b = scores.mean[both, one], scores.mean[both, other]
    once = scores.is_binary and bool((scores.n[both][:, [one, other]] == 1).all())
    span = 1.0 if scores.is_binary else bounds[1] - bounds[0] if bounds else None
    sd = float(apart.std(ddof=1)) if n > 1 else None
    change = estimate_change(n, float(apart.mean()), sd, list(apart) if n <= FEW else (), span=span, once=once)
    if change is None:
        return None
    return ConditionPair(
        a,
        b,
        n,
        float(mean_a.mean()),
        float(mean_b.mean()),
        change,
        int((apart > ALIKE).sum()),
        int((apart < -ALIKE).sum()),
        int((np.abs(apart) <= ALIKE).sum()),
        float(apart.mean()) / sd if sd else None,
        cross_tabulate(mean_a, mean_b) if once else None,
        int(((scores.n[:, one] > 0) & ~both).sum()),
        int(((scores.n[:, other] > 0) & ~both).sum()),
    )


def cross_tabulate(a: Floats, b: Floats) -> TwoByTwo:
    """Return the table of two columns of 0 and 1, item by item."""
    gained, lost = int(((a == 0) & (b == 1)).sum()), int(((a == 1) & (b == 0)).sum())
    p, (low, high) = exact_mcnemar_p(gained, lost), odds_ratio_interval(gained, lost)
    right, wrong = int(((a == 1) & (b == 1)).sum()), int(((a == 0) & (b == 0)).sum())
    return TwoByTwo(right, gained, lost, wrong, p, gained / lost if lost else None, low, high)


def exact_mcnemar_p(gained: int, lost: int) -> float:
    """Return the two-sided p of the binomial test that gains and losses are equally likely.

    Q. McNemar (1947), Psychometrika 12, 153-157, with the exact distribution. Raise ValueError for negative counts.
    """
    from scipy.special import bdtr

    if min(gained, lost) < 0:
        raise ValueError(f"no counts: {gained} gained, {lost} lost")
    changed = gained + lost
    return min(1.0, 2 * float(bdtr(min(gained, lost), changed, 0.5))) if changed else 1.0


def odds_ratio_interval(gained: int, lost: int, confidence: float = 0.95) -> tuple[float, float | None]:
    """Return the exact interval of the conditional odds ratio gained / lost; None without an upper limit.

    From the interval of C. J. Clopper & E. S. Pearson (1934), Biometrika 26, 404-413, of gained among all changes.
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(gained, lost + 1, tail)) if gained else 0.0
    high = float(betaincinv(gained + 1, lost, 1 - tail)) if lost else 1.0
    return low / (1 - low) if low < 1 else math.inf, high / (1 - high) if high < 1 else None


def wilcoxon_p(differences: Floats) -> float | None:
    """Return the two-sided p of Wilcoxon's signed-rank test, zeros dropped; None if all differences are zero.

    The normal approximation corrected for ties from 50 differences on, and the exact distribution below without ties,
    as in scipy. scipy.stats is loaded: call it in a worker or a command.
    """
    from scipy.stats import wilcoxon

    kept = np.asarray(differences)[np.abs(differences) > ALIKE]
    return float(wilcoxon(kept).pvalue) if len(kept) else None


def permutation_p(differences: Floats, seed: int = 0, resamples: int = 10_000) -> float:
    """Return the two-sided p of the sign-flip permutation test over items, from random sign patterns.

    The observed pattern counts as one of them, so p is never zero: B. Phipson & G. K. Smyth (2010), Statistical
    Applications in Genetics and Molecular Biology 9, article 39. The same seed gives the same p.
    """
    return permutation_ps([differences], seed, resamples)[0]


def permutation_ps(columns: Sequence[Floats], seed: int = 0, resamples: int = 10_000) -> list[float]:
    """Return `permutation_p` of each of these differences. Those of equal length share their random signs."""
    found = [1.0] * len(columns)
    for n in {len(one) for one in columns}:
        at = [place for place, one in enumerate(columns) if len(one) == n]
        values = np.column_stack([np.asarray(columns[place], dtype=np.float64) for place in at])
        observed, random = np.abs(values.sum(axis=0)) * (1 - ALIKE), np.random.default_rng(seed)
        extreme, left = np.ones(len(at)), resamples
        while left:
            rows = min(left, max(1, 2_000_000 // max(1, n)))
            signs = random.integers(0, 2, (rows, n), dtype=np.int8) * 2 - 1
            extreme += (np.abs(signs.astype(np.float64) @ values) >= observed).sum(axis=0)
            left -= rows
        for place, count in zip(at, extreme.tolist(), strict=True):
            found[place] = count / (resamples + 1)
    return found


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """Return the adjusted p-values that bound the false discovery rate, in the order of `ps`.

    Y. Benjamini & Y. Hochberg (1995), Journal of the Royal Statistical Society B 57, 289-300: the i-th smallest of m is
    multiplied by m / i, and is at most the adjusted value of the next larger one.
    """
    order = sorted(range(len(ps)), key=ps.__getitem__, reverse=True)
    adjusted, lowest = [0.0] * len(ps), 1.0
    for passed, at in enumerate(order):
        lowest = min(lowest, ps[at] * len(ps) / (len(ps) - passed))
        adjusted[at] = lowest
    return adjusted


def newcombe_interval(right_a: int, n_a: int, right_b: int, n_b: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of the difference of two independent shares, b minus a: Newcombe's hybrid score interval.

    R. G. Newcombe (1998), Statistics in Medicine 17, 873-890, method 10.
    """
    z = normal_quantile(confidence)

    def ends(right: int, n: int) -> tuple[float, float, float]:
        share, shrink = right / n, 1 + z * z / n
        center = (share + z * z / (2 * n)) / shrink
        reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / shrink
        return share, center - reach, center + reach

    a, low_a, high_a = ends(right_a, n_a)
    b, low_b, high_b = ends(right_b, n_b)
    below = math.hypot(b - low_b, high_a - a)
    above = math.hypot(high_b - b, a - low_a)
    return b - a - below, b - a + above
