"""Factors of the design in one model, and the dependence of a difference on the category of items."""

from __future__ import annotations

from typing import Any

import numpy as np

from grading_app.results import statistic_format
from grading_app.results.analysis.data import AnalysisData
from grading_app.results.analysis.mixed_model_tables import build_logistic_tables, build_mixed_table, name_term
from grading_app.results.frames import FACTORS
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.category_interaction import Interaction, category_interaction
from grading_app.statistics.condition_pairs import ConditionPair, compare_conditions
from grading_app.statistics.factorial_model import FactorFit, fit_factors
from grading_app.statistics.known_coverage import describe_change_coverage
from grading_app.statistics.missing_answers import describe_dependence
from grading_app.statistics.paired import describe_methods, holm

MAX_ROWS = 300
MAX_NAMES = 3  # Of more differences, a clause states the number.
LEVEL = 0.05


def build_category_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the tables; none for a single category or condition."""
    names = sorted(set(data.categories) - {""})
    if len(names) < 2 or len(data.conditions) < 2:
        return []
    interaction = category_interaction(data.scores.mean, data.categories)
    tables = [
        _build_difference_table(data, names),
        *([_build_interaction_table(data, interaction)] if interaction else []),
    ]
    return [table for table in tables if table.rows]


def _compare_within_categories(
    data: AnalysisData, names: list[str], baseline: int
) -> list[tuple[tuple[str, ConditionPair], float]]:
    """Return (category, comparison with the baseline) with p after Holm's correction, the smallest p first."""
    pairs: list[tuple[str, ConditionPair]] = []
    for name in names:
        scores = data.scores.select_items(np.array([one == name for one in data.categories], dtype=np.bool_))
        others = [one for one in data.conditions if one != baseline]
        comparisons = [compare_conditions(scores, baseline, other, data.bounds) for other in others]
        pairs += [(name, pair) for pair in comparisons if pair]
    corrected = holm([pair.change.p_or_one for _, pair in pairs])
    return sorted(zip(pairs, corrected, strict=True), key=lambda entry: entry[0][1].change.p_or_one)


def _name_differences(data: AnalysisData, by_p: list[tuple[tuple[str, ConditionPair], float]]) -> str:
    """Return a clause: which conditions differ in which categories."""
    found = sorted(
        f"{data.labels[pair.b]} is {'higher' if pair.change.mean > 0 else 'lower'} on {name}"
        for (name, pair), p in by_p
        if pair.change.p is not None and p < LEVEL
    )
    if len(found) > MAX_NAMES:
        return f"{'; '.join(found[:MAX_NAMES])}; and {len(found) - MAX_NAMES} more differences are significant"
    return "; ".join(found) or "no difference is significant"


