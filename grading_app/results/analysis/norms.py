"""Ratings against norms: the mean ratings of models compared with the mean ratings of people, item by item.

The unit of every test is the item: a condition's mean over repetitions is compared with the human mean. The norms are
a reference, not a rater.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grading_app.results import statistic_format
from grading_app.results.analysis.data import AnalysisData
from grading_app.results.closeness import ItemNorms
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics import reference
from grading_app.statistics.bootstrap import bootstrap
from grading_app.statistics.concordance import lins_concordance
from grading_app.statistics.condition_pairs import describe_dependence, fill_worst_cases
from grading_app.statistics.correlation import pearson
from grading_app.statistics.intervals import RMSE, Bounds, describe_correlation_coverage, describe_coverage
from grading_app.statistics.intraclass import intraclass_correlation
from grading_app.statistics.item_scores import Floats
from grading_app.statistics.paired import holm
from grading_app.statistics.ratings import Ratings

MAX_PANELS, MAX_POINTS, LINE_POINTS = 6, 500, 41


def build_regression_panels(
    matches: Sequence[tuple[str, Floats, Floats]], bounds: Bounds | None
) -> list[dict[str, Any]]:
    """Return the panels of (label, norms, ratings) as JSON-compatible values. The last one is always included.

    A condition whose line is undefined has no panel.
    """
    panels = []
    for label, people, model in matches if len(matches) <= MAX_PANELS else [*matches[: MAX_PANELS - 1], matches[-1]]:
        line_x = np.linspace(people.min(), people.max(), LINE_POINTS)
        band = reference.confidence_band(people, model, line_x)
        if band is None:
            continue
        deming = reference.deming(people, model)
        names = ("line_x", "line", "band_low", "band_high")
        low, high = bounds or (min(people.min(), model.min()), max(people.max(), model.max()))
        step = max(1, len(people) // MAX_POINTS)
        panel = {
            "label": label,
            "x": _round(people[::step]),
            "y": _round(model[::step]),
            **{name: _round(values) for name, values in zip(names, (line_x, *band), strict=True)},
            "deming": _round(deming.intercept + deming.slope * line_x) if deming else None,
            "low": float(low),
            "high": float(high),
        }
        panels.append(panel)
    return panels


def _round(values: Floats) -> list[float]:
    rounded: list[float] = np.round(values, 4).tolist()
    return rounded


SEED = 1
LEVEL = 0.05
POOLED = "Mean of conditions"
TOO_FEW = "Statistics are missing if they need more items or if the values do not vary."
LIMIT_IN_SD = 1.96
MAX_NAMES = 3  # Of more conditions, a clause states the number.


@dataclass(frozen=True, eq=False)
class MatchedItems:
    """The items with ratings in a condition and a norm: both means, item by item."""

    label: str
    model: Floats
    people: Floats


def build_norm_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the tables; none without norms. With several conditions, the last row is the mean of all conditions."""
    if data.norms is None:
        return []
    matched = [match for match in _match_items(data, data.norms) if len(match.model)]
    if not matched:
        return []
    builders: list[Callable[[AnalysisData, ItemNorms, list[MatchedItems]], ResultTable]] = [
        _build_difference_table,
        _build_agreement_table,
        _build_error_table,
        _build_regression_table,
        _build_distribution_table,
    ]
    tables = [build(data, data.norms, matched) for build in builders]
    # Items with a norm and a rating by each condition that rated any such item.
    rated = (data.scores.n > 0) & data.norms.has_norm[:, None]
    common = data.norms.has_norm & rated[:, rated.any(axis=0)].all(axis=1)
    n_items = max(len(match.model) for match in matched)
    is_comparable = common.sum() >= MIN_COMMON_SHARE * n_items
    if all(len(match.model) == common.sum() for match in matched):
        return [_build_leaderboard(matched, tables, ""), *tables]
    if not is_comparable:
        note = (
            f"The conditions rated different items, and only {common.sum()} of {n_items} items in common. Values over "
            "different items are not comparable."
        )
        return [_build_leaderboard(matched, tables, note, has_best=False), *tables]
    norms = replace(data.norms, mean=np.where(common, data.norms.mean, np.nan))
    rows = [match for match in _match_items(data, norms) if len(match.model)]
    note = (
        f"Only the {common.sum()} of {n_items} items that every condition rated, so that values are comparable. The "
        "tables below use all items of each condition."
    )
    return [_build_leaderboard(rows, [build(data, norms, rows) for build in builders], note), *tables]


