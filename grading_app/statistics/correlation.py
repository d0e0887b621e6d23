"""Pearson's correlation of pairs, with its uncertainty.

numpy and scipy are imported inside the functions, so that pages without numbers do not load them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalsite.lib.stats.wilson import normal_quantile

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation of n pairs, with its interval (None below four pairs) and the p-value of no correlation."""

    r: float
    n: int
    low: float | None
    high: float | None
    p: float | None


def pearson(x: Sequence[float], y: Sequence[float], confidence: float = 0.95) -> Correlation | None:
    """Return Pearson's r with Fisher's interval, tanh(atanh(r) -+ z / sqrt(n - 3)).

    R. A. Fisher (1921), "On the probable error of a coefficient of correlation", Metron 1, 3-32.
    Return None if r is undefined: fewer than two pairs, or a variable without variance. Raise ValueError if the lengths
    differ.
    """
    r = _product_moment(x, y)
    return None if r is None else _with_interval(r, len(x), confidence)


def _product_moment(x: Sequence[float], y: Sequence[float]) -> float | None:
    import numpy as np

    if len(x) != len(y):
        raise ValueError(f"{len(x)} and {len(y)} values make no pairs")
    if len(x) < 2 or min(x) == max(x) or min(y) == max(y):
        return None
    one, other = (_standardised(np.asarray(values, dtype=np.float64)) for values in (x, y))
    return float(np.clip(one @ other, -1.0, 1.0))


def _standardised(values: Vector) -> Vector:
    import numpy as np

    centred = values - values.mean()
    centred = centred / np.abs(centred).max()  # Squares of tiny or huge values would vanish or overflow.
    unit: Vector = centred / np.sqrt(centred @ centred)
    return unit


def _with_interval(r: float, n: int, confidence: float) -> Correlation:
    z = normal_quantile(confidence)
    if n < 4:
        return Correlation(r, n, None, None, _no_correlation_p(r, n))
    if abs(r) == 1:
        return Correlation(r, n, None, None, 0.0)  # All points lie on the line. Other points may not.
    reach = z / math.sqrt(n - 3)
    return Correlation(
        r, n, math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach), _no_correlation_p(r, n)
    )


def _no_correlation_p(r: float, n: int) -> float | None:
    from scipy.special import stdtr

    if n < 3:
        return None
    if abs(r) == 1:
        return 0.0
    return float(2 * stdtr(n - 2, -abs(r) * math.sqrt((n - 2) / (1 - r * r))))
