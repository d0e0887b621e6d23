"""Prediction-powered inference: the people's mean over all units, if people rated some units and the judge all."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from evalsite.lib.stats.t_interval import student_quantile
from grading_app.statistics.bootstrap import Clusters, group_by_item
from grading_app.statistics.estimates import AgreementEstimate
from grading_app.statistics.intervals import bounded_score_interval
from grading_app.statistics.judge_bias import compute_people_means
from grading_app.statistics.ratings import Floats, Ratings

# With three items, one degree of freedom is left, and intervals are twice as wide as the people's own.
MIN_FITTED_ITEMS = 4
PEOPLE_SHARE, PEOPLE_MEAN = "share by the people", "mean of the people"


@dataclass(frozen=True, slots=True)
class CorrectedMean:
    """Three estimates of the people's mean.

    corrected: by prediction-powered inference.
    people: from only the people's ratings.
    judge: the judge's own mean over all units, with its bias.
    judge_share: the weight of the judge, 0 to 1.
    rectifier: the mean of people minus judge, on the units that both rated.
    """

    corrected: AgreementEstimate
    people: AgreementEstimate
    judge: AgreementEstimate
    judge_share: float
    rectifier: float


@dataclass(frozen=True, eq=False)
class _Sample:
    """The ratings that the corrected mean uses.

    f: the judge on units that people did not rate. y, g: people and judge on the units that people rated.
    unrated, rated: the items of both parts, with the same kinds. times_f, times_y: the number of units of each row.
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
) -> CorrectedMean:
    """Return the mean of the people's ratings over all units. People rated a random part, and the judge rated all.

    theta = share * mean over unrated units of f + mean over rated units of (y - share * f), where y is the people's
    mean rating of a unit and f is the judge's. So the judge's mean is corrected by its error on the units that people
    rated. Its interval is narrower than the people's own if the judge predicts their ratings. The share, within 0 and
    1, makes the interval narrowest, so that a bad judge does no harm. A. N. Angelopoulos, S. Bates, C. Fannjiang, M. I.
    Jordan & T. Zrnic (2023), "Prediction-powered inference", Science 382, 669-674; A. N. Angelopoulos, J. C. Duchi &
    T. Zrnic (2023), "PPI++", arXiv:2311.01453.
    The standard error sums the squared residuals of both parts over items, times G / (G - 1) for G items that people
    rated. items: unit -> item; by default, each unit is an item. The interval is Student's with G - 1 degrees of
    freedom. If each unit is an item, this is the paper's variance with n - 1 in place of n. A share that is fitted to
    the same items takes one more degree of freedom, as a slope does: G / (G - 2) and G - 2. Otherwise intervals over
    few items would be too narrow (over five items, a 95 % interval would cover 89 %). Below four items, the share is 0.
    If all ratings are 0 or 1, the interval is `bounded_score_interval`, which stays within 0 and 1 and never has zero
    width. Other ratings without variance have no interval.
    The units that people rated must be a random part of all units, or the result is wrong. Units without the judge's
    rating are excluded. Raise ValueError if no unit has both ratings, the judge is not a rater, or a unit has no item.
    """
    judged_units = ratings.select_units(ratings.given[:, ratings.column(judge)])
    clusters, times = group_by_item(judged_units, items), judged_units.times
    is_rated = judged_units.drop_rater(judge).per_unit > 0
    judge_values, means = judged_units.values[:, judged_units.column(judge)], compute_people_means(judged_units, judge)
    sample = _Sample(
        judge_values[~is_rated],
        means[is_rated],
        judge_values[is_rated],
        times[~is_rated],
        times[is_rated],
        clusters.select_units(~is_rated),
        clusters.select_units(is_rated),
        set(judged_units.categories.tolist()) <= {0.0, 1.0},
    )
    if not sample.y.size:
        raise ValueError("no unit was rated by the judge and by people")
    share = _find_best_share(sample) if sample.f.size else 0.0
    people = judged_units.drop_rater(judge)
    n_unjudged = ratings.n_units - judged_units.n_units
    common = AgreementEstimate("", None, judged_units.n_units, people.n_raters, people.n_ratings, n_unjudged)
    corrected = _make_estimate(
        replace(common, formula="prediction-powered mean, tuned"), sample, share, confidence, int(share > 0)
    )
    people_estimate = _make_estimate(common, sample, 0.0, confidence)
    rated_units = round(float(sample.times_y.sum()))
    people_formula = PEOPLE_SHARE if sample.is_share else PEOPLE_MEAN
    people_estimate = replace(people_estimate, formula=people_formula, units=rated_units)
    judged_mean = float(np.average(judged_units.values[:, judged_units.column(judge)], weights=judged_units.times))
    judge_estimate = replace(
        common, formula="mean of the judge", estimate=judged_mean, raters=1, ratings=judged_units.n_units
    )
    rectifier = float(np.average(sample.y - sample.g, weights=sample.times_y))
    return CorrectedMean(corrected, people_estimate, judge_estimate, share, rectifier)


def _make_estimate(
    common: AgreementEstimate, sample: _Sample, share: float, confidence: float, fitted: int = 0
) -> AgreementEstimate:
    """Return the estimate with its interval.

    fitted: the number of parameters, besides the mean, that were fitted to the people's ratings.
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
    degrees = groups - 1 - fitted
    se = math.sqrt(groups / degrees * float(sample.rated.kind_sizes @ residuals**2))
    reach = student_quantile(confidence, degrees) * se
    low, high = estimate - reach, estimate + reach
    if sample.is_share and 0 <= estimate <= 1:
        low, high = bounded_score_interval(estimate, se, degrees + 1, (0.0, 1.0), confidence)
    elif not se:
        return replace(common, estimate=estimate, se=se, clusters=groups)
    elif sample.is_share:  # The corrected mean may lie outside 0 to 1.
        low, high = min(1.0, max(0.0, low)), min(1.0, max(0.0, high))
    return replace(
        common, estimate=estimate, se=se, low=low, high=high, confidence=confidence,
        interval=f"Student's t, clustered by {groups:,} items that people rated", clusters=groups,
    )  # fmt: skip


def _find_best_share(sample: _Sample) -> float:
    """Return the share that minimises the sum of squared residuals of all items, a parabola in the share."""
    if sample.rated.n < MIN_FITTED_ITEMS:
        return 0.0
    fixed, kind_sizes = _sum_by_item(sample.rated, sample.y, sample.times_y), sample.rated.kind_sizes
    moving = _sum_by_item(sample.unrated, sample.f, sample.times_f)
    moving = moving - _sum_by_item(sample.rated, sample.g, sample.times_y)
    squares = float(kind_sizes @ moving**2)
    return min(1.0, max(0.0, -float(kind_sizes @ (fixed * moving)) / squares)) if squares > 0 else 0.0


def _sum_by_item(clusters: Clusters, values: Floats, times: Floats) -> Floats:
    """Return the residuals of a mean, as parts of it, summed over each item: (kinds of items,)."""
    return clusters.totals((values - np.average(values, weights=times)) / times.sum())
