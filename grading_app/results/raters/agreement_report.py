"""The numbers of the agreement page: measures of agreement, each with its formula, source and n. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

import numpy as np

from grading_app.results.raters.reference_report import (
    ReferenceComparison,
    compare_with_references,
    compute_equal_share,
)
from grading_app.statistics.agreement_coefficients import (
    ConfusionMatrix,
    Level,
    cohens_kappa,
    confusion_matrix,
    fleiss_kappa,
    kendalls_w,
    krippendorff_alpha,
    percent_agreement,
)
from grading_app.statistics.bootstrap import AGREEMENT_RESAMPLES, AGREEMENT_SEED, bootstrap, estimate_agreement
from grading_app.statistics.concordance import compute_concordance, compute_correlation, lins_concordance
from grading_app.statistics.intervals import AgreementEstimate, Bounds, bounded_score_interval
from grading_app.statistics.intraclass import FORMS, intraclass_correlation
from grading_app.statistics.judge_bias import (
    AgreementWithPeople,
    CorrectedMean,
    LimitsOfAgreement,
    Measure,
    compare_judge_with_people,
    corrected_mean,
    judge_bias,
    judge_slope,
    limits_of_agreement,
)
from grading_app.statistics.measures import MEASURE_DESCRIPTIONS, Coefficient, MeasureDescription
from grading_app.statistics.ratings import Ratings

SEED, RESAMPLES = AGREEMENT_SEED, AGREEMENT_RESAMPLES
MAX_CATEGORIES = 15
MAX_ORDINAL_POINTS = 11
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval", "ratio")
NOMINAL_CHOICES = "choices of the first, the second or neither answer are categories without an order"
MAX_PAIRED_RATERS = 12  # With more raters there is no list of all pairs.


@dataclass(frozen=True)
class MeasureResult:
    """One measure: its estimate, or the reason why there is none. suits_scale: the measure suits the scale best."""

    name: str
    estimate: AgreementEstimate | None
    reason: str
    description: MeasureDescription
    suits_scale: bool = False


@dataclass(frozen=True)
class RaterCoverage:
    """The ratings of one rater. low, high: the lowest and the highest rating; None without ratings."""

    rater: Hashable
    n: int
    shared: int  # units that another rater has rated, too
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class RaterPair:
    """Two raters on the units that both rated. Undefined measures are None."""

    first: Hashable
    second: Hashable
    n: int
    same: float | None
    kappa: float | None  # Quadratic weights. For names: no weights, and r, ccc and difference are None.
    r: float | None
    ccc: float | None
    difference: float | None


@dataclass(frozen=True)
class JudgeComparison:
    """A judge compared with people.

    standings: the agreement with people, by two measures (one for names); empty if no unit has ratings by two people.
    slope, limits: None for names.
    """

    judge: Hashable
    people: int
    bias: AgreementEstimate
    slope: AgreementEstimate | None
    limits: LimitsOfAgreement | None
    standings: list[AgreementWithPeople]
    mean: CorrectedMean


@dataclass(frozen=True)
class AgreementReport:
    """All numbers of the agreement page."""

    coverage: list[RaterCoverage]
    shared: int  # units with at least two ratings
    level: Level
    level_reason: str
    measures: list[MeasureResult]
    pairs: list[RaterPair]
    confusion: ConfusionMatrix | None
    judge_comparison: JudgeComparison | None
    references: list[ReferenceComparison] = field(default_factory=list)


SingleRatings = Mapping[str, Sequence[str]]
"""The columns with the single ratings behind each mean of repeated ratings, by the mean's rater."""


@dataclass(frozen=True)
class AgreementResult:
    """The result of a comparison. units: the number of compared units, out of `total`."""

    units: int
    total: int
    report: AgreementReport | None