MIN_COMMON_SHARE = 0.5
"""The leaderboard is limited to common items if they are at least this share of the items of the largest condition."""


LEADERBOARD_COLUMNS = (
    ("difference", "Bias", "signed"),
    ("r", "Pearson's r", "coefficient"),
    ("rho", "Spearman's rho", "coefficient"),
    ("ccc", "Lin's CCC", "coefficient"),
    ("icc21", "ICC(2,1)", "coefficient"),
    ("icc31", "ICC(3,1)", "coefficient"),
    ("mae", "MAE", "number"),
    ("rmse", "RMSE", "number"),
    ("ols_b", "Slope", "number"),
    ("ks", "Kolmogorov–Smirnov D", "coefficient"),
    ("wasserstein", "Wasserstein distance", "number"),
)


def _build_leaderboard(
    matched: list[MatchedItems], tables: list[ResultTable], note: str, *, has_best: bool = True
) -> ResultTable:
    """Return a table of all measures of agreement, with a row for each condition, from the tables with intervals.

    note: the items of the rows, if the conditions rated different items. has_best: the rows are comparable.
    """
    merged: dict[str, dict[str, Any]] = {
        match.label: {"condition": match.label, "items": len(match.model)} for match in matched
    }
    for table in tables:
        for row in table.rows:
            merged[row["condition"]] |= {name: row[name] for name, *_ in LEADERBOARD_COLUMNS if name in row}
    rows = sorted(merged.values(), key=lambda row: row["mae"])
    best = next(row for row in rows if row["condition"] != POOLED)
    items = f"{best['items']} {'common ' if note else ''}items"
    error, sentence = f"mean absolute error: {statistic_format.format_number(best['mae'])} over {items}", ""
    if has_best and len(rows) == 1:
        sentence = f"{best['condition']} has this {error}."
    elif has_best:
        sentence = f"{best['condition']} has the lowest {error}. No test compares these errors here."
    return ResultTable(
        "norm_leaderboard",
        "Conditions by their agreement with the norms",
        [
            ResultColumn("condition", "Condition"),
            ResultColumn("items", "Items", "count"),
            *(ResultColumn(name, label, kind) for name, label, kind in LEADERBOARD_COLUMNS),  # type: ignore[arg-type]
        ],
        rows,
        sentence=sentence,
        notes=[*([note] if note else []), "Sort by any column. The tables below have intervals.", TOO_FEW],
        page_columns=("condition", "items", "difference", "r", "rho", "ccc", "icc21", "mae", "rmse"),
        is_sortable=True,
    )


def _match_items(data: AnalysisData, norms: ItemNorms) -> Iterator[MatchedItems]:
    for column, condition in enumerate(data.conditions):
        has_both = norms.has_norm & (data.scores.n[:, column] > 0)
        yield MatchedItems(data.labels[condition], data.scores.mean[has_both, column], norms.mean[has_both])
    if len(data.conditions) > 1:
        is_rated = norms.has_norm & (data.scores.n > 0).any(axis=1)
        means = np.nanmean(data.scores.mean[is_rated], axis=1) if is_rated.any() else np.array([])
        yield MatchedItems(POOLED, means, norms.mean[is_rated])


