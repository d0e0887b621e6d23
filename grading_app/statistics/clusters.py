"""Means and shares of clustered scores (the answers to one item form a cluster), computed from sums alone.

A database can compute these sums over millions of rows. Sums of disjoint sets of items can be added.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from evalsite.lib.stats.t_interval import student_quantile
from evalsite.lib.stats.wilson import modified_wilson

# The items that a design effect takes as seen at each end of the scale, besides the real ones.
AT_EACH_END = 0.25


@dataclass(frozen=True, slots=True)
class ClusterSums:
    """Sums over scores and over clusters, with n_i scores of sum S_i in cluster i."""

    n: float = 0.0
    total: float = 0.0
    squares: float = 0.0  # of the scores
    clusters: float = 0.0
    totals_squared: float = 0.0  # sum of S_i^2
    sizes_by_totals: float = 0.0  # sum of n_i S_i
    sizes_squared: float = 0.0  # sum of n_i^2

    def __add__(self, other: ClusterSums) -> ClusterSums:
        """Return the sums of both. No cluster may be in both."""
        return ClusterSums(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))

    @property
    def mean(self) -> float:
        return self.total / self.n

    @property
    def sd(self) -> float | None:
        """The sample standard deviation of the scores (n - 1); None below two scores."""
        if self.n < 2:
            return None
        return math.sqrt(_not_negative(self.squares - self.n * self.mean**2, self.squares) / (self.n - 1))

    @property
    def residuals_squared(self) -> float:
        """The sum over clusters of (S_i - n_i mean)^2."""
        return self.residuals_about(self.mean)

    def residuals_about(self, center: float) -> float:
        """Return the sum over clusters of (S_i - n_i center)^2."""
        found = self.totals_squared - 2 * center * self.sizes_by_totals + center**2 * self.sizes_squared
        return _not_negative(found, self.totals_squared)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of n values in a number of clusters, with standard error and interval (None with one cluster)."""

    n: int
    clusters: int
    mean: float
    se: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Share:
    """A share of successes, with an interval that allows for clusters.

    All but n and share are None with one cluster.
    """

    n: int
    clusters: int
    share: float
    se: float | None
    low: float | None
    high: float | None
    effective_n: float | None


def clustered_mean_of(sums: ClusterSums, confidence: float = 0.95) -> Mean | None:
    """Return the mean, with a standard error that allows the scores of one cluster (an item) to be correlated.

    se^2 = G / (G - 1) * sum over clusters of (sum of residuals in the cluster)^2 / n^2, for G clusters. The interval is
    Student's with G - 1 degrees of freedom. If all clusters have the same size, this is the standard error of the mean
    of the cluster means. K.-Y. Liang & S. L. Zeger (1986), Biometrika 73, 13-22, for the mean, with the usual
    correction for few clusters. Return None for no scores.
    """
    if not sums.n:
        return None
    n, groups = round(sums.n), round(sums.clusters)
    if groups < 2:
        return Mean(n, groups, sums.mean, None, None, None)
    se = math.sqrt(groups / (groups - 1) * sums.residuals_squared) / n
    reach = student_quantile(confidence, groups - 1) * se
    return Mean(n, groups, sums.mean, se, sums.mean - reach, sums.mean + reach)


def clustered_share_of(sums: ClusterSums, confidence: float = 0.95) -> Share | None:
    """Return the share of ones among scores of 0 and 1, with Wilson's interval at the effective sample size.

    The effective size is n / D * (t(n - 1) / t(G - 1))^2 for G clusters, where D is the design effect and t the
    quantile of Student's distribution. It lies between n^2 / sum of n_i^2 (each item counts as one answer) and n. With
    one answer per item it is n. The interval is `modified_wilson`.
    E. L. Korn & B. I. Graubard (1998), "Confidence intervals for proportions with small expected number of positive
    counts estimated from survey data", Survey Methodology 24, 193-201, with Wilson's interval in place of theirs.
    """
    mean = clustered_mean_of(sums, confidence)
    if mean is None:
        return None
    if mean.se is None:
        return Share(mean.n, mean.clusters, mean.mean, None, None, None, None)
    n, groups = sums.n, mean.clusters
    fewer = (student_quantile(confidence, n - 1) / student_quantile(confidence, groups - 1)) ** 2
    effective = min(n, max(n / _design_effect(sums) * fewer, n * n / sums.sizes_squared))
    low, high = modified_wilson(min(max(mean.mean, 0.0), 1.0) * effective, effective, confidence)
    return Share(mean.n, groups, mean.mean, mean.se, low, high, effective)


def _design_effect(sums: ClusterSums) -> float:
    """Return the clustered variance of a share over that of as many independent answers, at least 1.

    Both variances are taken without their corrections for few clusters and answers, so that one answer per item gives
    1. Both include AT_EACH_END items of ones alone, and as many of zeros alone. Without them, a share near 0 or 1 says
    nothing about how alike the answers of an item are, and one wrong answer of 200 would change the effective size from
    10 to 200. The number was chosen by simulation: `benchmarks/coverage.py`.
    """
    size = sums.sizes_squared / sums.n  # The mean size of an answer's item.
    n = sums.n + 2 * AT_EACH_END * size
    share = (sums.total + AT_EACH_END * size) / n
    squares = sums.residuals_about(share) + AT_EACH_END * size**2 * (share**2 + (1 - share) ** 2)
    return max(1.0, squares / (n * share * (1 - share)))


def _not_negative(difference: float, scale: float) -> float:
    """Return the difference, or zero if it is below the rounding noise of large sums."""
    return difference if difference > 1e-12 * scale else 0.0
