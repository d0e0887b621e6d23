"""The numbers of the agreement page. Pure functions: ratings in, lines out, each with its formula, source and n."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

import numpy as np

from grading_app.comparison.measure_references import Source, source_of
from grading_app.comparison.reference_report import ReferenceLine, measure_references, share_equal
from grading_app.statistics.alpha import Level, krippendorff_alpha
from grading_app.statistics.bland_altman import LimitsOfAgreement, limits_of_agreement
from grading_app.statistics.bootstrap import bootstrap
from grading_app.statistics.concordance import concordance, correlation, lins_concordance
from grading_app.statistics.estimates import Estimate
from grading_app.statistics.intervals import Bounds, bounded_score_interval
from grading_app.statistics.intraclass import FORMS, Form, intraclass_correlation
from grading_app.statistics.judge_bias import Measure, Standing, judge_bias, judge_slope, judge_standing
from grading_app.statistics.kappas import (
    ConfusionMatrix,
    cohens_kappa,
    confusion_matrix,
    fleiss_kappa,
    percent_agreement,
)
from grading_app.statistics.measures import Coefficient
from grading_app.statistics.prediction_powered import CorrectedMean, corrected_mean
from grading_app.statistics.ranks import kendalls_w
from grading_app.statistics.ratings import Floats, Ratings

SEED, RESAMPLES = 1, 1_000
MOST_CATEGORIES = 15
FEW_POINTS = 11
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval", "ratio")
CHOICES = "a choice of the first, of the second or of neither is a name without an order"
MOST_PAIRED = 12  # more raters than this: no list of all pairs


@dataclass(frozen=True)
class Line:
    """One measure: its estimate, or the reason why it has none. `fits`: the measure suits the scale best."""

    name: str
    estimate: Estimate | None
    why: str
    source: Source
    fits: bool = False


@dataclass(frozen=True)
class Covered:
    """The ratings of one rater. low, high: the smallest and the largest rating; None without any."""

    rater: Hashable
    n: int
    shared: int  # units that another rater rated too
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Pair:
    """Two raters on the units that both rated. None if a measure is not defined."""

    first: Hashable
    second: Hashable
    n: int
    same: float | None
    kappa: float | None  # with quadratic weights; for names without weights, and then r, ccc and difference are None
    r: float | None
    ccc: float | None
    difference: float | None


@dataclass(frozen=True)
class AgainstPeople:
    """A judge compared with people.

    standings: agreement with people by two measures (by one for names); empty if no unit has two people. slope, limits:
    None for names.
    """

    judge: Hashable
    people: int
    bias: Estimate
    slope: Estimate | None
    limits: LimitsOfAgreement | None
    standings: list[Standing]
    mean: CorrectedMean


@dataclass(frozen=True)
class Measured:
    """All numbers that the page shows for these ratings."""

    covered: list[Covered]
    shared: int  # units with two ratings or more
    level: Level
    level_why: str
    lines: list[Line]
    pairs: list[Pair]
    confusion: ConfusionMatrix | None
    against: AgainstPeople | None
    references: list[ReferenceLine] = field(default_factory=list)


Singles = Mapping[str, Sequence[str]]
"""The columns with the single ratings behind each mean of repeated ratings, by the mean's rater."""


@dataclass(frozen=True)
class Compared:
    """The result of a comparison. units: the number of compared units, out of `total`."""

    units: int
    total: int
    measured: Measured | None


def measured(
    ratings: Ratings,
    *,
    raters: list[str],
    pair: tuple[str, str] | None,
    judge: str | None,
    people: list[str],
    are_names: bool = False,
    references: Sequence[str] = (),
    singles: Singles | None = None,
    humans: Sequence[str] = (),
    scale: Bounds | None = None,
) -> Measured:
    """Compute all numbers of the page. A rater without a rating is listed, but not compared.

    are_names: the ratings are choices without an order, so only measures for names are computed. references: columns
    that raters are compared with; they enter no other number. singles: a mean of repeated ratings equals no point of
    the scale, so equal ratings are counted over these. humans: the raters who are people. scale: the ends of the
    raters' common scale; intervals of means and differences stay on it.
    """
    present = [rater for rater in raters if rater in ratings.raters]
    own, single = ratings.of(*present), {} if singles is None else singles
    level, why = fitting_level(own, are_names)
    against = _against(ratings, judge, [one for one in people if one in present], are_names, single)
    return Measured(
        covered=[_covered(own, rater) for rater in raters],
        shared=own.with_at_least(2).n_units,
        level=level,
        level_why=why,
        lines=list(_lines(own, _with_first_ratings(ratings, present, single), level, are_names))
        if len(present) > 1
        else [],
        pairs=[_pair(ratings, *two, are_names, single) for two in combinations(present, 2)]
        if len(present) <= MOST_PAIRED
        else [],
        # A mean of repeated ratings equals no point of the scale. Its first rating can be crossed.
        confusion=None if pair and any(single.get(rater) for rater in pair) else _confusion(own, pair),
        against=_on_scale(against, scale),
        references=[
            _difference_on_scale(line, scale)
            for line in measure_references(ratings, references, present, humans, single, seed=SEED)
        ],
    )