def compute_agreement(
    ratings: Ratings,
    *,
    raters: list[str],
    pair: tuple[str, str] | None,
    judge: str | None,
    people: list[str],
    are_names: bool = False,
    references: Sequence[str] = (),
    singles: SingleRatings | None = None,
    humans: Sequence[str] = (),
    scale: Bounds | None = None,
) -> AgreementReport:
    """Return all numbers of the page. A rater without ratings is listed, but not compared.

    are_names: the ratings are categories without an order, so only measures for names are computed.
    references: columns that raters are compared with. They do not enter any other number.
    singles: the single ratings behind means. Equal ratings are counted over single ratings, because a mean is rarely
    a point of the scale.
    humans: the raters who are people. scale: the ends of the raters' common scale, which bounds intervals.
    """
    present = [rater for rater in raters if rater in ratings.raters]
    own_ratings, single = ratings.select_raters(*present), {} if singles is None else singles
    level, reason = choose_level(own_ratings, are_names)
    judged_people = [person for person in people if person in present]
    judge_comparison = _compare_with_people(ratings, judge, judged_people, are_names, single)
    first_ratings = ratings.select_raters(*(single[rater][0] if single.get(rater) else rater for rater in present))
    # A mean of repeated ratings is rarely a point of the scale, so it has no confusion matrix. Neither have raters who
    # share no unit, or ratings with too many distinct values for a table.
    confusion = None
    if pair and set(pair) <= set(present) and not any(single.get(rater) for rater in pair):
        both = own_ratings.select_raters(*pair).drop_incomplete()
        if 0 < len(both.categories) <= MAX_CATEGORIES:
            confusion = confusion_matrix(own_ratings, *pair)
    return AgreementReport(
        coverage=[_compute_coverage(own_ratings, rater) for rater in raters],
        shared=own_ratings.with_at_least(2).n_units,
        level=level,
        level_reason=reason,
        measures=list(_evaluate_measures(own_ratings, first_ratings, level, are_names)) if len(present) > 1 else [],
        pairs=[_compare_pair(ratings, *rater_pair, are_names, single) for rater_pair in combinations(present, 2)]
        if len(present) <= MAX_PAIRED_RATERS
        else [],
        confusion=confusion,
        judge_comparison=_restrict_comparison_to_scale(judge_comparison, scale),
        references=[
            _restrict_difference_to_scale(comparison, scale)
            for comparison in compare_with_references(ratings, references, present, humans, single, seed=SEED)
        ],
    )


def choose_level(ratings: Ratings, are_names: bool = False) -> tuple[Level, str]:
    """Return the level of measurement that suits these ratings, with the reason.

    It is a guess from the values, because only the author of a scale knows its level.
    """
    if are_names:
        return "nominal", NOMINAL_CHOICES
    values = ratings.categories
    if len(values) <= 2:
        return "nominal", "with at most two distinct ratings, all levels give the same result"
    if (values == np.round(values)).all() and len(values) <= MAX_ORDINAL_POINTS:
        return "ordinal", f"the ratings are {len(values)} points in order, whose distances need not be equal"
    return "interval", "the ratings are numbers with meaningful differences"


