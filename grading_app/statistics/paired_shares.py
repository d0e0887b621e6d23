"""Tango's score interval of the difference of two shares of the same items."""

from __future__ import annotations

import math

from evalsite.lib.stats.wilson import normal_quantile

BISECTION_STEPS = 60  # Bisection steps: the ends are exact to 1e-17.


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
