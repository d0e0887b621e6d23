"""Pearson's correlation of pairs, with its uncertainty.

numpy and scipy are imported inside the functions, so that pages without numbers do not load them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalsite.lib.stats import normal_quantile, student_quantile

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]


ROUNDING = 1e-12
FISHER, JACKKNIFE = "Fisher's z", "jackknife of Fisher's z, Student's t"


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation of n pairs, with its interval and the p-value of no correlation.

    low, high: None below four pairs, and if all pairs, or all but one, lie on a line. method: the method of the
    interval; empty without one.
    """

    r: float
    n: int
    low: float | None
    high: float | None
    p: float | None
    method: str = ""


def pearson(x: Sequence[float] | Vector, y: Sequence[float] | Vector, confidence: float = 0.95) -> Correlation | None:
    """Return Pearson's r with the wider of Fisher's and the jackknife's interval of atanh(r).

    Fisher's is atanh(r) -+ z / sqrt(n - 3): R. A. Fisher (1921), "On the probable error of a coefficient of
    correlation", Metron 1, 3-32. It assumes normal pairs: if one pair in twenty is far off, a 95 % interval covers 62
    to 67 % at any n. The jackknife's is atanh(r) -+ t(n - 1) times its standard error: R. G. Miller (1974), Biometrika
    61, 1-15. p is that of scipy.stats.pearsonr.
    Return None if r is undefined: fewer than two pairs, or a variable without variance. Raise ValueError if the lengths
    differ.
    """
    r, n = _product_moment(x, y), len(x)
    if r is None:
        return None
    p = _compute_p_value(r, n)
    if n < 4 or abs(r) == 1:
        return Correlation(r, n, None, None, p)  # Other points may not lie on the line.
    fisher = normal_quantile(confidence) / math.sqrt(n - 3)
    jackknife = student_quantile(confidence, n - 1) * _jackknife_error(x, y)
    if math.isinf(jackknife):
        return Correlation(r, n, None, None, p)
    reach, center = max(fisher, jackknife), math.atanh(r)
    method = FISHER if reach == fisher else JACKKNIFE
    return Correlation(r, n, math.tanh(center - reach), math.tanh(center + reach), p, method)


def _jackknife_error(x: Sequence[float] | Vector, y: Sequence[float] | Vector) -> float:
    """Return the jackknife's standard error of atanh(r); infinite if r is perfect without one of the pairs."""
    import numpy as np

    u, v = (_standardize(np.asarray(values, dtype=np.float64)) for values in (x, y))
    n = len(u)
    # Sums over the other pairs. The columns have mean 0 and sum of squares 1.
    products = u @ v - u * v * n / (n - 1)
    squares = (1 - u**2 * n / (n - 1)) * (1 - v**2 * n / (n - 1))
    if float(squares.min()) <= ROUNDING:
        return math.inf
    r = products / np.sqrt(squares)
    if float(np.abs(r).max()) >= 1 - ROUNDING:
        return math.inf
    z = np.arctanh(r)
    return math.sqrt((n - 1) / n * float(((z - z.mean()) ** 2).sum()))


def _product_moment(x: Sequence[float] | Vector, y: Sequence[float] | Vector) -> float | None:
    import numpy as np

    if len(x) != len(y):
        raise ValueError(f"cannot pair {len(x)} with {len(y)} values")
    columns = [np.asarray(values, dtype=np.float64) for values in (x, y)]
    if len(x) < 2 or any(values.min() == values.max() for values in columns):
        return None
    u, v = (_standardize(values) for values in columns)
    return float(np.clip(u @ v, -1.0, 1.0))


def _standardize(values: Vector) -> Vector:
    import numpy as np

    centred = values - values.mean()
    centred = centred / np.abs(centred).max()  # Squares of tiny or huge values would vanish or overflow.
    unit: Vector = centred / np.sqrt(centred @ centred)
    return unit


def _compute_p_value(r: float, n: int) -> float | None:
    from scipy.special import stdtr

    if n < 3:
        return None
    if abs(r) == 1:
        return 0.0
    return float(2 * stdtr(n - 2, -abs(r) * math.sqrt((n - 2) / (1 - r * r))))
