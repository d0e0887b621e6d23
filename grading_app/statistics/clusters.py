"""Means and shares of clustered scores (the answers to one item form a cluster), computed from sums alone.

A database can compute these sums over millions of rows. Sums of disjoint sets of items can be added.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace

from evalsite.lib.stats import AnswerSums, estimate_effective_size, modified_wilson, student_quantile


@dataclass(frozen=True, slots=True)
class ClusterSums:
    """Sums over scores and over clusters, with n_i scores of sum S_i in cluster i.

    `origin`, a number near the scores, is subtracted from all scores, because squares of scores near 1e9 would lose
    their spread. Sums about 0 are exact for scores of 0 and 1.
    """

    n: float = 0.0
    total: float = 0.0
    squares: float = 0.0  # of the scores
    clusters: float = 0.0
    totals_squared: float = 0.0  # sum of S_i^2
    sizes_by_totals: float = 0.0  # sum of n_i S_i
    sizes_squared: float = 0.0  # sum of n_i^2
    origin: float = 0.0

    def __add__(self, other: ClusterSums) -> ClusterSums:
        """Return the sums of both, about the origin of the first with scores. No cluster may be in both."""
        if not self.n:
            return other
        pairs = zip(astuple(self)[:-1], astuple(other.about(self.origin))[:-1], strict=True)
        return ClusterSums(*[*(value + other_value for value, other_value in pairs), self.origin])

    def about(self, origin: float) -> ClusterSums:
        """Return the sums of the same scores about another origin."""
        step = self.origin - origin
        if not step or not self.n:
            return replace(self, origin=origin)
        return ClusterSums(
            self.n,
            self.total + step * self.n,
            self.squares + 2 * step * self.total + step**2 * self.n,
            self.clusters,
            self.totals_squared + 2 * step * self.sizes_by_totals + step**2 * self.sizes_squared,
            self.sizes_by_totals + step * self.sizes_squared,
            self.sizes_squared,
            origin,
        )

    @property
    def mean(self) -> float:
        return self.origin + self.total / self.n

    @property
    def sd(self) -> float | None:
        """The sample standard deviation of the scores (n - 1); None below two scores."""
        if self.n < 2:
            return None
        return math.sqrt(_drop_rounding_error(self.squares - self.total**2 / self.n, self.squares) / (self.n - 1))

    @property
    def residuals_squared(self) -> float:
        """The sum over clusters of (S_i - n_i mean)^2."""
        offset = self.total / self.n
        squares = self.totals_squared - 2 * offset * self.sizes_by_totals + offset * offset * self.sizes_squared
        return _drop_rounding_error(squares, self.totals_squared)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of n values in clusters, with its standard error and interval; None for one cluster."""

    n: int
    clusters: int
    mean: float
    se: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Share:
    """A share of successes, with an interval that allows for clusters.

    For one cluster, se, low, high and effective_n are None.
    """

    n: int
    clusters: int
    share: float
    se: float | None
    low: float | None
    high: float | None
    effective_n: float | None


def clustered_mean(sums: ClusterSums, confidence: float = 0.95) -> Mean | None:
    """Return the mean, with a standard error that allows scores of one cluster (an item) to be correlated.

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


def clustered_share(sums: ClusterSums, confidence: float = 0.95) -> Share | None:
    """Return the share of ones among scores of 0 and 1, with Wilson's interval at the effective sample size.

    The interval is `modified_wilson`. E. L. Korn & B. I. Graubard (1998), Survey Methodology 24, 193-201, with Wilson's
    interval in place of theirs; `estimate_effective_size` has the formula.
    """
    mean = clustered_mean(sums, confidence)
    if mean is None:
        return None
    if mean.se is None:
        return Share(mean.n, mean.clusters, mean.mean, None, None, None, None)
    right = sums.about(0.0)
    answers = AnswerSums(
        float(right.n), mean.clusters, right.sizes_squared, right.total, right.totals_squared, right.sizes_by_totals
    )
    effective = float(estimate_effective_size(answers, confidence))
    low, high = modified_wilson(min(max(mean.mean, 0.0), 1.0) * effective, effective, confidence)
    return Share(mean.n, mean.clusters, mean.mean, mean.se, low, high, effective)


def _drop_rounding_error(difference: float, scale: float) -> float:
    """Return the difference, or zero if it is below the rounding error of large sums."""
    return difference if difference > 1e-12 * scale else 0.0