def _build_difference_table(data: AnalysisData, norms: ItemNorms, matched: list[MatchedItems]) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("model_mean", "Mean of model", "number"),
        ResultColumn("human_mean", "Mean of norms", "number"),
        ResultColumn("difference", "Difference", "signed"),
        ResultColumn("difference_ci", "95 % interval", "interval"),
        ResultColumn("t", "Paired t", "number"),
        ResultColumn("df", "df", "count"),
        ResultColumn("p", "p", "p"),
        ResultColumn("p_holm", "p (Holm)", "p"),
        ResultColumn("d", "Cohen's d", "signed"),
        ResultColumn("d_ci", "95 % interval of d", "interval"),
        ResultColumn("welch_t", "Welch's t", "number"),
        ResultColumn("welch_p", "p (Welch)", "p"),
        *([ResultColumn("equivalence_p", "p of equivalence", "p")] if data.scope.margin else []),
    ]
    rows = []
    for match in matched:
        row: dict[str, Any] = {
            "condition": match.label,
            "items": len(match.model),
            "model_mean": float(match.model.mean()),
            "human_mean": float(match.people.mean()),
            "difference": float(np.mean(match.model - match.people)),
            "p": None,
        }
        if welch := reference.welch_difference(match.model, match.people):
            row |= {"welch_t": welch.t, "welch_p": welch.p}
        if paired := reference.paired_difference(match.model, match.people):
            row |= {"difference_ci": paired.interval, "t": paired.t, "df": int(paired.df), "p": paired.p}
            row |= {"d": paired.effect, "d_ci": paired.effect_interval}
            if margin := data.scope.margin:
                error = float(np.std(match.model - match.people, ddof=1)) / math.sqrt(paired.n)
                row["equivalence_p"] = reference.equivalence_p(paired.n, paired.difference, error, margin)
        rows.append(row)
    condition_rows = [row for row in rows if row["condition"] != POOLED and row["p"] is not None]
    for row, p in zip(condition_rows, holm([row["p"] for row in condition_rows]), strict=True):
        row["p_holm"] = p
    family = f"Holm over the {len(condition_rows)} conditions of this table." if len(condition_rows) > 1 else ""
    filled = [
        _name_differences(_correct_differences(list(_match_items(replace(data, scores=scores), norms))))
        for scores in fill_worst_cases(
            data.scores, data.bounds, at_ends=data.has_ends, sides=[0 for _ in data.conditions]
        )
    ]
    caveat = describe_dependence(_name_differences(_correct_differences(matched)), filled, at_ends=data.has_ends)
    return ResultTable(
        "norm_differences",
        "Difference from the norms",
        columns,
        rows,
        formula="Difference: mean over items of the condition's mean rating minus the human mean, with Student's t. "
        "d: the mean over the SD of the differences, with the interval of the noncentral t.",
        test="Paired t-test over items. Welch's test treats both as independent samples."
        + (f" Equivalence: two one-sided t-tests within ±{data.scope.margin:g}." if data.scope.margin else ""),
        correction=family,
        sentence=f"{_describe_difference(condition_rows)} {caveat}".strip(),
        notes=[TOO_FEW],
        page_columns=[column.name for column in columns if column.name not in ("model_mean", "human_mean")],
    )


def _correct_differences(matched: list[MatchedItems]) -> dict[str, tuple[float, float]]:
    """Return the difference from the norms with p after Holm's correction, by condition."""
    found = {
        match.label: paired
        for match in matched
        if match.label != POOLED and (paired := reference.paired_difference(match.model, match.people))
    }
    corrected = holm([paired.p for paired in found.values()])
    return {label: (paired.difference, p) for (label, paired), p in zip(found.items(), corrected, strict=True)}


def _name_differences(found: Mapping[str, tuple[float, float]]) -> str:
    """Return a clause: which conditions differ from the norms."""
    names = [
        f"{label} rates {'above' if difference > 0 else 'below'} the norms"
        for label, (difference, p) in found.items()
        if p < LEVEL
    ]
    if len(names) > MAX_NAMES:
        return f"{'; '.join(names[:MAX_NAMES])}; and {len(names) - MAX_NAMES} more conditions differ from them"
    return "; ".join(names) or "no condition differs significantly from the norms"