def _build_difference_table(data: AnalysisData, names: list[str]) -> ResultTable:
    requested = data.scope.baseline
    baseline = requested if requested in data.conditions else data.conditions[0]
    by_p = _compare_within_categories(data, names, baseline)
    pairs = [pair for (_, pair), _ in by_p]
    filled = [
        _name_differences(data, _compare_within_categories(one, names, baseline)) for one in data.fill_worst_cases()
    ]
    caveat = describe_dependence(_name_differences(data, by_p), filled, at_ends=data.has_ends)
    rows: list[dict[str, Any]] = [
        {
            "category": name,
            "condition": data.labels[pair.b],
            "items": pair.items,
            "difference": pair.change.mean,
            "difference_ci": (pair.change.low, pair.change.high) if pair.change.low is not None else None,
            "test": pair.change.test or pair.change.reason,
            "t": pair.change.t,
            "df": pair.change.df,
            "p": pair.change.p,
            "p_holm": p_holm if pair.change.p is not None else None,
        }
        for (name, pair), p_holm in by_p
    ]
    significant = [row for row in rows if row["p_holm"] is not None and row["p_holm"] < LEVEL]
    sentence = (
        f"No condition differs from {data.labels[baseline]} in any category at the 5 % level after Holm's correction."
    )
    if significant:
        first = significant[0]
        size = statistic_format.add_sign(statistic_format.format_difference(first["difference"], data.is_share))
        sentence = (
            f"{len(significant)} of {len(rows)} differences are significant after Holm's correction. The smallest p: "
            f"{first['condition']} on {first['category']}, {size} "
            f"(p {statistic_format.format_p_equation(first['p_holm'])})."
        )
    notes = [] if requested == baseline else ["No baseline is selected, so the first condition is used."]
    if coverage := describe_change_coverage((pair.change for pair in pairs), is_share=data.is_share):
        notes.append(coverage)
    if len(rows) > MAX_ROWS:
        notes.append(f"Only the {MAX_ROWS} of {len(rows)} differences with the smallest p are listed.")
    return ResultTable(
        "category_differences",
        f"Differences from {data.labels[baseline]} by category",
        [
            ResultColumn("category", "Category"),
            ResultColumn("condition", "Condition"),
            ResultColumn("items", "Common items", "count"),
            ResultColumn("difference", "Difference", data.measure.difference_column),
            ResultColumn("difference_ci", "95 % interval", data.measure.difference_interval_column),
            ResultColumn("test", "Test"),
            ResultColumn("t", "t", "number"),
            ResultColumn("df", "df", "count"),
            ResultColumn("p", "p", "p"),
            ResultColumn("p_holm", "p (Holm)", "p"),
        ],
        rows[:MAX_ROWS],
        formula="Mean over the category's common items of the condition's cell mean minus the baseline's.",
        correction=f"Holm over the {len(rows)} comparisons of this table.",
        test=describe_methods(pair.change for pair in pairs),
        sentence=f"{sentence} {caveat}".strip(),
        notes=notes,
    )


def _name_interaction(interaction: Interaction) -> str:
    verdict = "differ between categories" if interaction.p < LEVEL else "show no difference between categories"
    return f"the differences between conditions {verdict}"


def _build_interaction_table(data: AnalysisData, interaction: Interaction) -> ResultTable:
    outcome, p = _name_interaction(interaction), statistic_format.format_p_equation(interaction.p)
    filled = [category_interaction(one.scores.mean, data.categories) for one in data.fill_worst_cases()]
    caveat = describe_dependence(outcome, [_name_interaction(one) for one in filled if one], at_ends=data.has_ends)
    return ResultTable(
        "category_interaction",
        "Interaction of category and condition",
        [
            ResultColumn("term", "Term"),
            ResultColumn("items", "Items", "count"),
            ResultColumn("f", "F", "number"),
            ResultColumn("df1", "df of term", "count"),
            ResultColumn("df2", "df of error", "count"),
            ResultColumn("p", "p (permutation)", "p"),
        ],
        [
            {
                "term": "Category × condition",
                "items": interaction.items,
                "f": interaction.f,
                "df1": interaction.df[0],
                "df2": interaction.df[1],
                "p": interaction.p,
            }
        ],
        formula="F of the split-plot analysis of variance: items within categories, conditions within items.",
        test=f"{interaction.resamples:,} random permutations of the items' categories (Anderson and ter Braak 2003).",
        sentence=f"{outcome[0].upper()}{outcome[1:]} (p {p}). {caveat}".strip(),
        notes=["Only items with a score in every condition are used."],
    )


ADJUSTED = (
    "Some items lack a score in some conditions. The model fills them with the level of the item and the effect of the "
    "condition, so a mean can differ from the mean of the scores."
)
METHOD = (
    "One linear model of cell means with a level of each item. Effects sum to zero over the levels of a factor. "
    "Covariances: jackknife over items, so the answers to an item may correlate in any way."
)


