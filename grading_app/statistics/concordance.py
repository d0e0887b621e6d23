"""Lin's concordance and Pearson's correlation of two columns of numbers, with a weight for each unit."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from evalsite.lib.stats import normal_quantile
from grading_app.statistics.intervals import Spread
from grading_app.statistics.measures import Coefficient, divide
from grading_app.statistics.ratings import Floats, Ratings

ROUNDING = 1e-24
ROUNDING_OF_R = 1e-13
SMALL, SMALL_R = (
    1e-2,
    1e-9,
)  # Below this share of the mean square, or below this r, moments are computed exactly. Rounding stays below 1e-13.


class Moments(NamedTuple):
    """The mean difference, variances (divided by n) and covariance of two columns; each is (resamples,)."""

    difference: Floats
    variance_x: Floats
    variance_y: Floats
    covariance: Floats


def compute_moments(x: Floats, y: Floats, times: Floats) -> Moments:
    """Return the moments of two columns. Values below rounding error become zero.

    x, y: (units,). times: (resamples, units), how often each unit counts.
    """
    n = times.sum(axis=1)
    center_x, center_y = x.mean(), y.mean()
    x, y = x - center_x, y - center_y
    sums = times @ np.column_stack([x, y, x * x, y * y, x * y]) / n[:, None]
    mean_x, mean_y, square_x, square_y, product = sums.T
    variance_x, variance_y = square_x - mean_x**2, square_y - mean_y**2
    covariance = product - mean_x * mean_y
    # Differences of mean squares are exact enough unless they are small.
    is_small = (variance_x <= SMALL * square_x) | (variance_y <= SMALL * square_y)
    is_small |= np.abs(covariance) <= SMALL_R * np.sqrt(np.abs(variance_x * variance_y))
    if is_small.any():
        all_exact = _exact_moments(x, y, times[is_small])
        for moments, exact_moments in zip((variance_x, variance_y, covariance), all_exact, strict=True):
            moments[is_small] = exact_moments
    return Moments(mean_x - mean_y + (center_x - center_y), variance_x, variance_y, covariance)


def _exact_moments(x: Floats, y: Floats, times: Floats) -> tuple[Floats, Floats, Floats]:
    """Return both variances and the covariance from the differences to the means of each resample."""
    n = times.sum(axis=1, keepdims=True)
    deviations_x, deviations_y, shares = x - (times @ x)[:, None] / n, y - (times @ y)[:, None] / n, times / n
    covariance = (shares * deviations_x * deviations_y).sum(axis=1)
    variance_x, variance_y = _variance(x, deviations_x, shares), _variance(y, deviations_y, shares)
    is_correlated = np.abs(covariance) > ROUNDING_OF_R * np.sqrt(variance_x * variance_y)
    return variance_x, variance_y, np.where(is_correlated, covariance, 0.0)


def _variance(values: Floats, deviations: Floats, shares: Floats) -> Floats:
    squares = (shares * deviations**2).sum(axis=1)
    return np.where(squares > ROUNDING * (shares @ values**2), squares, 0.0)


def compute_concordance(x: Floats, y: Floats, times: Floats) -> Floats:
    """Return Lin's coefficient for each resample; NaN if neither column varies and their means are equal."""
    moments = compute_moments(x, y, times)
    return divide(2 * moments.covariance, moments.variance_x + moments.variance_y + moments.difference**2)


def compute_correlation(x: Floats, y: Floats, times: Floats) -> Floats:
    """Return Pearson's r for each resample; NaN if a column does not vary."""
    moments = compute_moments(x, y, times)
    return np.clip(divide(moments.covariance, np.sqrt(moments.variance_x * moments.variance_y)), -1.0, 1.0)


def lins_concordance(ratings: Ratings) -> Coefficient:
    """Return Lin's concordance correlation coefficient: how close the pairs of two raters are to the line of equality.

    rho_c = 2 s_xy / (s_x^2 + s_y^2 + (mean x - mean y)^2), with moments divided by n.
    L. I.-K. Lin (1989), "A concordance correlation coefficient to evaluate reproducibility", Biometrics 45, 255-268.
    The interval is tanh(atanh(rho_c) -+ z se), with the variance as corrected in Biometrics 56 (2000), 324-325. It
    needs at least three units. Only units that both raters rated are used. The coefficient is undefined if neither
    rater varies and both are equal. Raise ValueError unless there are two raters.
    """
    if len(ratings.raters) != 2:
        raise ValueError(f"Lin's coefficient compares two raters, not {len(ratings.raters)}")
    both = ratings.drop_incomplete()
    x, y = both.values.T

    def compute(times: Floats) -> Floats:
        return compute_concordance(x, y, times)

    def spread(confidence: float) -> Spread | None:
        return _estimate_by_fisher_z(x, y, both.times, confidence)

    left_out = ratings.n_units - both.n_units
    return Coefficient("Lin's concordance correlation coefficient", both, left_out, compute, spread, (-1.0, 1.0))


def _estimate_by_fisher_z(x: Floats, y: Floats, times: Floats, confidence: float) -> Spread | None:
    n, weights = float(times.sum()), times[None]
    rho_c, r = float(compute_concordance(x, y, weights)[0]), float(compute_correlation(x, y, weights)[0])
    if n < 3 or math.isnan(r) or r == 0:
        return None
    method = "Fisher's z of Lin (1989, 2000)"
    if abs(rho_c) > 1 - 1e-12:
        return None  # All pairs agree. Other units may differ.
    moments = compute_moments(x, y, weights)
    shift = float(moments.difference[0] ** 2 / math.sqrt(moments.variance_x[0] * moments.variance_y[0]))
    # The variance of Fisher's z of rho_c. shift: the squared difference of the means over the product of the standard
    # deviations (Lin's u^2).
    rest = 1 - rho_c**2
    terms = (
        (1 - r**2) * rho_c**2 / (rest * r**2),
        2 * rho_c**3 * (1 - rho_c) * shift / (r * rest**2),
        -(rho_c**4) * shift**2 / (2 * r**2 * rest**2),
    )
    reach = normal_quantile(confidence) * math.sqrt(max(0.0, sum(terms)) / (n - 2))
    return Spread(None, math.tanh(math.atanh(rho_c) - reach), math.tanh(math.atanh(rho_c) + reach), method)