def _evaluate_measures(present: Ratings, points: Ratings, level: Level, are_names: bool) -> Iterator[MeasureResult]:
    """Yield the measures of these raters. points: the same raters with single ratings, for measures of equality."""
    binary = len(present.categories) <= 2

    def evaluate(name: str, compute: Callable[[], Coefficient], suits_scale: bool = False) -> MeasureResult:
        description = MEASURE_DESCRIPTIONS[name]
        try:
            coefficient = compute()
            estimate = estimate_agreement(coefficient)
        except ValueError as error:
            return MeasureResult(name, None, str(error), description, suits_scale)
        n_used, total = coefficient.ratings.with_at_least(2).n_units, present.n_units
        if name != "Percent agreement" and 0 < n_used < 2:
            # One unit says nothing about agreement beyond chance, whatever the formula gives.
            estimate = replace(estimate, estimate=None, se=None, low=None, high=None, interval="")
            reason = f"only {n_used} of {total} units can be used, but two are needed"
            return MeasureResult(name, estimate, reason, description, suits_scale)
        reason = "" if estimate.estimate is not None else _explain_undefined(estimate, coefficient.ratings, present)
        return MeasureResult(name, estimate, reason, description, suits_scale)

    yield evaluate("Percent agreement", lambda: percent_agreement(points))
    if are_names:
        if len(present.raters) == 2:
            yield evaluate("Cohen's kappa", lambda: cohens_kappa(present), suits_scale=True)
        yield evaluate("Fleiss' kappa", lambda: fleiss_kappa(present))
        yield evaluate(
            "Krippendorff's alpha, nominal", lambda: krippendorff_alpha(present, "nominal"), suits_scale=True
        )
        return
    if len(present.raters) == 2:
        suited_weights = "none" if binary else "quadratic"
        yield evaluate("Cohen's kappa", lambda: cohens_kappa(points), suited_weights == "none")
        yield evaluate("Cohen's kappa, linear weights", lambda: cohens_kappa(present, "linear"))
        yield evaluate(
            "Cohen's kappa, quadratic weights", lambda: cohens_kappa(present, "quadratic"), suited_weights != "none"
        )
        yield evaluate("Lin's concordance", lambda: lins_concordance(present))
    yield evaluate("Fleiss' kappa", lambda: fleiss_kappa(points))
    yield evaluate("Fleiss' kappa, linear weights", lambda: fleiss_kappa(present, "linear"))
    yield evaluate("Fleiss' kappa, quadratic weights", lambda: fleiss_kappa(present, "quadratic"))
    for alpha_level in LEVELS:
        compute_alpha = partial(krippendorff_alpha, points if alpha_level == "nominal" else present, alpha_level)
        yield evaluate(f"Krippendorff's alpha, {alpha_level}", compute_alpha, alpha_level == level)
    for form in FORMS:
        yield evaluate(
            f"ICC({form})",
            partial(intraclass_correlation, present, form),
            form == ("2,1" if level in ("interval", "ratio", "ordinal") else None),
        )
    yield evaluate("Kendall's W", lambda: kendalls_w(present))


def _explain_undefined(estimate: AgreementEstimate, used: Ratings, ratings: Ratings) -> str:
    """Return why a measure is undefined. used: the ratings that the measure can use."""
    if not ratings.with_at_least(2).n_units:
        return "no unit was rated by two of them"
    if not used.n_units:
        return f"no unit was rated by all {len(ratings.raters)} of them"
    if estimate.units < 2:
        return f"only {estimate.units} of {estimate.units + estimate.left_out} units can be used"
    if len(used.categories) > 1:
        return "undefined for these ratings: the denominator of the formula is not positive"
    return "undefined for these ratings: they do not vary"


def _compute_coverage(ratings: Ratings, rater: str) -> RaterCoverage:
    if rater not in ratings.raters:
        return RaterCoverage(rater, 0, 0, None, None, None, None)
    column = ratings.values[:, ratings.column(rater)]
    is_rated = ~np.isnan(column)
    rated_values, times = column[is_rated], ratings.times[is_rated]
    n, mean = round(float(times.sum())), float(np.average(rated_values, weights=times))
    shared = round(float((ratings.times * (is_rated & (ratings.per_unit > 1))).sum()))
    sd = float(np.sqrt(times @ (rated_values - mean) ** 2 / (n - 1))) if n > 1 else None
    return RaterCoverage(rater, n, shared, mean, sd, float(rated_values.min()), float(rated_values.max()))


