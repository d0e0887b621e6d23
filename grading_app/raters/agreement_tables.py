"""The tables of the agreement page: who rated what, pairs of raters, and raters against a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from grading_app.raters.raters import Rater
from grading_app.results.table import Kind, ResultColumn, ResultTable
from grading_app.statistics.known_coverage import describe_coverage

if TYPE_CHECKING:
    from grading_app.raters.agreement_report import RaterCoverage, RaterPair
    from grading_app.raters.reference_report import ReferenceComparison

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
