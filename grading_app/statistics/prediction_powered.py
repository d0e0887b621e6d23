"""Prediction-powered inference: the people's mean over all units, from few ratings by people and all by the judge."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from evalsite.lib.stats.t_interval import student_quantile
from grading_app.statistics.bootstrap import Clusters, group_by_item
from grading_app.statistics.estimates import Estimate
from grading_app.statistics.intervals import bounded_score_interval
from grading_app.statistics.judge_bias import compute_people_means
from grading_app.statistics.ratings import Floats, Ratings

# Items. With three, one degree of freedom is left, and intervals are twice as wide as the people's own.
FEWEST_FITTED = 4


@dataclass(frozen=True, slots=True)
class CorrectedMean:
    """Three estimates of the people's mean.

    corrected: by prediction-powered inference.
    people: from the people's ratings alone.
    judge: the judge's own mean over all units, with its bias.
    judge_share: the weight of the judge, 0 to 1 (1 unless tuned).
    rectifier: the mean of people minus judge, on the units that both rated.
    """

    corrected: Estimate
    people: Estimate
    judge: Estimate
    judge_share: float
    rectifier: float


@dataclass(frozen=True, eq=False)
class _Sample:
    """The ratings that the corrected mean uses.

    f: the judge on units that people did not rate. y, g: people and judge on the units that people rated.
    unrated, rated: the items of both parts, kind by kind the same. times_f, times_y: the number of units of each row.
    is_share: all ratings are 0 or 1.
    """

    f: Floats
    y: Floats
    g: Floats
    times_f: Floats
    times_y: Floats
    unrated: Clusters
    rated: Clusters
    is_share: bool


def corrected_mean(
    ratings: Ratings,
    judge: Hashable,
    items: Mapping[Hashable, Hashable] | None = None,
    confidence: float = 0.95,
    tuned: bool = False,
) -> CorrectedMean:
    """Return the mean of the people's ratings over all units. People rated a random part, and the judge rated all.

    theta = share * mean over unrated units of f + mean over rated units of (y - share * f). y is the people's mean
    rating of a unit, and f is the judge's. So the judge's mean is corrected by its error on the units that people
    rated. The estimate is unbiased however good the judge is. It is narrower than the people's own if the judge
    predicts them.
    A. N. Angelopoulos, S. Bates, C. Fannjiang, M. I. Jordan & T. Zrnic (2023), "Prediction-powered inference", Science
    382, 669-674 (share = 1). tuned: use the share, within 0 and 1, that makes the interval narrowest, so that a bad
    judge costs nothing: A. N. Angelopoulos, J. C. Duchi & T. Zrnic (2023), "PPI++", arXiv:2311.01453.
    The standard error adds up the squared residuals of both parts over items, times G / (G - 1) for G items that people
    rated. `items` maps a unit to its item; without it each unit is an item. The interval is Student's with G - 1
    degrees of freedom. If each unit is an item, this is the paper's variance with n - 1 in place of n. A share that was
    fitted to the same items takes one more degree, as a slope does: G / (G - 2) and G - 2. Without it, intervals of few
    items would be too narrow (for five items a 95 % interval would cover 89 %). Below four items the share is 0,
    because there is too little to fit.
    If all ratings are 0 or 1, the interval is `bounded_score_interval`, which stays within 0 and 1 and never has zero
    width. Other ratings without any spread have no interval.
    The units that people rated must be a random part of all units, or the result is wrong. Units without the judge's
    rating are left out. Raise ValueError if no unit has both ratings, the judge is no rater, or a unit has no item.
    """
    known = ratings.select_units(ratings.given[:, ratings.column(judge)])
    sample = _collect_sample(known, judge, items)
    if not sample.y.size:
        raise ValueError("no unit was rated by the judge and by people")
    share = (_find_best_share(sample) if tuned else 1.0) if sample.f.size else 0.0
    fitted = int(tuned and share > 0)
    people = known.drop_rater(judge)
    common = Estimate("", None, known.n_units, people.n_raters, people.n_ratings, ratings.n_units - known.n_units)
    how = ", tuned" if tuned else ""
    corrected = replace(
        _make_estimate(common, sample, share, confidence, fitted), formula=f"prediction-powered mean{how}"
    )
    alone = replace(_make_estimate(common, sample, 0.0, confidence), formula="mean of the people",
                    units=round(float(sample.times_y.sum())))  # fmt: skip
    judged_mean = float(np.average(known.values[:, known.column(judge)], weights=known.times))
    judged = replace(common, formula="mean of the judge", estimate=judged_mean, raters=1, ratings=known.n_units)
    rectifier = float(np.average(sample.y - sample.g, weights=sample.times_y))
    return CorrectedMean(corrected, alone, judged, share, rectifier)


def _collect_sample(known: Ratings, judge: Hashable, items: Mapping[Hashable, Hashable] | None) -> _Sample:
    clusters, times = group_by_item(known, items), known.times
    rated = known.drop_rater(judge).per_unit > 0
    judged, means = known.values[:, known.column(judge)], compute_people_means(known, judge)
    return _Sample(
        judged[~rated], means[rated], judged[rated], times[~rated], times[rated], clusters.select_units(~rated),
        clusters.select_units(rated), set(known.categories.tolist()) <= {0.0, 1.0},
    )  # fmt: skip


def _make_estimate(common: Estimate, sample: _Sample, share: float, confidence: float, fitted: int = 0) -> Estimate:
    """Return the estimate with its interval.

    fitted: how many numbers, besides the mean, were fitted to the people's ratings.
    """
    rectified = sample.y - share * sample.g
    estimate = float(np.average(rectified, weights=sample.times_y))
    estimate += share * float(np.average(sample.f, weights=sample.times_f)) if share else 0.0
    groups = sample.rated.n
    if groups < 2:
        return replace(common, estimate=estimate, clusters=groups)
    residuals = _sum_by_item(sample.rated, rectified, sample.times_y)
    if share:
        residuals = residuals + share * _sum_by_item(sample.unrated, sample.f, sample.times_f)
    free = groups - 1 - fitted
    se = math.sqrt(groups / free * float(sample.rated.alike @ residuals**2))
    reach = student_quantile(confidence, free) * se
    low, high = estimate - reach, estimate + reach
    if sample.is_share and 0 <= estimate <= 1:
        low, high = bounded_score_interval(estimate, se, free + 1, (0.0, 1.0), confidence)
    elif not se:
        return replace(common, estimate=estimate, se=se, clusters=groups)
    elif sample.is_share:  # Correcting the judge's share may lead beyond 0 or 1.
        low, high = min(1.0, max(0.0, low)), min(1.0, max(0.0, high))
    return replace(
        common, estimate=estimate, se=se, low=low, high=high, confidence=confidence,
        interval=f"Student's t, clustered by {groups:,} items that people rated", clusters=groups,
    )  # fmt: skip


def _find_best_share(sample: _Sample) -> float:
    """Return the share that minimises the sum of squared residuals of all items, a parabola in the share."""
    if sample.rated.n < FEWEST_FITTED:
        return 0.0
    fixed, alike = _sum_by_item(sample.rated, sample.y, sample.times_y), sample.rated.alike
    moving = _sum_by_item(sample.unrated, sample.f, sample.times_f)
    moving = moving - _sum_by_item(sample.rated, sample.g, sample.times_y)
    squares = float(alike @ moving**2)
    return min(1.0, max(0.0, -float(alike @ (fixed * moving)) / squares)) if squares > 0 else 0.0


def _sum_by_item(clusters: Clusters, values: Floats, times: Floats) -> Floats:
    """Return the residuals of a mean, as parts of it, added up over each item: (kinds of items,)."""
    return clusters.totals((values - np.average(values, weights=times)) / times.sum())
