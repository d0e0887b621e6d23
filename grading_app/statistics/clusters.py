"""Means and shares of clustered scores (the answers to one item form a cluster), computed from sums alone.

A database can compute these sums over millions of rows. Sums of disjoint sets of items can be added.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from evalsite.lib.stats.effective_size import AnswerSums, effective_size
from evalsite.lib.stats.t_interval import student_quantile
from evalsite.lib.stats.wilson import modified_wilson


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
        m = self.mean
        found = self.totals_squared - 2 * m * self.sizes_by_totals + m * m * self.sizes_squared
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

    The interval is `modified_wilson`. E. L. Korn & B. I. Graubard (1998), Survey Methodology 24, 193-201, with Wilson's
    interval in place of theirs; `effective_size` has the formula.
    """
    mean = clustered_mean_of(sums, confidence)
    if mean is None:
        return None
    if mean.se is None:
        return Share(mean.n, mean.clusters, mean.mean, None, None, None, None)
    answers = AnswerSums(
        float(sums.n), mean.clusters, sums.sizes_squared, sums.total, sums.totals_squared, sums.sizes_by_totals
    )
    effective = float(effective_size(answers, confidence))
    low, high = modified_wilson(min(max(mean.mean, 0.0), 1.0) * effective, effective, confidence)
    return Share(mean.n, mean.clusters, mean.mean, mean.se, low, high, effective)


def _not_negative(difference: float, scale: float) -> float:
    """Return the difference, or zero if it is below the rounding noise of large sums."""
    return difference if difference > 1e-12 * scale else 0.0