def _compare_pair(ratings: Ratings, first: str, second: str, are_names: bool, singles: SingleRatings) -> RaterPair:
    both = ratings.select_raters(first, second).drop_incomplete()
    n = both.n_units
    if not n:
        return RaterPair(first, second, 0, None, None, None, None, None)
    if are_names:
        same, kappa = percent_agreement(both).estimate, cohens_kappa(both).estimate if n > 1 else None
        return RaterPair(first, second, n, same, kappa, None, None, None)
    (x, y), times = both.values.T, both.times[None]
    difference = float(np.average(y - x, weights=both.times))
    return RaterPair(
        first, second, n, compute_equal_share(ratings, first, second, singles),
        cohens_kappa(both, "quadratic").estimate if n > 1 else None,
        _nan_to_none(compute_correlation(x, y, times)[0]), _nan_to_none(compute_concordance(x, y, times)[0]),
        difference,
    )  # fmt: skip


def _nan_to_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _compare_with_people(
    ratings: Ratings, judge: str | None, people: list[str], are_names: bool, singles: SingleRatings
) -> JudgeComparison | None:
    if judge is None or judge not in ratings.raters or not people:
        return None
    repeated = ratings.select_raters(*singles[judge]).values if singles.get(judge) else None
    table = ratings.select_raters(judge, *people)
    among_people = table.drop_rater(judge).per_unit
    if not ((among_people > 0) & table.given[:, 0]).any():
        return None
    measures: tuple[Measure, ...] = ()
    if (among_people > 1).any():
        measures = ("same answer",) if are_names else ("concordance", "same answer")
    slope = None if are_names else bootstrap(judge_slope(table, judge), seed=SEED, resamples=RESAMPLES)
    limits = None if are_names else limits_of_agreement(table, judge, seed=SEED, resamples=RESAMPLES)
    return JudgeComparison(
        judge,
        people=len(people),
        bias=judge_bias(table, judge).result(),
        slope=slope,
        limits=limits,
        standings=[
            compare_judge_with_people(table, judge, measure, seed=SEED, resamples=RESAMPLES, repeated=repeated)
            for measure in measures
        ],
        mean=corrected_mean(table, judge),
    )


def _restrict_comparison_to_scale(comparison: JudgeComparison | None, scale: Bounds | None) -> JudgeComparison | None:
    """Return the comparison with intervals of means and of the bias that stay on the scale."""
    if comparison is None or scale is None:
        return comparison
    span = scale[1] - scale[0]
    mean, fitted = comparison.mean, int(comparison.mean.judge_share > 0)
    corrected = restrict_to_scale(mean.corrected, scale, mean.corrected.clusters - fitted)
    people = restrict_to_scale(mean.people, scale, mean.people.clusters)
    bias = restrict_to_scale(comparison.bias, (-span, span), comparison.bias.clusters or comparison.bias.units)
    return replace(comparison, bias=bias, mean=replace(mean, corrected=corrected, people=people))


def _restrict_difference_to_scale(comparison: ReferenceComparison, scale: Bounds | None) -> ReferenceComparison:
    """Return the comparison with an interval of the bias that stays within the possible differences."""
    if scale is None:
        return comparison
    span = scale[1] - scale[0]
    bias = restrict_to_scale(comparison.bias, (-span, span), comparison.bias.clusters or comparison.bias.units)
    return replace(comparison, bias=bias)


def restrict_to_scale(estimate: AgreementEstimate, scale: Bounds, clusters: int) -> AgreementEstimate:
    """Return the estimate with a score interval if its own interval leaves the scale or has no width.

    An estimate outside the scale, such as a corrected mean, moves to the end of the scale. clusters: the number of
    items behind the standard error, minus the number of fitted parameters.
    """
    if estimate.estimate is None or estimate.low is None or estimate.high is None or estimate.se is None:
        return estimate
    low, high = scale
    if clusters < 2 or low <= estimate.low < estimate.high <= high:
        return estimate
    value = min(high, max(low, estimate.estimate))
    ends = bounded_score_interval(value, estimate.se, clusters, scale)
    method = f"score interval within the scale, Student's t, clustered by {clusters:,} items"
    return replace(estimate, estimate=value, low=ends[0], high=ends[1], interval=method)
