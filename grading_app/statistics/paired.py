"""Paired tests: the mean difference of two scores of the same items, with its interval and p.

Where Student's interval cannot be trusted, Gaffke's of a bounded mean or Tango's of a difference of shares replaces it.

numpy and scipy are imported inside the functions, so that pages without numbers do not load them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evalsite.lib.stats import normal_quantile, student_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]

MAX_EXACT_ITEMS = 16
"""Up to this number of items, the interval inverts the sign-flip test over all 32,768 patterns of signs."""
MIN_CHANGED = 25
"""Below this number of items that differ, the test is exact: asymptotic tests need more (McNemar's, Student's)."""
SIGN_FLIPS, STUDENT, MCNEMAR = "sign flips", "paired t", "McNemar's score test"
EXACT_MCNEMAR = "exact McNemar test"
STUDENT_INTERVAL, TANGO_INTERVAL = "Student's t", "Tango's score interval"
FLIP_INTERVAL, BOUNDED_INTERVAL = "inverted sign-flip test", "Gaffke's bounded interval"
TOLERANCE = 1e-9  # A spread below this share of the mean is rounding error, so the values are equal.
NO_SPREAD = "all differences are equal, so their spread is unknown"
FEW_CHANGED = "most items do not differ, and the scale is unknown"
TOO_FEW = "an interval needs six items"


@dataclass(frozen=True, slots=True)
class PairedChange:
    """The mean of n differences, one for each item.

    p: the two-sided p of `test` that there is no change. t, df: of the paired t-test; None for another test. For a
    single item, se, interval and p are None and `test` is empty. method: the name of the interval. Without an interval,
    `reason` says why. The interval contains 0 if p is above 1 - confidence. If p is lower, 0 is at most an end of it.
    """

    n: int
    mean: float
    se: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    test: str = ""
    reason: str = ""
    method: str = ""
    t: float | None = None
    df: int | None = None

    @property
    def test_text(self) -> str:
        """The test's name, with t and its degrees of freedom if it has them; the reason if there is no test."""
        if self.t is None:
            return self.test or self.reason
        return f"{self.test}, t({self.df}) = {self.t:.2f}".replace("-", "−")

    def verdict(self, level: float) -> int:
        """Return 1 or -1 if the mean is significantly above or below zero, else 0."""
        return 0 if self.p is None or self.p >= level else 1 if self.mean > 0 else -1

    @property
    def p_or_one(self) -> float:
        """The p, or 1 without a test, for corrections over several tests."""
        return 1.0 if self.p is None else self.p


def describe_methods(changes: Iterable[PairedChange]) -> str:
    """Return a sentence that names the methods of these changes' intervals; "" without an interval."""
    methods = dict.fromkeys(change.method for change in changes if change.method)
    return f"Intervals: {', '.join(methods)}." if methods else ""


def estimate_change(
    n: int,
    mean: float,
    sd: float | None,
    changed: Sequence[float] | None = None,
    confidence: float = 0.95,
    *,
    span: float | None = None,
    is_single_answer: bool = False,
) -> PairedChange | None:
    """Return the change from the mean and standard deviation (n - 1) of the items' differences; None for no items.

    Each item enters once, with the difference of its two means over repetitions. The standard error is sd / sqrt(n).
    changed: the differences that are not zero, if fewer than MIN_CHANGED items differ; else None.
    span: the length of the scale; None if it is unknown. is_single_answer: all differences are -1, 0 or 1.

    - Single answers on a scale of length 1: the exact McNemar test if fewer than MIN_CHANGED items differ, else
      McNemar's score test. The interval is Tango's.
    - If fewer than MIN_CHANGED items and less than half of all differ, if all differ by the same amount, with fewer
      than six items, and for shares of up to MAX_EXACT_ITEMS items: the exact sign-flip test, with Gaffke's interval of
      a mean within the scale. Without a scale, there is no interval.
    - Up to MAX_EXACT_ITEMS items: the exact sign-flip test, and the interval that inverts it.
    - Else the paired t-test and its interval, as scipy.stats.ttest_rel computes them.

    An interval other than Student's ends at 0 where it would contradict its exact test.
    Raise ValueError if n is at most MAX_EXACT_ITEMS without `changed`, or if `changed` has MIN_CHANGED values or more.
    """
    if n < 2 or sd is None:
        return PairedChange(n, mean) if n else None
    if changed is None and n <= MAX_EXACT_ITEMS:
        raise ValueError(f"a test of {n} items needs their differences")
    if changed is not None and not len(changed) <= min(n, MIN_CHANGED - 1):
        raise ValueError(f"{len(changed)} of {n} differences are not zero: pass at most {MIN_CHANGED - 1}")
    if span is not None and max(abs(mean), *map(abs, changed or (0.0,))) > span * (1 + TOLERANCE):
        span = None  # These scores are not on this scale.
    if is_single_answer and span == 1:
        return _estimate_single_answers(n, mean, sd, confidence)
    is_short_share = span == 1 and n <= MAX_EXACT_ITEMS
    few_changed = changed is not None and (len(changed) < n / 2 or n < 6 or is_short_share)
    if sd <= TOLERANCE * abs(mean) or few_changed:
        return _estimate_few_changes(n, mean, sd, changed, span, confidence)
    se = sd / math.sqrt(n)
    if changed is not None and n <= MAX_EXACT_ITEMS:
        ends = sign_flip_interval([*changed, *[0.0] * (n - len(changed))], confidence)
        return PairedChange(n, mean, se, *ends, sign_flip_p(changed), SIGN_FLIPS, method=FLIP_INTERVAL)
    from scipy.special import stdtr  # Not scipy.stats, which costs a web process 70 MB.

    t, reach = mean / se, student_quantile(confidence, n - 1) * se
    low, high = (mean - reach, mean + reach) if span is None else (max(-span, mean - reach), min(span, mean + reach))
    return PairedChange(
        n, mean, se, low, high, float(2 * stdtr(n - 1, -abs(t))), STUDENT, method=STUDENT_INTERVAL, t=t, df=n - 1
    )