def _describe_difference(rows: list[dict[str, Any]]) -> str:
    """Return a sentence on the condition with the smallest p; "" if no condition was tested."""
    if not rows:
        return ""
    row = min(rows, key=lambda one: one["p"])
    size, is_above = statistic_format.format_number(abs(row["difference"])), row["difference"] > 0
    basis = (
        f"95 % interval {statistic_format.format_interval(*row['difference_ci'])}, {row['items']} items, "
        f"p {statistic_format.format_p_equation(row['p_holm'])}" + (" after Holm's correction" if len(rows) > 1 else "")
    )
    if row["p_holm"] < LEVEL:
        return f"{row['condition']} rates {size} points {'above' if is_above else 'below'} the norms ({basis})."
    difference = statistic_format.add_sign(statistic_format.format_number(row["difference"]))
    nobody = "No condition differs" if len(rows) > 1 else f"{row['condition']} does not differ"
    whose = f"{row['condition']}: " if len(rows) > 1 else ""
    return f"{nobody} significantly from the norms ({whose}difference {difference}, {basis})."


def _build_agreement_table(data: AnalysisData, norms: ItemNorms, matched: list[MatchedItems]) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("r", "Pearson's r", "coefficient"),
        ResultColumn("r_ci", "95 % interval", "coefficient_interval"),
        ResultColumn("rho", "Spearman's rho", "coefficient"),
        ResultColumn("rho_ci", "95 % interval", "coefficient_interval"),
        ResultColumn("ccc", "Lin's CCC", "coefficient"),
        ResultColumn("ccc_ci", "95 % interval", "coefficient_interval"),
        ResultColumn("icc21", "ICC(2,1)", "coefficient"),
        ResultColumn("icc31", "ICC(3,1)", "coefficient"),
        ResultColumn("r_disattenuated", "r / noise ceiling", "coefficient"),
    ]
    reliability = reference.reference_reliability(norms.mean, norms.sd, norms.n)
    ceiling = math.sqrt(reliability) if reliability else None
    rows: list[dict[str, Any]] = []
    for match in matched:
        r, rho = pearson(match.model, match.people), reference.spearman(match.model, match.people)
        ratings = Ratings.from_table(np.column_stack([match.model, match.people]))
        ccc = bootstrap(lins_concordance(ratings), seed=SEED)
        rows.append(
            {
                "condition": match.label,
                "items": len(match.model),
                "r": r.r if r else None,
                "r_ci": (r.low, r.high) if r and r.low is not None else None,
                "rho": rho[0] if rho else None,
                "rho_ci": rho[1] if rho else None,
                "ccc": ccc.estimate,
                "ccc_ci": (ccc.low, ccc.high) if ccc.low is not None else None,
                "icc21": intraclass_correlation(ratings, "2,1").estimate,
                "icc31": intraclass_correlation(ratings, "3,1").estimate,
                "r_disattenuated": min(1.0, r.r / ceiling) if r and ceiling else None,
            }
        )
    rows.sort(key=lambda row: -(row["r"] or -2))
    notes = [TOO_FEW]
    if coverage := describe_correlation_coverage(row["items"] for row in rows):
        notes.append(coverage)
    if ceiling:
        notes.append(
            "Noise ceiling: on average, no rating can correlate with these norms by more than "
            f"{statistic_format.format_coefficient(ceiling)}, the square root of their reliability."
        )
    else:
        notes.append("There is no noise ceiling, because it needs the SD and the number of raters of each norm.")
    return ResultTable(
        "norm_agreement",
        "Agreement with the norms",
        columns,
        rows,
        formula="Intervals: the wider of Fisher's and the jackknife's for r, Bonett and Wright's for rho, and the "
        "jackknife's for the concordance coefficient.",
        notes=notes,
    )


def _build_error_table(data: AnalysisData, norms: ItemNorms, matched: list[MatchedItems]) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("bias", "Bias", "signed"),
        ResultColumn("limits", "Limits of agreement", "interval"),
        ResultColumn("mae", "MAE", "number"),
        ResultColumn("mae_ci", "95 % interval", "interval"),
        ResultColumn("rmse", "RMSE", "number"),
        ResultColumn("rmse_ci", "95 % interval", "interval"),
    ]
    rows: list[dict[str, Any]] = []
    for match in matched:
        differences = match.model - match.people
        bias = float(differences.mean())
        reach = LIMIT_IN_SD * float(differences.std(ddof=1)) if len(differences) > 1 else None
        rows.append(
            {
                "condition": match.label,
                "items": len(differences),
                "bias": bias,
                "limits": (bias - reach, bias + reach) if reach is not None else None,
                "mae": float(np.abs(differences).mean()),
                "mae_ci": reference.error_interval(match.model, match.people, "mae"),
                "rmse": reference.root_mean_square(differences),
                "rmse_ci": reference.error_interval(match.model, match.people, "rmse"),
            }
        )
    rows.sort(key=lambda row: row["mae"])
    note = describe_coverage(RMSE, min((row["items"] for row in rows if row["rmse_ci"]), default=0))
    return ResultTable(
        "norm_errors",
        "Error against the norms",
        columns,
        rows,
        formula="Limits of agreement: bias ± 1.96 SD of the differences (Bland and Altman), the range of about 95 % of "
        "the differences, not an interval of the bias. Intervals of MAE and RMSE: jackknife over items of their "
        "logarithm.",
        notes=[*([f"The interval of RMSE {note}."] if note else []), TOO_FEW],
    )


