"""Factors of the design: models, prompts and samplers as main effects and interactions in one model."""

from __future__ import annotations

from typing import Any

from grading_app.results import statistic_format
from grading_app.results.analysis.data import AnalysisData
from grading_app.results.analysis.mixed_model_tables import build_logistic_tables, build_mixed_table, name_term
from grading_app.results.frames import FACTORS
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.condition_pairs import describe_dependence
from grading_app.statistics.factorial_model import FactorFit, fit_factors
from grading_app.statistics.paired import holm

LEVEL = 0.05
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
