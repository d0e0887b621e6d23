"""A judge model compared with people: bias, slope, agreement, limits of agreement, and means corrected for its bias.

`corrected_mean` is prediction-powered inference: the people's mean over all units, if people rated some units and the
judge all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evalsite.lib.stats import student_quantile
from grading_app.statistics.bootstrap import Clusters, bootstrap, group_by_item, sum_by_item
from grading_app.statistics.clusters import clustered_mean
from grading_app.statistics.concordance import compute_concordance, compute_correlation, compute_moments
from grading_app.statistics.intervals import AgreementEstimate, Spread, bounded_score_interval
from grading_app.statistics.measures import Coefficient, divide
from grading_app.statistics.ratings import Floats, Integers, Ratings

Line = Literal["deming", "ols"]
Measure = Literal["concordance", "correlation", "same answer"]
MEASURES: dict[Measure, str] = {
    "concordance": "Lin's concordance with the mean of the others",
    "correlation": "Pearson's r with the mean of the others",
    "same answer": "share of the others with the same rating",
}
# With three items, one degree of freedom is left, and intervals are twice as wide as the people's own.
MIN_FITTED_ITEMS = 4
PEOPLE_SHARE, PEOPLE_MEAN = "share by the people", "mean of the people"


@dataclass(frozen=True, slots=True)
class AgreementWithPeople:
    """The judge's agreement with people, the people's agreement with each other, and the difference."""

    judge: AgreementEstimate
    people: AgreementEstimate
    gap: AgreementEstimate


def judge_bias(ratings: Ratings, judge: Hashable, items: Mapping[Hashable, Hashable] | None = None) -> Coefficient:
    """Return how much higher the judge rates than the mean of the people, averaged over units (in units of the scale).

    The interval is Student's, with the standard error clustered by item: K.-Y. Liang & S. L. Zeger (1986), Biometrika
    73, 13-22. items: unit -> item; by default, each unit is an item. Only units that the judge and a person rated are
    used. Raise ValueError if the judge is not among the raters, or a unit has no item.
    """
    used, left_out = select_common_units(ratings, judge)
    excess = used.values[:, used.column(judge)] - compute_people_means(used, judge)

    def compute(times: Floats) -> Floats:
        return divide(times @ excess, times.sum(axis=1))

    def spread(confidence: float) -> Spread | None:
        mean = clustered_mean(sum_by_item(group_by_item(used, items), used.times, excess), confidence)
        if mean is None or mean.low is None or mean.high is None or not mean.se:
            return None
        return Spread(mean.se, mean.low, mean.high, f"Student's t, clustered by {mean.clusters:,} items")

    return Coefficient("judge's bias: judge less the mean of the people", used, left_out, compute, spread)


def judge_slope(ratings: Ratings, judge: Hashable, line: Line = "deming", error_ratio: float = 1.0) -> Coefficient:
    """Return the slope of the judge's ratings (y) on the people's means (x).

    Below 1 the judge avoids the ends of the scale.

    deming: both have measurement error; error_ratio = error variance of the judge / of the people's means;
    slope = (s_yy - e s_xx + sqrt((s_yy - e s_xx)^2 + 4 e s_xy^2)) / (2 s_xy).
    W. E. Deming (1943), "Statistical adjustment of data"; K. Linnet (1993), Clinical Chemistry 39, 424-432.
    ols: s_xy / s_xx, least squares. Error in the people's means pulls it towards 0.
    The slope is undefined if both are uncorrelated (s_xy = 0), or if the people's means do not vary. Its interval comes
    from the bootstrap. Raise ValueError if the judge is not among the raters, or the error ratio is not positive.
    """
    if not 0 < error_ratio < np.inf:
        raise ValueError(f"the error ratio must be positive, not {error_ratio}")
    used, left_out = select_common_units(ratings, judge)
    x, y = compute_people_means(used, judge), used.values[:, used.column(judge)]

    def compute(times: Floats) -> Floats:
        moments = compute_moments(x, y, times)
        if line == "ols":
            return divide(moments.covariance, moments.variance_x)
        excess = moments.variance_y - error_ratio * moments.variance_x
        root = np.sqrt(excess**2 + 4 * error_ratio * moments.covariance**2)
        return np.sign(moments.covariance) * divide(excess + root, 2 * np.abs(moments.covariance))

    measure_name = "least squares" if line == "ols" else f"Deming, error ratio {error_ratio:g}"
    return Coefficient(f"slope of the judge over the mean of the people ({measure_name})", used, left_out, compute)


def compare_judge_with_people(
    ratings: Ratings,
    judge: Hashable,
    measure: Measure,
    *,
    seed: int,
    items: Mapping[Hashable, Hashable] | None = None,
    resamples: int = 2000,
    confidence: float = 0.95,
    repeated: Floats | None = None,
) -> AgreementWithPeople:
    """Compare the judge's agreement with people to the people's agreement with each other.

    Each person in turn is left out. Then both this person and the judge are compared with the other people who rated
    the unit: with their mean (concordance, correlation), or rating by rating (same answer). So judge and person have
    the same reference, and the judge has no advantage from a mean of one more rating. The persons of a unit share its
    weight, so that each unit counts once.
    The people's value is the ceiling. If the interval of the gap lies below 0, the judge agrees less than people do.
    repeated: (units, repetitions), the judge's single ratings if its column is their mean; NaN for none. Then "same
    answer" compares each of them, because a mean is rarely a point of the scale.
    Only units with ratings by the judge and two people are used. All three intervals come from `bootstrap`.
    Raise ValueError if the judge is not among the raters, and in the cases of `bootstrap`.
    """
    coefficients = compute_comparison(ratings, judge, measure, repeated)
    return AgreementWithPeople(
        *(
            bootstrap(coefficient, seed=seed, items=items, resamples=resamples, confidence=confidence)
            for coefficient in coefficients
        )
    )


def compute_comparison(
    ratings: Ratings, judge: Hashable, measure: Measure, repeated: Floats | None = None
) -> tuple[Coefficient, ...]:
    """Return the three measures of an `AgreementWithPeople`, without intervals."""
    is_used = _mark_common_units(ratings, judge, people=2)
    used, left_out = select_common_units(ratings, judge, people=2)
    table = used.drop_rater(judge)
    unit, person = np.nonzero(table.given)
    own, judged = table.values[unit, person], used.values[unit, used.column(judge)]
    if repeated is not None and measure == "same answer":
        judged = repeated[is_used][unit].T
    share = 1 / table.per_unit[unit]
    if measure == "same answer":
        judge_shares, people_shares = (
            np.bincount(unit, share * _share_of_equal_ratings(table, unit, person, values)) for values in (judged, own)
        )
        return _compute_mean_shares(used, left_out, judge_shares.astype(np.float64), people_shares.astype(np.float64))
    judge_measure, people_measure = (
        _compute_agreement(measure, table, unit, person, values) for values in (judged, own)
    )

    def compute(measured: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
        return lambda times: measured(times[:, unit] * share)

    def gap(times: Floats) -> Floats:
        return judge_measure(times) - people_measure(times)

    measure_name = MEASURES[measure]
    return tuple(
        Coefficient(f"{subject}: {measure_name}", used, left_out, compute(measured), bounds=bounds)
        for subject, measured, bounds in (
            ("judge", judge_measure, (-1.0, 1.0)),
            ("people", people_measure, (-1.0, 1.0)),
            ("judge less people", gap, (-2.0, 2.0)),
        )
    )


def _compute_mean_shares(used: Ratings, left_out: int, judge: Floats, people: Floats) -> tuple[Coefficient, ...]:
    """Return the mean shares of equal ratings, and their difference. judge, people: (units,)."""

    def coefficient(subject: str, values: Floats, bounds: tuple[float, float]) -> Coefficient:
        def compute(times: Floats) -> Floats:
            return divide(times @ values, times.sum(axis=1))

        return Coefficient(
            f"{subject}: {MEASURES['same answer']}", used, left_out, compute, bounds=bounds, unit_values=values
        )

    return (
        coefficient("judge", judge, (0.0, 1.0)),
        coefficient("people", people, (0.0, 1.0)),
        coefficient("judge less people", judge - people, (-1.0, 1.0)),
    )


def select_common_units(ratings: Ratings, judge: Hashable, people: int = 1) -> tuple[Ratings, int]:
    """Return the units that the judge and at least `people` people rated, and the number of other units."""
    used = ratings.select_units(_mark_common_units(ratings, judge, people))
    return used, ratings.n_units - used.n_units


def _mark_common_units(ratings: Ratings, judge: Hashable, people: int) -> NDArray[np.bool_]:
    """Return True for each unit that the judge and at least `people` people rated: (units,)."""
    is_judged: NDArray[np.bool_] = ratings.given[:, ratings.column(judge)]
    return is_judged & (ratings.drop_rater(judge).per_unit >= people)


def compute_people_means(ratings: Ratings, judge: Hashable) -> Floats:
    """Return the mean rating by people for each unit, (units,). Every unit needs at least one."""
    people = ratings.drop_rater(judge)
    means: Floats = np.nansum(people.values, axis=1) / np.maximum(people.per_unit, 1)
    return means


def _share_of_equal_ratings(table: Ratings, unit: Integers, person: Integers, values: Floats) -> Floats:
    """Return the share of the other raters of the unit who gave this value, for each left-out person.

    values: (left-out persons,), or (repetitions, left-out persons); the repetitions share the weight of one rating.
    """
    own, others = table.values[unit, person], table.per_unit[unit] - 1
    same = np.where(np.isnan(values), np.nan, _count_equal_ratings(table, unit, values) - (values == own))
    shares: Floats = (np.nanmean(same, axis=0) if same.ndim > 1 else same) / others
    return shares


def _compute_agreement(
    measure: Measure, table: Ratings, unit: Integers, person: Integers, values: Floats
) -> Callable[[Floats], Floats]:
    """Return a function for the agreement of `values` with the mean of the other raters of the unit.

    values: (left-out persons,). The function maps weights (resamples, left-out persons) to (resamples,). The sum of the
    others is the total minus the person's own rating, which avoids a table of raters x raters.
    """
    own, others = table.values[unit, person], table.per_unit[unit] - 1
    means = (np.nansum(table.values, axis=1)[unit] - own) / others
    pair = compute_concordance if measure == "concordance" else compute_correlation
    return lambda times: pair(values, means, times)


def _count_equal_ratings(table: Ratings, unit: Integers, values: Floats) -> Floats:
    """Return how many raters of the unit gave this value: (..., left-out persons)."""
    categories, counts = table.categories, table.counts
    indices = np.searchsorted(categories, values).clip(max=len(categories) - 1)
    equal_counts: Floats = np.where(categories[indices] == values, counts[unit, indices], 0.0)
    return equal_counts


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


LIMIT_IN_SD = 1.96


@dataclass(frozen=True, slots=True)
class LimitsOfAgreement:
    """Bland and Altman's limits, with the points of their plot.

    differences: the judge's rating minus the people's mean. means: the mean of both. times: the number of units at
    each point. mean: the mean of the differences. low, high: the limits.
    """

    means: tuple[float, ...]
    differences: tuple[float, ...]
    times: tuple[int, ...]
    mean: float
    low: AgreementEstimate
    high: AgreementEstimate


def limits_of_agreement(
    ratings: Ratings,
    judge: Hashable,
    *,
    seed: int,
    items: Mapping[Hashable, Hashable] | None = None,
    resamples: int = 2000,
) -> LimitsOfAgreement:
    """Return the mean difference of judge and people -+ 1.96 standard deviations of the differences (divided by n - 1).

    J. M. Bland & D. G. Altman (1986), "Statistical methods for assessing agreement between two methods of clinical
    measurement", Lancet 327, 307-310. Each limit has the interval of `bootstrap`, which draws whole items. Only units
    that the judge and a person rated are used. With fewer than two units, the limits are None. Raise ValueError if no
    unit has both ratings, and in the cases of `judge_bias`.
    """
    used, left_out = select_common_units(ratings, judge)
    if not used.units:
        raise ValueError("no unit was rated by the judge and by people")
    people, judged = compute_people_means(used, judge), used.values[:, used.column(judge)]
    differences = judged - people
    low, high = (
        bootstrap(
            Coefficient(f"{name} limit of agreement", used, left_out, _estimate_limit(differences, reach)),
            seed=seed, items=items, resamples=resamples,
        )
        for name, reach in (("lower", -LIMIT_IN_SD), ("upper", LIMIT_IN_SD))
    )  # fmt: skip
    means = (judged + people) / 2
    times = tuple(np.rint(used.times).astype(int).tolist())
    mean = float(np.average(differences, weights=used.times))
    return LimitsOfAgreement(tuple(means.tolist()), tuple(differences.tolist()), times, mean, low, high)


def _estimate_limit(differences: Floats, sd_multiple: float) -> Callable[[Floats], Floats]:
    def compute(times: Floats) -> Floats:
        n = times.sum(axis=1)
        means = times @ differences / n
        squares = (times * (differences[None, :] - means[:, None]) ** 2).sum(axis=1)
        # With fewer than two units the quotient is NaN, and so is the limit.
        limits: Floats = means + sd_multiple * np.sqrt(divide(squares, n - 1))
        return limits

    return compute
