"""Gaffke's interval of the mean of bounded values, for samples in which Student's interval cannot be trusted.

numpy is imported inside the functions, so that pages without numbers do not load it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]

BISECTION_STEPS = 50  # The ends are exact to 2^-50 of the scale.
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