def _estimate_single_answers(n: int, mean: float, sd: float, confidence: float) -> PairedChange:
    net, changed = n * mean, (n - 1) * sd**2 + n * mean**2
    gained, lost = round((changed + net) / 2), round((changed - net) / 2)
    is_exact = gained + lost < MIN_CHANGED
    p = exact_mcnemar_p(gained, lost) if is_exact else mcnemar_p(gained, lost)
    ends = _end_at_zero(tango_interval(gained, lost, n, confidence), mean, p, confidence)
    test = EXACT_MCNEMAR if is_exact else MCNEMAR
    return PairedChange(n, mean, sd / math.sqrt(n), *ends, p, test, method=TANGO_INTERVAL)


def _estimate_few_changes(
    n: int, mean: float, sd: float, changed: Sequence[float] | None, span: float | None, confidence: float
) -> PairedChange:
    """Return the change if few items differ, or all by the same amount: the spread then says little of other items."""
    se, is_constant = sd / math.sqrt(n), sd <= TOLERANCE * abs(mean)
    if is_constant and mean:
        p, values, counts = 2.0 ** (1 - n), [mean], [n]  # All signs are the same in one of 2^(n - 1) pairs of patterns.
    else:
        p, values = sign_flip_p(changed or ()), [0.0, *(changed or ())]
        counts = [n - len(values) + 1, *[1] * (len(values) - 1)]
    if span is None:
        reason = NO_SPREAD if is_constant else TOO_FEW if n < 6 else FEW_CHANGED
        return PairedChange(n, mean, se, p=p, test=SIGN_FLIPS, reason=reason)
    ends = _end_at_zero(gaffke_interval(values, counts, (-span, span), confidence), mean, p, confidence)
    return PairedChange(n, mean, se, *ends, p, SIGN_FLIPS, method=BOUNDED_INTERVAL)


def _end_at_zero(ends: tuple[float, float], mean: float, p: float, confidence: float) -> tuple[float, float]:
    """Return the ends such that 0 lies inside if the test does not reject, and otherwise is an end or outside."""
    low, high = ends
    if p > 1 - confidence:
        return min(low, 0.0), max(high, 0.0)
    return (max(low, 0.0), high) if mean > 0 else (low, min(high, 0.0))