def _with_first_ratings(ratings: Ratings, raters: Sequence[str], singles: Singles) -> Ratings:
    """Return the raters with the first rating in place of each mean of repeated ratings."""
    return ratings.of(*(singles[rater][0] if singles.get(rater) else rater for rater in raters))


def fitting_level(ratings: Ratings, are_names: bool = False) -> tuple[Level, str]:
    """Return the level of measurement that suits these ratings, and why.

    Only the scale's author knows what it means.
    """
    if are_names:
        return "nominal", CHOICES
    values = ratings.categories
    if len(values) <= 2:
        return "nominal", "there are two ratings at most, and with two the levels say the same"
    if (values == np.round(values)).all() and len(values) <= FEW_POINTS:
        return "ordinal", f"the ratings are {len(values)} points in order, and their distances need not be equal"
    return "interval", "the ratings are numbers whose differences mean something"


def _lines(present: Ratings, points: Ratings, level: Level, are_names: bool) -> Iterator[Line]:
    """Yield the measures of these raters. points: the same raters with single ratings, for measures of equality."""
    binary = len(present.categories) <= 2

    def line(name: str, make: Callable[[], Coefficient], fits: bool = False) -> Line:
        return _line(name, make, present, fits)

    yield line("Percent agreement", lambda: percent_agreement(points))
    if are_names:
        if len(present.raters) == 2:
            yield line("Cohen's kappa", lambda: cohens_kappa(present), fits=True)
        yield line("Fleiss' kappa", lambda: fleiss_kappa(present))
        yield line("Krippendorff's alpha, nominal", lambda: krippendorff_alpha(present, "nominal"), fits=True)
        return
    if len(present.raters) == 2:
        suited = "none" if binary else "quadratic"
        yield line("Cohen's kappa", lambda: cohens_kappa(points), suited == "none")
        yield line("Cohen's kappa, linear weights", lambda: cohens_kappa(present, "linear"))
        yield line("Cohen's kappa, quadratic weights", lambda: cohens_kappa(present, "quadratic"), suited != "none")
        yield line("Lin's concordance", lambda: lins_concordance(present))
    yield line("Fleiss' kappa", lambda: fleiss_kappa(points))
    yield line("Fleiss' kappa, linear weights", lambda: fleiss_kappa(present, "linear"))
    yield line("Fleiss' kappa, quadratic weights", lambda: fleiss_kappa(present, "quadratic"))
    for one in LEVELS:
        of_level = partial(krippendorff_alpha, points if one == "nominal" else present, one)
        yield line(f"Krippendorff's alpha, {one}", of_level, one == level)
    for form in FORMS:
        yield line(f"ICC({form})", lambda form=form: intraclass_correlation(present, form), form == _icc(level))  # type: ignore[misc]
    yield line("Kendall's W", lambda: kendalls_w(present))


def _icc(level: Level) -> Form | None:
    """Return the ICC that suits the level: single ratings, by raters who are a sample of all raters."""
    return "2,1" if level in ("interval", "ratio", "ordinal") else None


def _line(name: str, make: Callable[[], Coefficient], given: Ratings, fits: bool) -> Line:
    try:
        coefficient = make()
        estimate = bootstrap(coefficient, seed=SEED, resamples=RESAMPLES)
    except ValueError as error:
        return Line(name, None, str(error), source_of(name), fits)
    if name != "Percent agreement" and 0 < coefficient.ratings.with_at_least(2).n_units < 2:
        # One unit tells nothing about agreement beyond chance, whatever the formula gives.
        estimate = replace(estimate, estimate=None, se=None, low=None, high=None, interval="")
        used, of = coefficient.ratings.with_at_least(2).n_units, given.n_units
        return Line(name, estimate, f"only {used} of {of} units can be used, and it takes two", source_of(name), fits)
    why = "" if estimate.estimate is not None else _undefined(estimate, coefficient.ratings, given)
    return Line(name, estimate, why, source_of(name), fits)


def _undefined(estimate: Estimate, used: Ratings, given: Ratings) -> str:
    """Return why a measure is not defined. used: the ratings that the measure can use."""
    if not given.with_at_least(2).n_units:
        return "no unit was rated by two of them"
    if not used.n_units:
        return f"no unit was rated by all {len(given.raters)} of them"
    if estimate.units < 2:
        return f"only {estimate.units} of {estimate.units + estimate.left_out} units can be used"
    if len(used.categories) > 1:
        return "not defined for these ratings: what the formula divides by is not above zero"
    return "not defined for these ratings: they do not vary"


