"""Factors of the design: models, prompts and samplers as effects in one model, by F tests and by mixed models.

The linear and the logistic mixed model stand beside the F tests, which assume less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from grading_app.results import statistic_format
from grading_app.results.analysis.data import AnalysisData
from grading_app.results.frames import FACTORS
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.condition_pairs import describe_dependence
from grading_app.statistics.factorial_model import FactorFit, fit_factors
from grading_app.statistics.intervals import describe_odds_coverage
from grading_app.statistics.logistic_mixed_model import (
    NO_SPREAD_WITHIN_ITEMS,
    SEPARATION,
    LogisticResult,
    OddsRatio,
    fit_logistic_model,
)
from grading_app.statistics.paired import holm
from grading_app.statistics.variance_components import MixedFit, fit_mixed_model

LEVEL = 0.05
ADJUSTED = (
    "Some items lack a score in some conditions. The model fills them with the level of the item and the effect of the "
    "condition, so a mean can differ from the mean of the scores."
)
METHOD = (
    "One linear model of cell means with a level of each item. Effects sum to zero over the levels of a factor. "
    "Covariances: jackknife over items, so the answers to an item may correlate in any way."
)
LINEAR = (
    "Score = effects of model, prompt and sampler + random level of the item + random item × condition. Restricted "
    "maximum likelihood of cell means."
)
LINEAR_TEST = (
    "F: Wald's test of a term over its number of effects, with the degrees of freedom within items. It assumes that "
    "all pairs of conditions correlate equally. F of T²: Hotelling's, without this assumption."
)
LOGISTIC = (
    "Log-odds of a right answer = effects of model, prompt and sampler + random level of the item{interaction}. "
    "Maximum likelihood by {method}, as in lme4's glmer."
)
LOGISTIC_TEST = (
    "χ²: likelihood-ratio test, a fit with the term against a fit without it. F of T²: Hotelling's, of shares, which "
    "does not assume that all pairs of conditions correlate equally."
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
    notes += _list_excluded_terms(fit.left_out)
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


def build_mixed_table(
    data: AnalysisData, factor_fit: FactorFit, levels: Mapping[str, Sequence[int]]
) -> ResultTable | None:
    """Return the table; None if the model cannot be fitted. factor_fit: the F tests of the same terms.

    It has no rows if the fit did not converge.
    """
    fit = fit_mixed_model(data.scores, levels)
    if fit is None:
        return None
    others = {test.factors: test for test in factor_fit.tests}
    corrected = holm([1.0 if test.p is None else test.p for test in fit.tests])
    rows = [
        {
            "term": name_term(test.factors),
            "f": test.f,
            "df1": test.df[0] if test.df else None,
            "df2": test.df[1] if test.df else None,
            "p": test.p,
            "p_holm": p_holm,
            "f_t2": others[test.factors].f if test.factors in others else None,
            "p_t2": others[test.factors].p if test.factors in others else None,
        }
        for test, p_holm in zip(fit.tests, corrected, strict=True)
    ]
    return ResultTable(
        "mixed_model",
        "Mixed model with random items",
        [
            ResultColumn("term", "Term"),
            ResultColumn("f", "F", "number"),
            ResultColumn("df1", "df of term", "count"),
            ResultColumn("df2", "df within items", "count"),
            ResultColumn("p", "p", "p"),
            ResultColumn("p_holm", "p (Holm)", "p"),
            ResultColumn("f_t2", "F of T²", "number"),
            ResultColumn("p_t2", "p of T²", "p"),
        ],
        rows if fit.converged else [],
        formula=LINEAR,
        test=LINEAR_TEST,
        correction=f"Holm over the {len(rows)} terms of this table." if len(rows) > 1 else "",
        sentence=_describe_convergence(fit),
        notes=_list_notes(data, fit) if fit.converged else [],
        # The page has the numbers of T² in the table of effects above; a file of this table stands alone.
        page_columns=("term", "f", "df1", "df2", "p", "p_holm"),
    )


def name_term(factors: tuple[str, ...]) -> str:
    return " × ".join(factors)


def _describe_convergence(fit: MixedFit) -> str:
    if not fit.converged:
        return "The fit did not converge, so it has no numbers. Use the F tests of T² above."
    if fit.at_boundary:
        return "The fit converged at the boundary: items have no variance of their own in this model."
    return "The fit converged."


def _list_notes(data: AnalysisData, fit: MixedFit) -> list[str]:
    interaction = "item × condition" if fit.repetition_sd is not None else "item × condition and error of an answer"
    parts = [(fit.item_sd, "items"), (fit.interaction_sd, interaction)]
    if fit.repetition_sd is not None:
        parts.append((fit.repetition_sd, "repetitions"))
    notes = [f"{fit.items} items. Standard deviations: {_format_deviations(parts)}."]
    if not fit.is_balanced:
        notes.append("The cells have different numbers of answers, but equal weights, so the fit is approximate.")
    if data.is_share:
        notes.append("Shares are modelled as they are. The logistic mixed model below uses log-odds.")
    return [*notes, *_list_excluded_terms(fit.left_out)]


def _format_deviations(parts: Iterable[tuple[float, str]]) -> str:
    return ", ".join(f"{statistic_format.format_number(deviation)} ({source})" for deviation, source in parts)


def _list_excluded_terms(terms: Iterable[tuple[str, ...]]) -> list[str]:
    names = ", ".join(map(name_term, terms))
    return [f"Excluded, because the conditions do not determine them: {names}."] if names else []


def build_logistic_tables(
    data: AnalysisData,
    factor_fit: FactorFit,
    names: Mapping[str, Sequence[str]],
    levels: Mapping[str, Sequence[int]],
) -> list[ResultTable]:
    """Return the tests of terms and the odds ratios of levels; none if scores are not right or wrong, or are too few.

    names: of the levels of each factor. Levels are compared with that of the baseline, or with the first.
    """
    baseline = data.scope.baseline if data.scope.baseline in data.conditions else data.conditions[0]
    references = {factor: codes[data.conditions.index(baseline)] for factor, codes in levels.items()}
    result = fit_logistic_model(data.scores, levels, references) if data.is_share else None
    if result is None:
        return []
    others = {test.factors: test for test in factor_fit.tests}
    corrected = holm([test.p for test in result.tests])
    terms = ResultTable(
        "logistic_mixed_model",
        "Logistic mixed model with random items",
        [
            ResultColumn("term", "Term"),
            ResultColumn("chi2", "χ²", "number"),
            ResultColumn("df", "df", "count"),
            ResultColumn("p", "p", "p"),
            ResultColumn("p_holm", "p (Holm)", "p"),
            ResultColumn("f_t2", "F of T²", "number"),
            ResultColumn("p_t2", "p of T²", "p"),
        ],
        [
            {
                "term": name_term(test.factors),
                "chi2": test.chi2,
                "df": test.df,
                "p": test.p,
                "p_holm": p_holm,
                "f_t2": others[test.factors].f if test.factors in others else None,
                "p_t2": others[test.factors].p if test.factors in others else None,
            }
            for test, p_holm in zip(result.tests, corrected, strict=True)
        ],
        formula=LOGISTIC.format(interaction=" + random item × condition", method="Laplace's approximation")
        if result.has_interaction
        else LOGISTIC.format(interaction="", method="adaptive Gauss–Hermite quadrature"),
        test=LOGISTIC_TEST,
        correction=f"Holm over the {len(result.tests)} terms of this table." if len(result.tests) > 1 else "",
        sentence=_describe_logistic_fit(data, result),
        notes=[] if result.reason else _list_logistic_notes(result),
        page_columns=("term", "chi2", "df", "p", "p_holm"),
    )
    if not result.ratios:
        return [terms]
    clearest = max(result.ratios, key=lambda one: abs(one.log_ratio) / one.se)
    outcome = _name_ratio(names, clearest)
    with_missing = []
    identity = attrgetter("factor", "level", "reference")
    for one in data.fill_worst_cases():
        filled = fit_logistic_model(one.scores, levels, references)
        same = [ratio for ratio in filled.ratios if identity(ratio) == identity(clearest)] if filled else []
        with_missing.append(_name_ratio(names, same[0]) if same else "the model has no fit")
    caveat = describe_dependence(outcome, with_missing, at_ends=data.has_ends)
    return [terms, _build_ratio_table(factor_fit, names, result, clearest, caveat)]


def _name_ratio(names: Mapping[str, Sequence[str]], one: OddsRatio) -> str:
    """Return a clause: which level has the higher odds, if the interval of the ratio does not contain 1."""
    level, reference = names[one.factor][one.level], names[one.factor][one.reference]
    low, high = one.interval
    if low <= 1 <= high:
        return f"no difference between {level} and {reference} is shown"
    return f"the odds with {level} are {'higher' if low > 1 else 'lower'} than those with {reference}"


def _describe_logistic_fit(data: AnalysisData, result: LogisticResult) -> str:
    """Return whether there is a fit, and if not, why."""
    if result.reason == SEPARATION:
        alike = "; ".join(
            f"{data.labels[data.conditions[column]]} (all {'right' if share == 1 else 'wrong'})"
            for column, share in result.alike
        )
        return (
            f"No fit, because all answers are alike under some conditions: {alike}. Their odds have no "
            "finite estimate. Use the F tests of T² and the differences above."
        )
    if result.reason == NO_SPREAD_WITHIN_ITEMS:
        return (
            "No fit, because nearly all answers to an item are alike under all conditions, so the variance of items "
            "has no finite estimate. Use the F tests of T² and the differences above."
        )
    if result.reason:
        return "No numbers, because the fit did not converge. Use the F tests of T² and the differences above."
    if not result.item_sd:
        return "The fit converged at the boundary: items have no variance of their own in this model."
    if result.has_interaction and not result.interaction_sd:
        return "The fit converged at the boundary: item × condition has no variance of its own in this model."
    return "The fit converged."


def _list_logistic_notes(result: LogisticResult) -> list[str]:
    parts = [(result.item_sd, "items"), *([(result.interaction_sd, "item × condition")] * result.has_interaction)]
    deviations = _format_deviations(parts)
    notes = [f"{result.answers:,} answers to {result.items} items. Standard deviations in log-odds: {deviations}."]
    if not result.has_interaction:
        notes.append("With one answer to an item under a condition, item × condition cannot be told from chance.")
    return [*notes, *_list_excluded_terms(result.left_out)]


def _build_ratio_table(
    factor_fit: FactorFit,
    names: Mapping[str, Sequence[str]],
    result: LogisticResult,
    clearest: OddsRatio,
    caveat: str,
) -> ResultTable:
    """Return the table. clearest: the ratio that its sentence states. caveat: the end of the sentence."""
    shares = {(mean.factor, mean.level): mean.mean for mean in factor_fit.means}
    # The ratio is in words, larger than 1.
    level, reference = names[clearest.factor][clearest.level], names[clearest.factor][clearest.reference]
    ratio, (low, high) = clearest.ratio, clearest.interval
    if ratio < 1:
        level, reference, ratio, low, high = reference, level, 1 / ratio, 1 / high, 1 / low
    text = (
        f"For one item, the odds of a right answer with {level} are {statistic_format.format_number(ratio)} times "
        f"those with {reference}, 95 % interval {statistic_format.format_interval(low, high)}."
    )
    if low <= 1:
        text = f"{text} The interval contains 1, so a difference is not shown."
    return ResultTable(
        "odds_ratios",
        "Odds ratios of levels",
        [
            ResultColumn("factor", "Factor"),
            ResultColumn("level", "Level"),
            ResultColumn("reference", "Compared with"),
            ResultColumn("share", "Share", "share"),
            ResultColumn("reference_share", "Share compared with", "share"),
            ResultColumn("odds_ratio", "Odds ratio", "number"),
            ResultColumn("odds_ratio_ci", "95 % interval", "interval"),
        ],
        [
            {
                "factor": one.factor,
                "level": names[one.factor][one.level],
                "reference": names[one.factor][one.reference],
                "share": shares.get((one.factor, one.level)),
                "reference_share": shares.get((one.factor, one.reference)),
                "odds_ratio": one.ratio,
                "odds_ratio_ci": one.interval,
            }
            for one in result.ratios
        ],
        formula="Odds ratio: the odds of a right answer to one item at a level, over the odds at the level it is "
        "compared with. A mean over the other factors. From the logistic mixed model, with Wald's interval and "
        "Student's t.",
        sentence=f"{text} {caveat}".strip(),
        notes=[
            "Odds are right answers per wrong answer: 4 for a share of 80 %. An odds ratio of 1 is no difference; 2 "
            "raises 50 % to 67 %, and 80 % to 89 %.",
            "The ratio is for one item. It is farther from 1 than the ratio of the odds of the two shares, because "
            "items differ in difficulty.",
            *filter(None, [describe_odds_coverage(result.items)]),
        ],
    )