def _build_regression_table(data: AnalysisData, norms: ItemNorms, matched: list[MatchedItems]) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("items", "Items", "count"),
        *_list_line_columns("ols", "least squares"),
        ResultColumn("r_squared", "R²", "coefficient"),
        *_list_line_columns("deming", "Deming"),
    ]
    panels = [
        (match.label, match.people, match.model) for match in sorted(matched, key=lambda match: match.label == POOLED)
    ]
    rows = []
    for match in matched:
        ols, deming = reference.least_squares(match.people, match.model), reference.deming(match.people, match.model)
        rows.append(
            {
                "condition": match.label,
                "items": len(match.model),
                **_build_line_cells("ols", ols),
                "r_squared": ols.r_squared if ols else None,
                **_build_line_cells("deming", deming),
            }
        )
    return ResultTable(
        "norm_regression",
        "Regression on the norms",
        columns,
        rows,
        formula="model = a + b × human. Least squares treats the norms as exact. Deming's regression allows equal "
        "errors in both, with jackknife intervals (Linnet 1990).",
        notes=[
            "A slope below 1 means that the condition uses less of the scale than people do.",
            f"The figure shows at most {MAX_PANELS} conditions, including the mean of conditions.",
            TOO_FEW,
        ],
        data={"panels": build_regression_panels(panels, data.bounds)},
    )


def _list_line_columns(name: str, label: str) -> list[ResultColumn]:
    return [
        ResultColumn(f"{name}_a", f"a ({label})", "signed"),
        ResultColumn(f"{name}_a_ci", "95 % interval", "interval"),
        ResultColumn(f"{name}_b", f"b ({label})", "number"),
        ResultColumn(f"{name}_b_ci", "95 % interval", "interval"),
    ]


def _build_line_cells(name: str, line: reference.FittedLine | None) -> dict[str, Any]:
    if line is None:
        return {}
    return {
        f"{name}_a": line.intercept,
        f"{name}_a_ci": line.intercept_interval,
        f"{name}_b": line.slope,
        f"{name}_b_ci": line.slope_interval,
    }


def _build_distribution_table(data: AnalysisData, norms: ItemNorms, matched: list[MatchedItems]) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("sd_model", "SD of model", "number"),
        ResultColumn("sd_human", "SD of norms", "number"),
        ResultColumn("ks", "Kolmogorov–Smirnov D", "coefficient"),
        ResultColumn("ks_p", "p", "p"),
        ResultColumn("wasserstein", "Wasserstein distance", "number"),
    ]
    from scipy.stats import ks_2samp, wasserstein_distance

    rows = []
    for match in matched:
        test = ks_2samp(match.model, match.people)
        has_sd = len(match.model) > 1
        rows.append(
            {
                "condition": match.label,
                "items": len(match.model),
                "sd_model": float(match.model.std(ddof=1)) if has_sd else None,
                "sd_human": float(match.people.std(ddof=1)) if has_sd else None,
                "ks": float(test.statistic),
                "ks_p": float(test.pvalue),
                "wasserstein": float(wasserstein_distance(match.model, match.people)),
            }
        )
    return ResultTable(
        "norm_distributions",
        "Distribution of item means against the norms",
        columns,
        rows,
        test="Two-sample Kolmogorov–Smirnov test over item means.",
    )
