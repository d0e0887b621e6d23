"""The sections of the analysis, in the order of the page. To add one, write its function and list it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grading_app.analysis.category_differences import category_tables
from grading_app.analysis.condition_differences import condition_tables
from grading_app.analysis.data import AnalysisData
from grading_app.analysis.descriptives import descriptive_tables
from grading_app.analysis.factors import factor_tables
from grading_app.analysis.models import model_tables
from grading_app.analysis.norms import norm_tables
from grading_app.analysis.outliers import outlier_tables
from grading_app.analysis.robustness import robustness_tables
from grading_app.analysis.scale_points import scale_point_tables
from grading_app.analysis.variance import variance_tables
from grading_app.reports.result_table import ResultTable


@dataclass(frozen=True)
class Section:
    """A section of the analysis page. `tables` returns no table where the data do not allow the analysis.

    intro: one sentence for the reader: the question that the section answers.
    """

    name: str
    title: str
    intro: str
    tables: Callable[[AnalysisData], list[ResultTable]]


SECTIONS = (
    Section(
        "descriptives",
        "Descriptives",
        "How are the scores distributed?",
        lambda data: [*descriptive_tables(data), *scale_point_tables(data)],
    ),
    Section("norms", "Against norms", "How close are the ratings to those of people?", norm_tables),
    Section(
        "conditions",
        "Between conditions",
        "Which conditions differ, and by how much?",
        lambda data: [*condition_tables(data), *factor_tables(data), *category_tables(data)],
    ),
    Section(
        "variance",
        "Variance and design",
        "Where does the variance lie, and what would a larger design gain?",
        variance_tables,
    ),
    Section("outliers", "Outliers", "Which items lie far from what was expected?", outlier_tables),
    Section("robustness", "Robustness", "Does the headline depend on what counts?", robustness_tables),
    Section("models", "Between models", "Which conditions score alike, and where do all fail?", model_tables),
)


def section_tables(data: AnalysisData) -> dict[str, list[ResultTable]]:
    """Return the tables of every section by its name. Names of tables are unique over all sections."""
    return {section.name: section.tables(data) for section in SECTIONS}
