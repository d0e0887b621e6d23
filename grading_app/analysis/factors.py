"""Factors of the design: models, prompts and samplers as main effects and interactions in one model."""

from __future__ import annotations

from typing import Any

from grading_app.analysis.data import AnalysisData
from grading_app.reports import statistic_format
from grading_app.reports.result_table import Kind, ResultColumn, ResultTable
from grading_app.statistics.factorial_model import FactorFit, TermTest, fit_factors
from grading_app.statistics.paired import holm

FACTORS = ("Model", "Prompt", "Sampler")
LEVEL = 0.05
METHOD = (
    "One linear model of cell means with a level of each item; effects add up to zero over the levels of a factor. "
    "Covariances: jackknife over items, so the answers to an item may correlate in any way."
)


def build_factor_tables(data: AnalysisData) -> list[ResultTable]:
    """Return no table if no facet of the design varies, or for fewer than three items."""
    names = {factor: _list_levels(data, at) for at, factor in enumerate(FACTORS)}
    places = {
        factor: [found.index(data.facets[one][at]) for one in data.conditions]
        for at, (factor, found) in enumerate(names.items())
    }
    fit = fit_factors(data.scores.mean, places, data.bounds)
    if fit is None:
        return []
    return [_build_term_table(fit), _build_mean_table(data, fit, names)]


def _list_levels(data: AnalysisData, at: int) -> list[str]:
    """Return the names of the facet's levels in the order of the design."""
    return list(dict.fromkeys(data.facets[one][at] for one in data.conditions))


def _build_term_table(fit: FactorFit) -> ResultTable:
    tested = [one for one in fit.tests if one.p is not None]
    corrected = dict(zip([one.factors for one in tested], holm([one.p or 0.0 for one in tested]), strict=True))
    rows = [
        {
            "term": _name_term(one.factors),
            "f": one.f,
            "df1": one.df[0] if one.df else None,
            "df2": one.df[1] if one.df else None,
            "p": one.p,
            "p_holm": corrected.get(one.factors),
            "remark": one.reason,
        }
        for one in fit.tests
    ]
    columns = [
        ResultColumn("term", "Term"),
        ResultColumn("f", "F", "number"),
        ResultColumn("df1", "df of term", "count"),
        ResultColumn("df2", "df of items", "count"),
        ResultColumn("p", "p", "p"),
        ResultColumn("p_holm", "p (Holm)", "p"),
        *([ResultColumn("remark", "Remark")] if any(one.reason for one in fit.tests) else []),
    ]
    notes = [f"{fit.items} items."]
    if not fit.complete:
        notes.append("Some items lack a score in some conditions, so the F tests are approximate.")
    if fit.left_out:
        terms = ", ".join(map(_name_term, fit.left_out))
        notes.append(f"Left out, because the conditions do not determine them: {terms}.")
    return ResultTable(
        "factors",
        "Effects of model, prompt and sampler",
        columns,
        rows,
        formula=METHOD,
        test="Hotelling's T² over items as F, as in the multivariate analysis of variance for repeated measures.",
        correction=f"Holm over the {len(tested)} terms of this table." if len(tested) > 1 else "",
        sentence=_describe_result(tested, corrected),
        notes=notes,
    )


def _name_term(factors: tuple[str, ...]) -> str:
    return " × ".join(factors)


def _describe_result(tested: list[TermTest], corrected: dict[tuple[str, ...], float]) -> str:
    if not tested:
        return ""
    found = [one for one in tested if corrected[one.factors] < LEVEL]
    if not found:
        return "No term has an effect by a test at the 5 % level after Holm's correction."
    shown = "; ".join(
        f"{_name_term(one.factors)} (F({one.df[0]}, {one.df[1]}) = {statistic_format.format_number(one.f)}, "
        f"p {statistic_format.format_p_equation(corrected[one.factors])})"
        for one in found
        if one.df
    )
    return f"After Holm's correction, these terms have an effect: {shown}."


def _build_mean_table(data: AnalysisData, fit: FactorFit, names: dict[str, list[str]]) -> ResultTable:
    mean: Kind = "share" if data.is_share else "number"
    ends: Kind = "share_interval" if data.is_share else "interval"
    rows: list[dict[str, Any]] = [
        {
            "factor": one.factor,
            "level": names[one.factor][one.level],
            "mean": one.mean,
            "interval": (one.low, one.high) if one.low is not None else None,
        }
        for one in fit.means
    ]
    return ResultTable(
        "marginal_means",
        "Marginal means",
        [
            ResultColumn("factor", "Factor"),
            ResultColumn("level", "Level"),
            ResultColumn("mean", "Share" if data.is_share else "Mean", mean),
            ResultColumn("interval", "95 % interval", ends),
        ],
        rows,
        formula="Mean of a level over items, equally over the levels of the other factors. "
        + ("Score interval within the scale, Student's t over items." if data.bounds else "Student's t over items."),
        notes=["Compare levels by the F tests and the differences, not by whether these intervals overlap."],
    )
