"""The tables of the agreement page: who rated what, pairs of raters, and raters against a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalsite.lib.text.number_format import format_count
from grading_app.results import statistic_format
from grading_app.results.raters.raters import Rater
from grading_app.results.table import Kind, ResultColumn, ResultTable
from grading_app.statistics.intervals import describe_coverage, describe_estimates_coverage

if TYPE_CHECKING:
    from grading_app.results.raters.agreement_report import JudgeComparison, MeasureResult, RaterCoverage, RaterPair
    from grading_app.results.raters.reference_report import ReferenceComparison
    from grading_app.statistics.intervals import AgreementEstimate

REFERENCE_KINDS: dict[str, tuple[Kind, Kind]] = {
    "bias": ("signed", "interval"),
    "r": ("coefficient", "coefficient_interval"),
    "concordance": ("coefficient", "coefficient_interval"),
    "same": ("share", "share_interval"),
}
REFERENCE_METHODS = (
    "Intervals over items. Difference: Student's t, or a score interval where that leaves the scale. Same score: "
    "modified Wilson. Others: the jackknife, and from 1,000 items the percentile bootstrap."
)
BELOW_ZERO = "below 0: ratings of one unit differ more than the units do. Report it as no reliability."


def make_coverage_table(
    coverage: Iterable[RaterCoverage], raters: Mapping[str, Rater], *, in_pairs: bool = False
) -> ResultTable:
    """Return the number of compared units that each rater rated. in_pairs: the units are pairs of answers."""
    columns = [
        ResultColumn("rater", "Rater"),
        ResultColumn("kind", "Kind"),
        ResultColumn("scale", "Scale"),
        ResultColumn("n", "Rated", "count"),
        ResultColumn("shared", "Units shared with others", "count"),
        ResultColumn("mean", "For the first", "share") if in_pairs else ResultColumn("mean", "Mean", "number"),
        ResultColumn("sd", "SD", "number"),
        ResultColumn("range", "Lowest to highest", "interval"),
    ]
    left_out = {"scale", "sd", "range"} if in_pairs else set()
    rows = [
        {
            "rater": (rater := raters[str(one.rater)]).label,
            "kind": rater.kind_label,
            "scale": str(rater.scale) if rater.scale else None,
            **{name: getattr(one, name) for name in ("n", "shared", "mean", "sd")},
            "range": None if one.low is None else (one.low, one.high),
        }
        for one in coverage
    ]
    return ResultTable("coverage", "Coverage", [one for one in columns if one.name not in left_out], rows)


def make_pair_table(pairs: Iterable[RaterPair], labels: Mapping[str, str], *, is_nominal: bool) -> ResultTable:
    """Return a row for each pair of raters, on the units that both rated. labels: of the raters, by key."""
    columns = [
        ResultColumn("first", "Rater"),
        ResultColumn("second", "and"),
        ResultColumn("n", "Both rated", "count"),
        ResultColumn("same", "Same choice" if is_nominal else "Same rating", "share"),
        ResultColumn("kappa", "Kappa" if is_nominal else "Kappa, quadratic", "coefficient"),
    ]
    if not is_nominal:
        columns += [
            ResultColumn("r", "r", "coefficient"),
            ResultColumn("ccc", "Concordance", "coefficient"),
            ResultColumn("difference", "Second minus first", "signed"),
        ]
    rows = [
        {
            "first": labels.get(str(pair.first), str(pair.first)),
            "second": labels.get(str(pair.second), str(pair.second)),
            **{name: getattr(pair, name) for name in ("n", "same", "kappa", "r", "ccc", "difference")},
        }
        for pair in pairs
    ]
    return ResultTable("rater_pairs", "Pairs of raters", columns, rows)


def make_reference_table(
    reference: Rater, comparisons: Iterable[ReferenceComparison], raters: Mapping[str, Rater]
) -> ResultTable:
    """Return a row for each rater compared with one reference, each number with its interval."""
    names = {"bias": "Rater minus reference", "r": "r", "concordance": "Concordance"}
    if reference.kind != "norm":  # The norm of an item is a mean of many people, which no rating equals.
        names["same"] = "Same score"
    columns = [ResultColumn("rater", "Rater"), ResultColumn("units", "Units", "count")]
    for name, label in names.items():
        kind, interval = REFERENCE_KINDS[name]
        columns += [ResultColumn(name, label, kind), ResultColumn(f"{name}_ci", "95 % interval", interval)]
    rows: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    for comparison in comparisons:
        people = f"mean of {comparison.people:,} people"
        row = {"rater": people if comparison.people else raters[str(comparison.rater)].label}
        rows.append({**row, "units": comparison.bias.units})
        for name, label in names.items():
            found = getattr(comparison, name)
            if found is None:
                continue
            rows[-1][name] = found.estimate
            rows[-1][f"{name}_ci"] = None if found.low is None else (found.low, found.high)
            if found.low is not None and name != "same" and (note := describe_coverage(found.formula, found.clusters)):
                notes[f"{label}: the interval {note}."] = None
    title = f"Against {reference.label}"
    return ResultTable(f"reference-{reference.key}", title, columns, rows, formula=REFERENCE_METHODS, notes=list(notes))


def make_measure_table(measures: Sequence[MeasureResult]) -> ResultTable:
    """Return a row for each measure of agreement, with its meaning, formula, source, units and interval as details."""
    columns = [
        ResultColumn("name", "Measure"),
        ResultColumn("value", "Estimate", "coefficient"),
        ResultColumn("interval", "95 % interval", "coefficient_interval"),
        ResultColumn("units", "Units", "count"),
        ResultColumn("raters", "Raters", "count"),
        ResultColumn("left_out", "Excluded", "count"),
        ResultColumn("remark", "Remark"),
    ]
    rows, details = [], []
    for measure in measures:
        estimate, description = measure.estimate, measure.description
        texts = [description.meaning, description.formula, description.citation]
        remarks = ["fits this scale"] if measure.suits_scale else []
        row: dict[str, Any] = {"name": measure.name}
        if estimate is not None:
            row |= {name: getattr(estimate, name) for name in ("units", "raters", "left_out")}
            total = format_count(estimate.units + estimate.left_out)
            texts.append(f"Units: {format_count(estimate.units)} of {total}, {description.uses}.")
            if estimate.interval:
                is_percentile = estimate.interval.startswith("percentile")
                resamples = f", {estimate.resamples:,} resamples" if is_percentile else ""
                texts.append(f"Interval: {estimate.interval}{resamples}.")
        if estimate is None or estimate.estimate is None:
            remarks.append(measure.reason)
        else:
            row |= {"value": estimate.estimate, "interval": _get_ends(estimate)}
            if measure.name.startswith("ICC(") and estimate.estimate < 0:
                remarks.append(BELOW_ZERO)
            remarks += _explain_no_interval(estimate)
        rows.append({**row, "remark": "; ".join(remarks) or None})
        details.append(texts)
    notes = [note] if (note := describe_estimates_coverage((one.name, one.estimate) for one in measures)) else []
    return ResultTable("measures", "Measures of agreement", columns, rows, notes=notes, details=details)


@dataclass(frozen=True)
class JudgeEstimate:
    """A named estimate about the judge and people, with its meaning."""

    name: str
    estimate: AgreementEstimate
    meaning: str


ESTIMATE_KINDS: dict[Kind, Kind] = {
    "number": "interval",
    "share": "share_interval",
    "points": "points_interval",
    "coefficient": "coefficient_interval",
}


def make_judge_table(name: str, title: str, estimates: Sequence[JudgeEstimate], kind: Kind = "number") -> ResultTable:
    """Return a row for each estimate about the judge and people, with its meaning and interval as details.

    kind: of the estimates, a key of ESTIMATE_KINDS.
    """
    columns = [
        ResultColumn("name", "Measure"),
        ResultColumn("value", "Estimate", kind),
        ResultColumn("interval", "95 % interval", ESTIMATE_KINDS[kind]),
        ResultColumn("units", "Units", "count"),
        ResultColumn("remark", "Remark"),
    ]
    rows = [
        {
            "name": one.name,
            "value": one.estimate.estimate,
            "interval": _get_ends(one.estimate),
            "units": one.estimate.units,
            "remark": "; ".join(_explain_no_interval(one.estimate)) or None,
        }
        for one in estimates
    ]
    shown = [column for column in columns if column.name != "remark" or any(row["remark"] for row in rows)]
    intervals = [f"Interval: {one.estimate.interval}." if one.estimate.interval else "" for one in estimates]
    details = [
        [one.meaning, *([interval] if interval else [])] for one, interval in zip(estimates, intervals, strict=True)
    ]
    notes = [note] if (note := describe_estimates_coverage((one.name, one.estimate) for one in estimates)) else []
    return ResultTable(name, title, shown, rows, notes=notes, details=details)


def _get_ends(estimate: AgreementEstimate) -> tuple[float, float] | None:
    return None if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)


def _explain_no_interval(estimate: AgreementEstimate) -> list[str]:
    """Return the reason why the interval is missing, if it is and the reason is known."""
    reason = estimate.interval.removeprefix("no interval: ")
    return [f"no interval: {reason}"] if _get_ends(estimate) is None and reason else []


CONCORDANCE = "Lin's concordance with the mean of the other people"
SAME = "Share of the other people with the same rating"
SAME_CHOICE = "Share of the other people with the same choice"


def list_bias_estimates(comparison: JudgeComparison, judge: Rater, *, in_pairs: bool = False) -> list[JudgeEstimate]:
    """Return the bias and the slope of the judge."""
    meaning = (
        f"The {judge.noun}'s share of wins for the first minus that of people, −100 to 100 pp (Liang & Zeger 1986)."
        if in_pairs
        else f"Mean difference of the {judge.noun} and the mean of the people (Liang & Zeger 1986)."
    )
    estimates = [JudgeEstimate("Bias", comparison.bias, meaning)]
    if comparison.slope is not None:
        meaning = (
            f"Slope of the {judge.noun}'s ratings over the mean of the people, with equal errors in both (Deming 1943; "
            f"Linnet 1993). Below 1, the {judge.noun} avoids the ends of the scale."
        )
        estimates.append(JudgeEstimate("Slope", comparison.slope, meaning))
    return estimates


def list_agreement_estimates(
    comparison: JudgeComparison, judge: Rater, *, in_pairs: bool = False
) -> list[JudgeEstimate]:
    """Return the agreement of the judge with people next to the agreement among people, by each measure."""
    measures = (SAME_CHOICE,) if in_pairs else (CONCORDANCE, SAME)
    noun = judge.noun
    return [
        JudgeEstimate(f"{measure}: {name}", estimate, meaning)
        for standing, measure in zip(comparison.standings, measures, strict=False)
        for name, estimate, meaning in (
            (
                noun,
                standing.judge,
                f"Each person is left out in turn; the {noun} is compared with the other people.",
            ),
            ("people", standing.people, "Upper limit: each person compared with the other people."),
            (
                "difference",
                standing.gap,
                f"{noun.capitalize()} minus people. Below 0, the {noun} agrees less.",
            ),
        )
    ]


def list_mean_estimates(comparison: JudgeComparison, judge: Rater, *, in_pairs: bool = False) -> list[JudgeEstimate]:
    """Return three estimates of the people's mean; for pairs, of the first answer's share of wins."""
    mean, statistic, noun = comparison.mean, "share of wins" if in_pairs else "mean", judge.noun
    return [
        JudgeEstimate(
            f"Corrected {statistic}", mean.corrected,
            f"Prediction-powered inference: the {noun}'s {statistic} over all units, corrected by its error on the "
            f"units that people rated ({statistic_format.format_difference(mean.rectifier, in_pairs)}); the {noun}'s "
            f"weight in it is {statistic_format.format_number(mean.judge_share)}. Angelopoulos et al. (2023), Science "
            "382, 669–674; PPI++ (2023), arXiv:2311.01453. Valid only if people rated a random sample of all units. "
            "Otherwise restrict the page to the conditions that they rated.",
        ),
        JudgeEstimate("People alone", mean.people, f"The {statistic} by people over the units that they rated."),
        JudgeEstimate(
            f"{noun.capitalize()} alone", mean.judge, f"The {noun}'s {statistic} over all units, including its bias."
        ),
    ]  # fmt: skip
