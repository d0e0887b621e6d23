"""Item means compared with a reference, such as human norms: differences, association, error and distribution.

Every function takes one value for each item, so repetitions never count as items. scipy.stats is imported inside the
functions, because only workers and commands may load it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalsite.lib.stats import normal_quantile, student_quantile

Floats = NDArray[np.float64]
Interval = tuple[float, float]
TOLERANCE = 1e-9  # A spread below this share of the largest value is rounding error.


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
class FittedLine:
    """A straight line y = intercept + slope x, with intervals."""

    intercept: float
    slope: float
    intercept_interval: Interval | None
    slope_interval: Interval | None
    r_squared: float | None = None


def paired_difference(x: Floats, y: Floats, confidence: float = 0.95) -> MeanDifference | None:
    """Return the mean of x - y over items with scipy's paired t-test and interval, and Cohen's d.

    d is the mean over the standard deviation of the differences. Its interval inverts the noncentral t distribution:
    G. Cumming & S. Finch (2001), Educational and Psychological Measurement 61, 532-574. Return None for fewer than two
    items, if all differences are equal, or if only one item has an error.
    """
    from scipy.stats import ttest_rel

    differences = np.asarray(x, dtype=np.float64) - np.asarray(y, dtype=np.float64)
    n = len(differences)
    if n < 2 or _is_constant(differences, x, y):
        return None
    test = ttest_rel(x, y)
    return _describe_test(test, n, float(differences.mean()), test.statistic, n - 1, 1 / math.sqrt(n), confidence)


def welch_difference(x: Floats, y: Floats, confidence: float = 0.95) -> MeanDifference | None:
    """Return the difference of the means of two independent samples with scipy's Welch test, and Cohen's d.

    B. L. Welch (1947), Biometrika 34, 28-35. d divides by the pooled standard deviation; its interval inverts the
    noncentral t distribution with n_x + n_y - 2 degrees of freedom. Return None if a sample has fewer than two values,
    or neither varies.
    """
    from scipy.stats import ttest_ind

    n, m = len(x), len(y)
    if n < 2 or m < 2 or (_is_constant(x, x) and _is_constant(y, y)):
        return None
    difference, df, root = float(np.mean(x) - np.mean(y)), n + m - 2, math.sqrt(1 / n + 1 / m)
    pooled = math.sqrt((n * float(np.var(x)) + m * float(np.var(y))) / df)
    if not pooled:  # Squares of tiny values are zero.
        return None
    test = ttest_ind(x, y, equal_var=False)
    return _describe_test(test, n + m, difference, difference / (pooled * root), df, root, confidence)


def _describe_test(
    test: Any, n: int, difference: float, pooled_t: float, pooled_df: int, root: float, confidence: float
) -> MeanDifference | None:
    """Return scipy's test with Cohen's d; None if the variance is too small for a number.

    d is pooled_t * root, where pooled_t has pooled_df degrees of freedom. The ends of its interval are those of the
    noncentrality, with pooled_t at the ends of its central range.
    """
    from scipy.special import nctdtrinc

    ends = test.confidence_interval(confidence)
    if not (math.isfinite(test.statistic) and ends.low < ends.high):
        return None
    low, high = (root * float(nctdtrinc(pooled_df, (1 + side * confidence) / 2, pooled_t)) for side in (1, -1))
    t, df, p = float(test.statistic), float(test.df), float(test.pvalue)
    return MeanDifference(
        n, difference, (float(ends.low), float(ends.high)), t, df, p, float(pooled_t) * root, (low, high)
    )


def _is_constant(values: Floats, *scale: Floats) -> bool:
    largest = max(float(np.abs(column).max()) for column in scale)
    return float(np.ptp(values)) <= TOLERANCE * largest


def equivalence_p(n: int, difference: float, se: float, margin: float) -> float:
    """Return the p of two one-sided t-tests (TOST) that the difference lies within -margin to margin.

    D. J. Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15, 657-680. Raise ValueError for fewer
    than two items, or if se or margin is not positive.
    """
    from scipy.special import stdtr

    if n < 2 or se <= 0 or margin <= 0:
        raise ValueError(f"no equivalence test for {n} items with error {se} and margin {margin}")
    t_low, t_high = (difference + margin) / se, (difference - margin) / se
    return float(max(stdtr(n - 1, -t_low), stdtr(n - 1, t_high)))


def spearman(x: Floats, y: Floats, confidence: float = 0.95) -> tuple[float, Interval | None] | None:
    """Return Spearman's rank correlation with its interval; None if it is undefined.

    The interval is Fisher's with the variance (1 + rho^2 / 2) / (n - 3): D. G. Bonett & T. A. Wright (2000),
    Psychometrika 65, 23-28. It is None below ten items, and for a perfect order.
    """
    if len(x) < 2 or _is_constant(x, x) or _is_constant(y, y):
        return None
    from scipy.stats import spearmanr

    rho = float(np.clip(spearmanr(x, y).statistic, -1.0, 1.0))
    if len(x) < 10 or abs(rho) > 1 - TOLERANCE:
        return rho, None
    reach = normal_quantile(confidence) * math.sqrt((1 + rho * rho / 2) / (len(x) - 3))
    return rho, (math.tanh(math.atanh(rho) - reach), math.tanh(math.atanh(rho) + reach))


def least_squares(x: Floats, y: Floats, confidence: float = 0.95) -> FittedLine | None:
    """Return scipy's regression line of y on x; None below three items or if x does not vary.

    If all items lie on the line, there are no intervals, because other items may not.
    """
    from scipy.stats import linregress

    n = len(x)
    if n < 3 or _is_constant(x, x) or not np.var(x) > 0:  # Squares of tiny values are zero.
        return None
    fit = linregress(x, y)
    slope, intercept = float(fit.slope), float(fit.intercept)
    residuals = y - intercept - slope * x
    r_squared = float(fit.rvalue) ** 2 if np.var(y) > 0 else None
    if math.sqrt(float(residuals @ residuals)) <= TOLERANCE * float(np.max(np.abs(y))):
        return FittedLine(intercept, slope, None, None, None if r_squared is None else 1.0)
    reach = student_quantile(confidence, n - 2)
    ends = [
        (value - reach * float(error), value + reach * float(error))
        for value, error in ((intercept, fit.intercept_stderr), (slope, fit.stderr))
    ]
    return FittedLine(intercept, slope, ends[0], ends[1], r_squared)


def confidence_band(x: Floats, y: Floats, at: Floats, confidence: float = 0.95) -> tuple[Floats, Floats, Floats] | None:
    """Return the least-squares line at these values of x, with the ends of the intervals of its mean.

    Each interval covers the mean at its own x with this confidence, not the whole line: N. R. Draper & H. Smith (1998),
    Applied regression analysis, section 3.1. Return None in the cases of `least_squares`.
    """
    line = least_squares(x, y, confidence)
    if line is None:
        return None
    fit, distances = line.intercept + line.slope * at, at - np.mean(x)
    # The errors of slope, mean and line are s / root(n var x), s / root n, and the root of the sum of their squares.
    slope_reach = (line.slope_interval[1] - line.slope_interval[0]) / 2 if line.slope_interval else 0.0
    margin = slope_reach * np.sqrt(np.var(x) + distances**2)
    return fit, fit - margin, fit + margin


def deming(x: Floats, y: Floats, ratio: float = 1.0, confidence: float = 0.95) -> FittedLine | None:
    """Return Deming's regression of y on x, which allows errors in both, with the jackknife's intervals.

    ratio: the error variance of y over that of x. K. Linnet (1990), Statistics in Medicine 9, 1463-1473. Return None
    below four items, or if x and y are uncorrelated.
    """
    n = len(x)
    if n < 4:
        return None
    # Variances and covariance of all items, then those without one item each.
    apart_x, apart_y = x - np.mean(x), y - np.mean(y)
    a, b, covariance = (
        np.append(np.mean(products), (products.sum() - n / (n - 1) * products) / (n - 1))
        for products in (apart_x**2, apart_y**2, apart_x * apart_y)
    )
    is_flat = np.abs(covariance) <= TOLERANCE * np.sqrt(np.clip(a * b, 0, None))
    if is_flat[0]:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (b - ratio * a + np.sqrt((b - ratio * a) ** 2 + 4 * ratio * covariance**2)) / (2 * covariance)
        centers_x, centers_y = (np.append(0.0, -apart / (n - 1)) for apart in (apart_x, apart_y))
        fits = np.column_stack([np.mean(y) + centers_y - slopes * (np.mean(x) + centers_x), slopes])
    fit = float(fits[0, 0]), float(fits[0, 1])
    pseudo = n * fits[0] - (n - 1) * fits[1:]
    if is_flat.any() or np.ptp(pseudo, axis=0).max() <= n * TOLERANCE * float(np.abs(y).max()):
        return FittedLine(*fit, None, None)  # If all items lie on the line, other items may not.
    reach = student_quantile(confidence, n - 1) * pseudo.std(axis=0, ddof=1) / math.sqrt(n)
    ends = [(float(value - half), float(value + half)) for value, half in zip(fit, reach, strict=True)]
    return FittedLine(*fit, ends[0], ends[1])


def root_mean_square(differences: Floats) -> float:
    largest = float(np.abs(differences).max()) or 1.0
    return largest * float(np.sqrt(np.mean((np.asarray(differences) / largest) ** 2)))


def error_interval(x: Floats, y: Floats, statistic: str, confidence: float = 0.95) -> Interval | None:
    """Return the interval of `mae` or `rmse`, over items: Student's, with the jackknife's error of the logarithm.

    R. G. Miller (1974), "The jackknife - a review", Biometrika 61, 1-15. The logarithm keeps it above zero. Return None
    below ten items, or if all differences are equal.
    """
    errors = np.abs(np.asarray(x) - np.asarray(y))
    n = len(errors)
    if n < 10 or _is_constant(errors, x, y):
        return None
    power = {"mae": 1, "rmse": 2}[statistic]
    values = (errors / errors.max()) ** power  # Squares of tiny errors would vanish.
    if values.sum() - values.max() <= 0:
        return None
    logs = np.log((values.sum() - values) / (n - 1)) / power
    reach = student_quantile(confidence, n - 1) * math.sqrt((n - 1) / n * float(((logs - logs.mean()) ** 2).sum()))
    center = math.log(float(values.mean())) / power + math.log(float(errors.max()))
    return math.exp(center - reach), math.exp(center + reach)


def reference_reliability(mean: Floats, sd: Floats, n: Floats) -> float | None:
    """Return the reliability of reference means: the share of their variance that is not error of the raters' means.

    The error variance of an item's mean is sd^2 / n. F. M. Lord & M. R. Novick (1968), Statistical theories of mental
    test scores, chapter 3. Items without sd or n are excluded. Return None below three items, or if the error variance
    explains all variance.
    """
    is_known = ~(np.isnan(mean) | np.isnan(sd) | np.isnan(n)) & (np.nan_to_num(n) > 0)
    if is_known.sum() < 3:
        return None
    total, error = float(np.var(mean[is_known], ddof=1)), float((sd[is_known] ** 2 / n[is_known]).mean())
    return (total - error) / total if total > error else None