def build_factor_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the tables; none if no factor of the design varies, or for fewer than three items."""
    names = {
        factor: list(dict.fromkeys(data.facets[condition][at] for condition in data.conditions))
        for at, factor in enumerate(FACTORS)
    }
    level_indices = {
        factor: [levels.index(data.facets[condition][at]) for condition in data.conditions]
        for at, (factor, levels) in enumerate(names.items())
    }
    fit = fit_factors(data.scores.mean, level_indices, data.bounds)
    if fit is None:
        return []
    filled = [fit_factors(one.scores.mean, level_indices, data.bounds) for one in data.fill_worst_cases()]
    caveat = describe_dependence(
        _name_effects(fit), [_name_effects(one) for one in filled if one], at_ends=data.has_ends
    )
    mixed = build_mixed_table(data, fit, level_indices)
    rows: list[dict[str, Any]] = [
        {
            "factor": marginal_mean.factor,
            "level": names[marginal_mean.factor][marginal_mean.level],
            "mean": marginal_mean.mean,
            "interval": (marginal_mean.low, marginal_mean.high) if marginal_mean.low is not None else None,
        }
        for marginal_mean in fit.means
    ]
    mean_table = ResultTable(
        "marginal_means",
        "Marginal means",
        [
            ResultColumn("factor", "Factor"),
            ResultColumn("level", "Level"),
            ResultColumn("mean", "Share" if data.is_share else "Mean", data.measure.mean_column),
            ResultColumn("interval", "95 % interval", data.measure.interval_column),
        ],
        rows,
        formula="Mean of a level over items, with equal weights for the levels of the other factors. "
        + ("Score interval within the scale, Student's t over items." if data.bounds else "Student's t over items."),
        notes=[
            "Compare levels by the F tests and the differences. Overlapping intervals do not show equality.",
            *([] if fit.complete else [ADJUSTED]),
        ],
    )
    return [
        _build_term_table(fit, caveat),
        *([mixed] if mixed else []),
        *build_logistic_tables(data, fit, names, level_indices),
        mean_table,
    ]


def _correct_tests(fit: FactorFit) -> dict[tuple[str, ...], float]:
    """Return p after Holm's correction by term, of the terms that were tested."""
    tested = {test.factors: test.p for test in fit.tests if test.p is not None}
    return dict(zip(tested, holm(list(tested.values())), strict=True))


def _name_effects(fit: FactorFit) -> str:
    """Return a clause: which terms have an effect after Holm's correction."""
    terms = [name_term(factors) for factors, p in _correct_tests(fit).items() if p < LEVEL]
    verb = "this term has" if len(terms) == 1 else "these terms have"
    return f"{verb} an effect: {', '.join(terms)}" if terms else "no term has an effect"


def _build_term_table(fit: FactorFit, caveat: str) -> ResultTable:
    tested = [test for test in fit.tests if test.p is not None]
    corrected = _correct_tests(fit)
    rows = [
        {
            "term": name_term(test.factors),
            "f": test.f,
            "df1": test.df[0] if test.df else None,
            "df2": test.df[1] if test.df else None,
            "p": test.p,
            "p_holm": corrected.get(test.factors),
            "remark": test.reason,
        }
        for test in fit.tests
    ]
    columns = [
        ResultColumn("term", "Term"),
        ResultColumn("f", "F", "number"),
        ResultColumn("df1", "df of term", "count"),
        ResultColumn("df2", "df of items", "count"),
        ResultColumn("p", "p", "p"),
        ResultColumn("p_holm", "p (Holm)", "p"),
        *([ResultColumn("remark", "Remark")] if any(test.reason for test in fit.tests) else []),
    ]
    notes = [f"{fit.items} items."]
    if not fit.complete:
        notes.append("Some items lack a score in some conditions, so the F tests are approximate.")
    if fit.left_out:
        terms = ", ".join(map(name_term, fit.left_out))
        notes.append(f"Excluded, because the conditions do not determine them: {terms}.")
    significant = "; ".join(
        f"{name_term(test.factors)} (F({test.df[0]}, {test.df[1]}) = {statistic_format.format_number(test.f)}, "
        f"p {statistic_format.format_p_equation(corrected[test.factors])})"
        for test in tested
        if test.df and corrected[test.factors] < LEVEL
    )
    sentence = "No term has an effect by a test at the 5 % level after Holm's correction." if tested else ""
    if significant:
        sentence = f"After Holm's correction, these terms have an effect: {significant}."
    return ResultTable(
        "factors",
        "Effects of model, prompt and sampler",
        columns,
        rows,
        formula=METHOD,
        test="Hotelling's T² over items as F, as in the multivariate analysis of variance for repeated measures.",
        correction=f"Holm over the {len(tested)} terms of this table." if len(tested) > 1 else "",
        sentence=f"{sentence} {caveat}".strip(),
        notes=notes,
    )
