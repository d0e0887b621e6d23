"""Item means compared with a reference, such as human norms: differences, association, error and distribution.

Every function takes one value for each item. So repetitions never count as items. scipy.stats is imported inside the
functions: only workers and commands load it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalsite.lib.stats.t_interval import student_quantile
from evalsite.lib.stats.wilson import normal_quantile

Floats = NDArray[np.float64]
Interval = tuple[float, float]
ALIKE = 1e-9  # A spread below this share of the largest value is rounding error.


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """A difference of means with its interval and test. effect: Cohen's d, with its interval."""

    n: int
    difference: float
    interval: Interval
    t: float
    df: float
    p: float
    effect: float
    effect_interval: Interval


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line y = intercept + slope x, with intervals."""

    intercept: float
    slope: float
    intercept_interval: Interval | None
    slope_interval: Interval | None
    r_squared: float | None = None


def paired_difference(x: Floats, y: Floats, confidence: float = 0.95) -> MeanDifference | None:
    """Return the mean of x - y over items with Student's interval, the paired t-test, and Cohen's d.

    d is the mean over the standard deviation of the differences. Its interval inverts the noncentral t distribution:
    G. Cumming & S. Finch (2001), Educational and Psychological Measurement 61, 532-574. Return None for fewer than two
    items, if all differences are equal, or if only one item has an error.
    """
    apart = np.asarray(x, dtype=np.float64) - np.asarray(y, dtype=np.float64)
    n = len(apart)
    if n < 2 or _is_constant(apart, x, y):
        return None
    mean, sd = float(apart.mean()), float(apart.std(ddof=1))
    t, df = mean / (sd / math.sqrt(n)), float(n - 1)
    found = _test_difference(mean, sd / math.sqrt(n), t, df, confidence)
    low, high = _find_noncentrality(t, df, confidence)
    return MeanDifference(n, mean, *found, mean / sd, (low / math.sqrt(n), high / math.sqrt(n)))


def welch_difference(x: Floats, y: Floats, confidence: float = 0.95) -> MeanDifference | None:
    """Return the difference of the means of two independent samples by Welch's t-test, with Cohen's d.

    B. L. Welch (1947), Biometrika 34, 28-35. d divides by the pooled standard deviation; its interval inverts the
    noncentral t distribution with n_x + n_y - 2 degrees of freedom. Return None if a sample has fewer than two values,
    or neither varies.
    """
    n, m = len(x), len(y)
    if n < 2 or m < 2 or (_is_constant(x, x) and _is_constant(y, y)):
        return None
    mean = float(np.mean(x) - np.mean(y))
    a, b = float(np.var(x, ddof=1)) / n, float(np.var(y, ddof=1)) / m
    se = math.sqrt(a + b)
    df = (a + b) ** 2 / (a * a / (n - 1) + b * b / (m - 1))
    pooled = math.sqrt(((n - 1) * n * a + (m - 1) * m * b) / (n + m - 2))
    scale = math.sqrt(1 / n + 1 / m)
    low, high = _find_noncentrality(mean / (pooled * scale), n + m - 2, confidence)
    found = _test_difference(mean, se, mean / se, df, confidence)
    return MeanDifference(n + m, mean, *found, mean / pooled, (low * scale, high * scale))


def _test_difference(
    mean: float, se: float, t: float, df: float, confidence: float
) -> tuple[Interval, float, float, float]:
    """Return the interval, t, df and the two-sided p."""
    from scipy.special import stdtr, stdtrit

    reach = float(stdtrit(df, (1 + confidence) / 2)) * se
    return (mean - reach, mean + reach), t, df, float(2 * stdtr(df, -abs(t)))


def _find_noncentrality(t: float, df: float, confidence: float) -> Interval:
    """Return the noncentrality parameters under which t is at the ends of its central range."""
    from scipy.special import nctdtrinc

    tail = (1 - confidence) / 2
    low, high = (float(nctdtrinc(df, p, t)) for p in (1 - tail, tail))
    return low, high


def _is_constant(values: Floats, *scale: Floats) -> bool:
    largest = max(float(np.abs(one).max()) for one in scale)
    return float(np.ptp(values)) <= ALIKE * largest


def equivalence_p(n: int, difference: float, se: float, margin: float) -> float:
    """Return the p of two one-sided t-tests (TOST) that the difference lies within -margin to margin.

    D. J. Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15, 657-680. Raise ValueError unless there
    are two items or more, and se and margin are above zero.
    """
    from scipy.special import stdtr

    if n < 2 or se <= 0 or margin <= 0:
        raise ValueError(f"no equivalence test of {n} items with error {se} and margin {margin}")
    above, below = (difference + margin) / se, (difference - margin) / se
    return float(max(stdtr(n - 1, -above), stdtr(n - 1, below)))


def spearman(x: Floats, y: Floats, confidence: float = 0.95) -> tuple[float, Interval | None] | None:
    """Return Spearman's rank correlation with its interval; None if it is not defined.

    The interval is Fisher's with the variance (1 + rho^2 / 2) / (n - 3): D. G. Bonett & T. A. Wright (2000),
    Psychometrika 65, 23-28. It is None below ten items, and for a perfect order.
    """
    if len(x) < 2 or _is_constant(x, x) or _is_constant(y, y):
        return None
    rho = float(np.clip(np.corrcoef(_rank(x), _rank(y))[0, 1], -1.0, 1.0))
    if len(x) < 10 or abs(rho) > 1 - ALIKE:
        return rho, None
    reach = normal_quantile(confidence) * math.sqrt((1 + rho * rho / 2) / (len(x) - 3))
    return rho, (math.tanh(math.atanh(rho) - reach), math.tanh(math.atanh(rho) + reach))


def _rank(values: Floats) -> Floats:
    """Return mid-ranks, from 1."""
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: Floats = (last - (counts - 1) / 2)[at]
    return middle


def least_squares(x: Floats, y: Floats, confidence: float = 0.95) -> Line | None:
    """Return the regression line of y on x by least squares; None below three items or if x does not vary.

    If all items lie on the line there are no intervals, because other items may not.
    """
    from scipy.special import stdtrit

    n = len(x)
    if n < 3 or _is_constant(x, x):
        return None
    center = float(np.mean(x))
    spread = float(((x - center) ** 2).sum())
    slope = float(((x - center) * (y - np.mean(y))).sum() / spread)
    intercept = float(np.mean(y)) - slope * center
    left = float(((y - intercept - slope * x) ** 2).sum())
    total = float(((y - np.mean(y)) ** 2).sum())
    if math.sqrt(left) <= ALIKE * float(np.max(np.abs(y))):
        return Line(intercept, slope, None, None, 1.0 if total > 0 else None)
    error, reach = math.sqrt(left / (n - 2)), float(stdtrit(n - 2, (1 + confidence) / 2))
    of_slope = reach * error / math.sqrt(spread)
    of_intercept = reach * error * math.sqrt(1 / n + center**2 / spread)
    return Line(
        intercept,
        slope,
        (intercept - of_intercept, intercept + of_intercept),
        (slope - of_slope, slope + of_slope),
        1 - left / total if total > 0 else None,
    )


def confidence_band(x: Floats, y: Floats, at: Floats, confidence: float = 0.95) -> tuple[Floats, Floats, Floats] | None:
    """Return the least-squares line at these places, and the ends of the interval of its mean there.

    Each interval covers the mean at its place with this confidence, not all places at once: N. R. Draper & H. Smith
    (1998), Applied regression analysis, section 3.1. Return None where `least_squares` does.
    """
    from scipy.special import stdtrit

    line = least_squares(x, y, confidence)
    if line is None:
        return None
    n, center = len(x), float(np.mean(x))
    left = float(((y - line.intercept - line.slope * x) ** 2).sum())
    spread = float(((x - center) ** 2).sum())
    reach = float(stdtrit(n - 2, (1 + confidence) / 2)) * math.sqrt(left / (n - 2))
    fit = line.intercept + line.slope * at
    apart = reach * np.sqrt(1 / n + (at - center) ** 2 / spread)
    return fit, fit - apart, fit + apart


def deming(x: Floats, y: Floats, ratio: float = 1.0, confidence: float = 0.95) -> Line | None:
    """Return Deming's regression of y on x, which allows errors in both; its intervals are the jackknife's.

    ratio: the error variance of y over that of x. K. Linnet (1990), Statistics in Medicine 9, 1463-1473. Return None
    below four items or if the two are not correlated.
    """
    from scipy.special import stdtrit

    n = len(x)
    whole = _fit_deming(x, y, ratio)
    if n < 4 or whole is None:
        return None
    parts = _deming_without_each(x, y, ratio)
    if parts is None:
        return Line(*whole, None, None)
    pseudo = n * np.array(whole) - (n - 1) * parts
    if np.ptp(pseudo, axis=0).max() <= n * ALIKE * float(np.abs(y).max()):
        return Line(*whole, None, None)  # All items lie on the line. Other items may not.
    reach = float(stdtrit(n - 1, (1 + confidence) / 2)) * pseudo.std(axis=0, ddof=1) / math.sqrt(n)
    (intercept, slope), (of_intercept, of_slope) = whole, map(float, reach)
    return Line(
        intercept, slope, (intercept - of_intercept, intercept + of_intercept), (slope - of_slope, slope + of_slope)
    )


def _fit_deming(x: Floats, y: Floats, ratio: float) -> tuple[float, float] | None:
    """Return intercept and slope; None if the covariance is zero."""
    a, b = float(np.var(x)), float(np.var(y))
    shared = float(((x - np.mean(x)) * (y - np.mean(y))).mean())
    if abs(shared) <= ALIKE * math.sqrt(a * b):
        return None
    slope = (b - ratio * a + math.sqrt((b - ratio * a) ** 2 + 4 * ratio * shared**2)) / (2 * shared)
    return float(np.mean(y)) - slope * float(np.mean(x)), slope


def _deming_without_each(x: Floats, y: Floats, ratio: float) -> Floats | None:
    """Return intercept and slope without one item each, (items, 2), from sums; None if a covariance is zero."""
    n, off_x, off_y = len(x), x - np.mean(x), y - np.mean(y)
    rest, more = n - 1, n / (n - 1)
    a = ((off_x**2).sum() - more * off_x**2) / rest
    b = ((off_y**2).sum() - more * off_y**2) / rest
    shared = ((off_x * off_y).sum() - more * off_x * off_y) / rest
    if (np.abs(shared) <= ALIKE * np.sqrt(np.clip(a * b, 0, None))).any():
        return None
    slopes = (b - ratio * a + np.sqrt((b - ratio * a) ** 2 + 4 * ratio * shared**2)) / (2 * shared)
    intercepts = (np.mean(y) - off_y / rest) - slopes * (np.mean(x) - off_x / rest)
    return np.column_stack([intercepts, slopes])


def root_mean_square(differences: Floats) -> float:
    return float(np.sqrt(np.mean(np.asarray(differences) ** 2)))


def mean_absolute(differences: Floats) -> float:
    return float(np.mean(np.abs(differences)))


def error_interval(x: Floats, y: Floats, statistic: str, confidence: float = 0.95) -> Interval | None:
    """Return the interval of `mae` or `rmse`, over items: Student's, with the jackknife's error of the logarithm.

    R. G. Miller (1974), "The jackknife - a review", Biometrika 61, 1-15. So it stays above zero. Return None below ten
    items, or if all differences are equal.
    """
    apart = np.abs(np.asarray(x) - np.asarray(y))
    n = len(apart)
    if n < 10 or _is_constant(apart, x, y):
        return None
    power = {"mae": 1, "rmse": 2}[statistic]
    values = apart**power
    if values.sum() - values.max() <= 0:
        return None
    logs = np.log((values.sum() - values) / (n - 1)) / power
    reach = student_quantile(confidence, n - 1) * math.sqrt((n - 1) / n * float(((logs - logs.mean()) ** 2).sum()))
    center = math.log(float(values.mean())) / power
    return math.exp(center - reach), math.exp(center + reach)


def kolmogorov_smirnov(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the largest difference of the two distribution functions, and its p."""
    from scipy.stats import ks_2samp

    found = ks_2samp(x, y)
    return float(found.statistic), float(found.pvalue)


def wasserstein(x: Floats, y: Floats) -> float:
    """Return the mean distance that values must be moved to turn one distribution into the other."""
    from scipy.stats import wasserstein_distance

    return float(wasserstein_distance(x, y))


def reference_reliability(mean: Floats, sd: Floats, n: Floats) -> float | None:
    """Return the reliability of reference means: the share of their variance that is not error of the raters' means.

    The error variance of an item's mean is sd^2 / n. F. M. Lord & M. R. Novick (1968), Statistical theories of mental
    test scores, chapter 3. Items without sd or n are left out. Return None below three items, or if the error variance
    explains all variance.
    """
    known = ~(np.isnan(mean) | np.isnan(sd) | np.isnan(n)) & (np.nan_to_num(n) > 0)
    if known.sum() < 3:
        return None
    total, error = float(np.var(mean[known], ddof=1)), float((sd[known] ** 2 / n[known]).mean())
    return (total - error) / total if total > error else None