def _covered(ratings: Ratings, rater: str) -> Covered:
    if rater not in ratings.raters:
        return Covered(rater, 0, 0, None, None, None, None)
    column = ratings.values[:, ratings.column(rater)]
    rated = ~np.isnan(column)
    given, times = column[rated], ratings.times[rated]
    n, mean = round(float(times.sum())), float(np.average(given, weights=times))
    shared = round(float((ratings.times * (rated & (ratings.per_unit > 1))).sum()))
    sd = float(np.sqrt(times @ (given - mean) ** 2 / (n - 1))) if n > 1 else None
    return Covered(rater, n, shared, mean, sd, float(given.min()), float(given.max()))


def _pair(ratings: Ratings, first: str, second: str, are_names: bool, singles: Singles) -> Pair:
    both = ratings.of(first, second).complete()
    n = both.n_units
    if not n:
        return Pair(first, second, 0, None, None, None, None, None)
    if are_names:
        same, kappa = percent_agreement(both).estimate, cohens_kappa(both).estimate if n > 1 else None
        return Pair(first, second, n, same, kappa, None, None, None)
    (x, y), once = both.values.T, both.times[None]
    difference = float(np.average(y - x, weights=both.times))
    return Pair(
        first, second, n, share_equal(ratings, first, second, singles),
        cohens_kappa(both, "quadratic").estimate if n > 1 else None,
        _number(correlation(x, y, once)[0]), _number(concordance(x, y, once)[0]), difference,
    )  # fmt: skip


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _confusion(ratings: Ratings, pair: tuple[str, str] | None) -> ConfusionMatrix | None:
    """Return None if the raters share no unit, or if there are more distinct ratings than a table can show."""
    if pair is None or not set(pair) <= set(ratings.raters):
        return None
    both = ratings.of(*pair).complete()
    return confusion_matrix(ratings, *pair) if 0 < len(both.categories) <= MOST_CATEGORIES else None


def _against(
    ratings: Ratings, judge: str | None, people: list[str], are_names: bool, singles: Singles
) -> AgainstPeople | None:
    if judge is None or judge not in ratings.raters or not people:
        return None
    repeated = ratings.of(*singles[judge]).values if singles.get(judge) else None
    table = ratings.of(judge, *people)
    among_people = table.without(judge).per_unit
    if not ((among_people > 0) & table.given[:, 0]).any():
        return None
    slope = None if are_names else bootstrap(judge_slope(table, judge), seed=SEED, resamples=RESAMPLES)
    limits = None if are_names else limits_of_agreement(table, judge, seed=SEED, resamples=RESAMPLES)
    return AgainstPeople(
        judge,
        people=len(people),
        bias=judge_bias(table, judge).result(),
        slope=slope,
        limits=limits,
        standings=list(_standings(table, judge, are_names, repeated)) if (among_people > 1).any() else [],
        mean=corrected_mean(table, judge, tuned=True),
    )


def _on_scale(against: AgainstPeople | None, scale: Bounds | None) -> AgainstPeople | None:
    """Return the comparison with intervals of means and of the bias that stay on the scale."""
    if against is None or scale is None:
        return against
    span = scale[1] - scale[0]
    mean, fitted = against.mean, int(against.mean.judge_share > 0)
    corrected = keep_on_scale(mean.corrected, scale, mean.corrected.clusters - fitted)
    people = keep_on_scale(mean.people, scale, mean.people.clusters)
    bias = keep_on_scale(against.bias, (-span, span), against.bias.clusters or against.bias.units)
    return replace(against, bias=bias, mean=replace(mean, corrected=corrected, people=people))


def _difference_on_scale(line: ReferenceLine, scale: Bounds | None) -> ReferenceLine:
    """Return the line with an interval of the difference that stays within the differences of the scale."""
    if scale is None:
        return line
    span = scale[1] - scale[0]
    return replace(line, bias=keep_on_scale(line.bias, (-span, span), line.bias.clusters or line.bias.units))


def keep_on_scale(estimate: Estimate, scale: Bounds, clusters: int) -> Estimate:
    """Return the estimate with a score interval if its own interval leaves the scale or has no width.

    An estimate beside the scale, as the sum of two means may be, moves to its end. clusters: the items whose spread
    gave the standard error, less one for each number that was fitted to them.
    """
    if estimate.estimate is None or estimate.low is None or estimate.high is None or estimate.se is None:
        return estimate
    low, high = scale
    if clusters < 2 or low <= estimate.low < estimate.high <= high:
        return estimate
    value = min(high, max(low, estimate.estimate))
    ends = bounded_score_interval(value, estimate.se, clusters, scale)
    how = f"score interval within the scale, Student's t, clustered by {clusters:,} items"
    return replace(estimate, estimate=value, low=ends[0], high=ends[1], interval=how)


def _standings(table: Ratings, judge: str, are_names: bool, repeated: Floats | None) -> Iterator[Standing]:
    measures: tuple[Measure, ...] = ("same answer",) if are_names else ("concordance", "same answer")
    for measure in measures:
        yield judge_standing(table, judge, measure, seed=SEED, resamples=RESAMPLES, repeated=repeated)
