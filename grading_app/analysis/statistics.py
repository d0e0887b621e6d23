"""Estimates with their uncertainty. Intervals are two-sided; `confidence` and `power` are shares between 0 and 1.

numpy and scipy are imported where they are used, so that pages without numbers do not pay for them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalsite.lib.student import student_quantile as student_quantile
from evalsite.lib.wilson import Interval as Interval
from evalsite.lib.wilson import normal_quantile as normal_quantile
from evalsite.lib.wilson import wilson as wilson

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Summary:
    """n values, their mean and standard deviation (n - 1 below; None for a single value)."""

    n: int
    mean: float
    sd: float | None


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of n values in so many clusters, with its standard error and interval (None with one cluster)."""

    n: int
    clusters: int
    mean: float
    se: float | None
    low: float | None
    high: float | None
    naive_se: float | None

    @property
    def inflation(self) -> float | None:
        """How many times larger the clustered standard error is than the one that takes all values as independent."""
        return self.se / self.naive_se if self.se is not None and self.naive_se else None


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation of n pairs with its interval (None below four pairs) and the p-value of no correlation."""

    r: float
    n: int
    low: float | None
    high: float | None
    p: float | None


def describe(values: Sequence[float]) -> Summary | None:
    """n, mean and sample standard deviation; None for no values."""
    n = len(values)
    if not n:
        return None
    mean = math.fsum(values) / n
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Summary(n, mean, math.sqrt(squares / (n - 1)) if n > 1 else None)


def clustered_mean(values: Sequence[float], clusters: Sequence[Hashable], confidence: float = 0.95) -> Mean | None:
    """The mean, with a standard error that allows the values of one cluster (an item) to go together.

    se^2 = G / (G - 1) * sum over clusters of (sum of residuals in the cluster)^2 / n^2, for G clusters; the interval
    is Student's with G - 1 degrees of freedom. Where clusters are equally large it is the standard error of the mean
    of the cluster means. K.-Y. Liang & S. L. Zeger (1986), Biometrika 73, 13-22, for the mean, with the usual
    correction for few clusters. None for no values; ValueError if the lengths differ.
    """
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values and {len(clusters)} clusters")
    summary = describe(values)
    if summary is None:
        return None
    residuals: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        residuals[cluster] = residuals.get(cluster, 0.0) + (value - summary.mean)
    n, groups = summary.n, len(residuals)
    naive = None if summary.sd is None else summary.sd / math.sqrt(n)
    if groups < 2:
        return Mean(n, groups, summary.mean, None, None, None, naive)
    squares = math.fsum(residual**2 for residual in residuals.values())
    se = math.sqrt(groups / (groups - 1) * squares) / n
    reach = student_quantile(confidence, groups - 1) * se
    return Mean(n, groups, summary.mean, se, summary.mean - reach, summary.mean + reach, naive)


def pearson(x: Sequence[float], y: Sequence[float], confidence: float = 0.95) -> Correlation | None:
    """Pearson's r with Fisher's interval, tanh(atanh(r) -+ z / sqrt(n - 3)).

    R. A. Fisher (1921), "On the probable error of a coefficient of correlation", Metron 1, 3-32.
    None where r is undefined: fewer than two pairs, or a variable without variance. ValueError if the lengths differ.
    """
    r = _product_moment(x, y)
    return None if r is None else _with_interval(r, len(x), 1.0, confidence)


def spearman(x: Sequence[float], y: Sequence[float], confidence: float = 0.95) -> Correlation | None:
    """Spearman's rank correlation, ties by mean rank; the interval widens Fisher's by sqrt(1 + r^2 / 2).

    D. G. Bonett & T. A. Wright (2000), "Sample size requirements for estimating Pearson, Kendall and Spearman
    correlations", Psychometrika 65, 23-28. None and errors as of `pearson`.
    """
    from scipy.stats import rankdata

    if len(x) != len(y):
        raise ValueError(f"{len(x)} and {len(y)} values make no pairs")
    r = _product_moment(rankdata(x).tolist(), rankdata(y).tolist())
    return None if r is None else _with_interval(r, len(x), math.sqrt(1 + r * r / 2), confidence)


def detectable_effect(
    items: int, samples: int, sd_within: float, sd_between: float, alpha: float = 0.05, power: float = 0.8
) -> float:
    """The smallest difference of means between two conditions that a two-sided paired t-test over items detects.

    Both conditions answer the same items, each `samples` times; an item enters with the difference of its two means.
    `sd_within` is the standard deviation of an item's repeated answers in one condition; `sd_between` that of the
    true difference between the conditions, over items (what items have in common in both conditions cancels).

        se = sqrt((sd_between^2 + 2 sd_within^2 / samples) / items)
        effect = d * se, with d such that P(|T| > t(1 - alpha/2, items - 1)) = power, T noncentral t with shift d

    More samples shrink the second term alone, more items both: items beat repetitions.
    J. Cohen (1988), "Statistical power analysis for the behavioral sciences", ch. 2. In the units of the scores.
    ValueError for fewer than two items or one sample, a negative deviation, or shares outside 0 < alpha < power < 1.
    """
    if items < 2 or samples < 1 or sd_within < 0 or sd_between < 0 or not 0 < alpha < power < 1:
        raise ValueError("a design has two items, one sample, deviations from 0 up, and 0 < alpha < power < 1")
    se = math.sqrt((sd_between**2 + 2 * sd_within**2 / samples) / items)
    return _needed_shift(items - 1, alpha, power) * se


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


def _with_interval(r: float, n: int, widening: float, confidence: float) -> Correlation:
    z = normal_quantile(confidence)
    if n < 4:
        return Correlation(r, n, None, None, _no_correlation_p(r, n))
    if abs(r) == 1:
        return Correlation(r, n, r, r, 0.0)
    reach = z * widening / math.sqrt(n - 3)
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


def _needed_shift(df: int, alpha: float, power: float) -> float:
    """The shift of the noncentral t that is significant at `alpha`, two-sided, with probability `power`.

    T = (Z + shift) / S, so its tails are normal tails averaged over S, here over 4,000 equally likely values of it:
    unlike the library's noncentral t, this stays finite and monotone for any shift.
    """
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import ndtr
    from scipy.stats import chi2

    spread = np.sqrt(chi2.ppf((np.arange(4000) + 0.5) / 4000, df) / df)
    cut = student_quantile(1 - alpha, df) * spread

    def surplus(shift: float) -> float:
        return float(np.mean(ndtr(shift - cut) + ndtr(-shift - cut))) - power

    return float(brentq(surplus, 0.0, float(cut.max()) + 10, xtol=1e-9))
