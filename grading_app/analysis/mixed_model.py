"""The mixed model of the design, beside the F tests that assume less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grading_app.analysis.data import AnalysisData
from grading_app.reports import statistic_format
from grading_app.reports.result_table import ResultColumn, ResultTable
from grading_app.statistics.factorial_model import FactorFit
from grading_app.statistics.mixed_model import MixedFit, fit_mixed_model
from grading_app.statistics.paired import holm

METHOD = (
    "Score = effects of model, prompt and sampler + random level of the item + random item × condition. Restricted "
    "maximum likelihood of cell means (statsmodels' MixedLM)."
)
TEST = (
    "F: Wald's test of a term over its number of effects, with the degrees of freedom within items. It assumes that "
    "all pairs of conditions correlate equally. F of T²: Hotelling's, without this assumption."
)


def build_mixed_table(
    data: AnalysisData, factor_fit: FactorFit, levels: Mapping[str, Sequence[int]]
) -> ResultTable | None:
    """Return the table; None if the model cannot be fitted. factor_fit: the F tests of the same terms."""
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
        rows,
        formula=METHOD,
        test=TEST,
        correction=f"Holm over the {len(rows)} terms of this table." if len(rows) > 1 else "",
        sentence=_describe_convergence(fit),
        notes=_list_notes(data, fit),
    )


def name_term(factors: tuple[str, ...]) -> str:
    return " × ".join(factors)


def _describe_convergence(fit: MixedFit) -> str:
    if not fit.converged:
        return "The fit did not converge, so these numbers are not reliable. Use the F tests of T²."
    if fit.at_boundary:
        return "The fit converged at the boundary: items have no variance of their own in this model."
    return "The fit converged."


def _list_notes(data: AnalysisData, fit: MixedFit) -> list[str]:
    interaction = "item × condition" if fit.repetition_sd is not None else "item × condition and error of an answer"
    parts = [(fit.item_sd, "items"), (fit.interaction_sd, interaction)]
    if fit.repetition_sd is not None:
        parts.append((fit.repetition_sd, "repetitions"))
    deviations = ", ".join(f"{statistic_format.format_number(sd, 3)} ({name})" for sd, name in parts)
    notes = [f"{fit.items} items. Standard deviations: {deviations}."]
    if not fit.is_balanced:
        notes.append("The cells have different numbers of answers, but equal weights, so the fit is approximate.")
    if data.is_share:
        notes.append("Shares are modelled as they are, not as log-odds.")
    if fit.left_out:
        terms = ", ".join(map(name_term, fit.left_out))
        notes.append(f"Excluded, because the conditions do not determine them: {terms}.")
    return notes
