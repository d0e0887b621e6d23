"""Pearson's correlation of pairs, with its uncertainty.

numpy and scipy are imported inside the functions, so that pages without numbers do not load them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from evalsite.lib.stats.t_interval import student_quantile
from evalsite.lib.stats.wilson import normal_quantile

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]


MAX_SKEWNESS = 0.8  # Above this absolute skewness of the sample, Fisher's interval is too narrow.
ROUNDING = 1e-12
FISHER, JACKKNIFE = "Fisher's z", "Fisher's z with the jackknife's error, Student's t"


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation of n pairs, with its interval (None below four pairs) and the p-value of no correlation.

    method: the method of the interval; empty without one. is_skewed: a variable is more skewed than MAX_SKEWNESS.
    """

    r: float
    n: int
    low: float | None
    high: float | None
    p: float | None
    method: str = ""
    is_skewed: bool = False


def pearson(x: Sequence[float] | Vector, y: Sequence[float] | Vector, confidence: float = 0.95) -> Correlation | None:
    """Return Pearson's r with Fisher's interval, tanh(atanh(r) -+ z / sqrt(n - 3)).

    R. A. Fisher (1921), "On the probable error of a coefficient of correlation", Metron 1, 3-32. It assumes normal
    values: for exponential values, a 95 % interval covers 83 to 86 %. If a variable is more skewed than MAX_SKEWNESS,
    z / sqrt(n - 3) is replaced by t(n - 1) times the jackknife's standard error of atanh(r), if that is larger:
    R. G. Miller (1974), Biometrika 61, 1-15.
    Return None if r is undefined: fewer than two pairs, or a variable without variance. Raise ValueError if the lengths
    differ.
    """
    r = _product_moment(x, y)
    if r is None:
        return None
    skewed = _is_skewed(x, y)
    error = _jackknife_error(x, y) if len(x) >= 4 and abs(r) < 1 and skewed else 0.0
    return replace(_add_interval(r, len(x), confidence, error), is_skewed=skewed)


def _is_skewed(*columns: Sequence[float] | Vector) -> bool:
    import numpy as np

    unit_columns = (_standardize(np.asarray(values, dtype=np.float64)) for values in columns)
    return any(abs(float((column**3).sum())) * math.sqrt(len(column)) > MAX_SKEWNESS for column in unit_columns)


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


def _add_interval(r: float, n: int, confidence: float, error: float = 0.0) -> Correlation:
    z = normal_quantile(confidence)
    if n < 4:
        return Correlation(r, n, None, None, _compute_p_value(r, n))
    if abs(r) == 1:
        return Correlation(r, n, None, None, 0.0)  # All points lie on the line. Other points may not.
    plain, jackknife = z / math.sqrt(n - 3), student_quantile(confidence, n - 1) * error
    reach, center = max(plain, jackknife), math.atanh(r)
    method = FISHER if reach == plain else JACKKNIFE
    return Correlation(r, n, math.tanh(center - reach), math.tanh(center + reach), _compute_p_value(r, n), method)


def _compute_p_value(r: float, n: int) -> float | None:
    from scipy.special import stdtr

    if n < 3:
        return None
    if abs(r) == 1:
        return 0.0
    return float(2 * stdtr(n - 2, -abs(r) * math.sqrt((n - 2) / (1 - r * r))))
