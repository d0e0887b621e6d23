"""Scores in clusters, and their mean and standard error computed by definition."""

import math
from typing import NamedTuple

from scipy.stats import t as student

from grading_app.statistics.clusters import ClusterSums


class Expected(NamedTuple):
    mean: float
    se: float | None
    low: float | None
    high: float | None


def group_by_cluster(values, clusters):
    groups = {}
    for value, cluster in zip(values, clusters, strict=True):
        groups.setdefault(cluster, []).append(value)
    return list(groups.values())


def compute_sums(groups):
    flat = [value for group in groups for value in group]
    return ClusterSums(
        n=len(flat),
        total=sum(flat),
        squares=sum(value**2 for value in flat),
        clusters=len(groups),
        totals_squared=sum(sum(group) ** 2 for group in groups),
        sizes_by_totals=sum(len(group) * sum(group) for group in groups),
        sizes_squared=sum(len(group) ** 2 for group in groups),
    )


def expect_clustered_mean(groups, confidence=0.95):
    """Return the mean and its cluster-robust standard error after Liang and Zeger, by definition."""
    flat = [value for group in groups for value in group]
    mean = math.fsum(flat) / len(flat)
    if len(groups) < 2:
        return Expected(mean, None, None, None)
    residuals = [math.fsum(value - mean for value in group) for group in groups]
    se = math.sqrt(len(groups) / (len(groups) - 1) * math.fsum(one**2 for one in residuals)) / len(flat)
    reach = student.ppf((1 + confidence) / 2, len(groups) - 1) * se
    return Expected(mean, se, mean - reach, mean + reach)
