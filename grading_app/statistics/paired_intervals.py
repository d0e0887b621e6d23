"""Intervals where Student's cannot be trusted: Gaffke's of a bounded mean, Tango's of a difference of shares.

numpy is imported inside the functions, so that pages without numbers do not load it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evalsite.lib.stats import normal_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]

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