def sign_flip_interval(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the shifts that `sign_flip_p` does not reject.

    A split of the items into two groups counts for p at the shift d if d lies between the means of the groups. Each of
    these ranges contains the mean of all items. So the ends are the k-th lowest lower end and the k-th highest upper
    end, for k = (1 - confidence) 2^(n - 1), rounded down. J. A. Hartigan (1969), "Using subsample values as typical
    values", JASA 64, 1303-1317. Raise ValueError for more than MAX_EXACT_ITEMS, and for so few that no p is below
    1 - confidence: five at 95 %.
    """
    import numpy as np

    n = len(differences)
    index = int((1 - confidence) * 2 ** (n - 1) + 1e-9) - 1
    if n > MAX_EXACT_ITEMS or index < 0:
        raise ValueError(f"the interval takes 6 to {MAX_EXACT_ITEMS} differences at 95 %, not {n}")
    values, groups = np.asarray(differences, dtype=np.float64), _list_sign_patterns(n)
    sizes = groups[1:].sum(axis=1)  # Without the pattern that leaves no item.
    sums = groups[1:] @ values
    means = np.stack([sums / sizes, (values.sum() - sums) / (n - sizes)])
    low, high = np.partition(means.min(axis=0), index)[index], np.partition(-means.max(axis=0), index)[index]
    return float(low), float(-high)


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the exact two-sided p: the share of sign patterns whose sum is as far from zero as the observed sum.

    Patterns further from zero count, too. Without a change, the two means of an item could be swapped, so both signs
    are equally likely. Items without a difference count for nothing, so they may be left out. R. A. Fisher (1935), The
    design of experiments, section 21. Raise ValueError for MIN_CHANGED differences or more.
    """
    import numpy as np

    if len(differences) >= MIN_CHANGED:
        raise ValueError(f"the exact test takes fewer than {MIN_CHANGED} differences, not {len(differences)}")
    values = np.abs(np.asarray(differences, dtype=np.float64))
    total = abs(float(np.sum(differences)))
    # The 2^n sums are those of two halves of the items, added: count the pairs that reach the observed sum.
    halves = [_sum_sign_patterns(half) for half in (values[: len(values) // 2], values[len(values) // 2 :])]
    # Sums that differ only by rounding error count as equally far from zero.
    needed = total - TOLERANCE * float(values.sum()) - np.sort(halves[0])
    beyond = len(halves[1]) - np.searchsorted(np.sort(halves[1]), needed, side="left")
    return min(1.0, 2 * float(beyond.sum()) / 2.0 ** len(values))


def _sum_sign_patterns(values: Any) -> Any:
    """Return the sum of the values for each of the 2^n patterns of their signs."""
    import numpy as np

    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return sums


@lru_cache(maxsize=4)
def _list_sign_patterns(n: int) -> Any:
    """Return the patterns of flipped signs: (2^(n - 1), n) of 0 and 1, the first without flips.

    The last sign is never flipped, because the other half of the patterns mirrors this half.
    """
    import numpy as np

    return (np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1).astype(np.float64)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order of `ps`.

    If nothing changed, the chance that any adjusted value falls below 5 % is at most 5 %. S. Holm (1979), "A simple
    sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 65-70. The i-th smallest of m
    values is multiplied by m - i + 1. It is at least the adjusted value of each smaller one, and at most 1.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def holm_with(p: float, others: Sequence[float]) -> float:
    """Return Holm's adjusted value of `p` in a family with these other p-values, which are sorted."""
    import numpy as np

    n_smaller = bisect_left(others, p)
    before = np.asarray(others[:n_smaller]) * (len(others) + 1 - np.arange(n_smaller))
    return min(1.0, max(p * (len(others) + 1 - n_smaller), float(before.max(initial=0.0))))


BISECTION_STEPS = 60  # The ends are exact to 1e-17 of the scale.
NODES = 400  # Of Gauss and Legendre. For 0 and 1 the ends then equal Clopper and Pearson's to 1e-7.


def gaffke_interval(
    values: Sequence[float], counts: Sequence[float], bounds: tuple[float, float], confidence: float = 0.95
) -> tuple[float, float]:
    """Return the ends of Gaffke's two-sided interval of the mean of values within bounds.

    values: the distinct values; counts: how often each occurs.
    The upper end is the (1 + confidence) / 2 quantile of the weighted mean of the n values and one more at the upper
    bound, where the weights are uniform on the simplex (those of the Bayesian bootstrap). The lower end mirrors it. So
    the interval allows for one unseen value at either bound, and has a width even if all values are equal. For values
    at the two bounds, it is the interval of C. J. Clopper & E. S. Pearson (1934), Biometrika 26, 404-413. Its coverage
    was at least the confidence in every simulation known; a proof exists only for special cases.
    N. Gaffke (2005), "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
    variable", Mathematical Methods of Statistics 14, 451-467. E. Learned-Miller & P. S. Thomas (2019), "A new
    confidence interval for the mean of a bounded random variable", arXiv:1905.06208.
    Raise ValueError without values, or for values outside the bounds.
    """
    import numpy as np

    low, high = bounds
    points, weights = np.asarray(values, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if not (len(points) and low < high and low <= points.min() and points.max() <= high):
        raise ValueError(f"no interval: values must lie within {low} and {high}")
    tail = (1 - confidence) / 2
    return -_find_upper_end(-points, weights, -low, tail), _find_upper_end(points, weights, high, tail)


def _find_upper_end(points: Vector, counts: Vector, bound: float, tail: float) -> float:
    """Return the value that the weighted mean, with one more point at `bound`, exceeds with this chance."""
    import numpy as np

    low, high = float(points @ counts / counts.sum()), bound
    points, counts = np.append(points, bound), np.append(counts, 1.0)
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        if _negative_chance(points - middle, counts) < 1 - tail:
            low = middle
        else:
            high = middle
    return high


def _negative_chance(weights: Vector, shapes: Vector) -> float:
    """Return the chance that a sum of independent gamma variables, times these weights, is at most 0.

    By Gil-Pelaez' inversion of the characteristic function, as J. P. Imhof (1961), Biometrika 48, 419-426, does for
    chi-squared variables.
    """
    import numpy as np

    size = math.sqrt(float((shapes * weights**2).sum()))
    if size == 0:
        return 1.0
    points, factors = _inversion_nodes()
    products = np.outer(points, weights / size)
    phase = np.arctan(products) @ shapes
    magnitude = np.exp(-0.5 * (np.log1p(products**2) @ shapes))
    return 0.5 - float(np.sin(phase) * magnitude @ factors) / math.pi


@lru_cache(maxsize=1)
def _inversion_nodes() -> tuple[Vector, Vector]:
    """Return points t and factors such that the sum of f(t) times factors is the integral of f(t) / t over t > 0."""
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    t = np.tan((nodes + 1) * math.pi / 4)
    return t, (1 + t * t) * weights * math.pi / 4 / t


@lru_cache(maxsize=4096)  # Many pairs of a design have the same counts.
def tango_interval(gained: float, lost: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return the differences that the score test does not reject, for n items that were right or wrong twice.

    gained: items that were wrong, then right. lost: items that were right, then wrong. The estimate is
    (gained - lost) / n.
    The test of a difference d is (gained - lost - n d) / sqrt(n (2 q + d (1 - d))), where q is the maximum likelihood
    estimate of the chance of a loss if the difference is d. At d = 0, it is McNemar's test. The interval stays within
    -1 and 1, and has a width even if no item changed.
    T. Tango (1998), "Equivalence test and confidence interval for the difference in proportions for the paired-sample
    design", Statistics in Medicine 17, 891-908. Raise ValueError for negative counts, or more changes than items.
    """
    if not (n > 0 and gained >= 0 and lost >= 0 and gained + lost <= n + 1e-9):
        raise ValueError(f"impossible counts: {gained} gained and {lost} lost of {n}")
    z = normal_quantile(confidence)
    high = _find_highest_difference(gained, lost, n, z)
    return -_find_highest_difference(lost, gained, n, z), high


def mcnemar_p(gained: float, lost: float) -> float:
    """Return the two-sided p of McNemar's test, without continuity correction: (b - c)^2 / (b + c) against chi squared.

    Q. McNemar (1947), Psychometrika 12, 153-157. It is the test that `tango_interval` inverts.
    """
    if not gained + lost:
        return 1.0
    return math.erfc(abs(gained - lost) / math.sqrt(2 * (gained + lost)))


def exact_mcnemar_p(gained: int, lost: int) -> float:
    """Return the two-sided p of the binomial test that gains and losses are equally likely.

    Q. McNemar (1947), Psychometrika 12, 153-157, with the exact distribution. Raise ValueError for negative counts.
    """
    from scipy.special import bdtr

    if min(gained, lost) < 0:
        raise ValueError(f"negative counts: {gained} gained, {lost} lost")
    changed = gained + lost
    return min(1.0, 2 * float(bdtr(min(gained, lost), changed, 0.5))) if changed else 1.0


def _find_highest_difference(gained: float, lost: float, n: float, z: float) -> float:
    """Return the highest difference that is not rejected, by bisection between the estimate and 1."""
    low, high = (gained - lost) / n, 1.0
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        if _score(gained, lost, n, middle) < -z:
            high = middle
        else:
            low = middle
    return low


def _score(gained: float, lost: float, n: float, d: float) -> float:
    half = -gained - lost + (2 * n - gained + lost) * d
    root = math.sqrt(max(0.0, half * half + 8 * n * lost * d * (1 - d)))
    loss = (root - half) / (4 * n)
    variance = n * (2 * loss + d * (1 - d))
    distance = gained - lost - n * d
    if variance <= 0:
        return 0.0 if abs(distance) <= 1e-12 * n else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)
