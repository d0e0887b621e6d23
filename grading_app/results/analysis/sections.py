"""The sections of the analysis, in the order of the page. To add one, write its function and list it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from grading_app.results.analysis.category_differences import build_category_tables
from grading_app.results.analysis.condition_differences import build_condition_tables
from grading_app.results.analysis.data import AnalysisData
from grading_app.results.analysis.descriptives import build_descriptive_tables, build_scale_point_tables
from grading_app.results.analysis.factors import build_factor_tables
from grading_app.results.analysis.models import build_model_tables
from grading_app.results.analysis.norms import build_norm_tables
from grading_app.results.analysis.outliers import build_outlier_tables
from grading_app.results.analysis.robustness import build_robustness_tables
from grading_app.results.analysis.variance import build_variance_tables
from grading_app.results.table import ResultTable


@dataclass(frozen=True)
class AnalysisSection:
    """A section of the analysis page.

    intro: the question that the section answers. tables: return the tables; none if the data do not allow the analysis.
    """

    name: str
    title: str
    intro: str
    tables: Callable[[AnalysisData], list[ResultTable]]

    def build(self, data: AnalysisData) -> list[ResultTable]:
        """Return the tables, each with the measure of the scope."""
        measure = data.scope.measure
        return [replace(table, measure=measure.key, measure_label=measure.label) for table in self.tables(data)]


SECTIONS = (
    AnalysisSection(
        "descriptives",
        "Descriptives",
        "How are the scores distributed?",
        lambda data: [*build_descriptive_tables(data), *build_scale_point_tables(data)],
    ),
    AnalysisSection("norms", "Against norms", "How close are the ratings to those of people?", build_norm_tables),
    AnalysisSection(
        "conditions",
        "Between conditions",
        "Which conditions differ, and by how much?",
        lambda data: [*build_condition_tables(data), *build_factor_tables(data), *build_category_tables(data)],
    ),
    AnalysisSection(
        "variance",
        "Variance and design",
        "What are the sources of variance, and how precise would a larger design be?",
        build_variance_tables,
    ),
    AnalysisSection("outliers", "Outliers", "Which items are far from their expected score?", build_outlier_tables),
    AnalysisSection(
        "robustness", "Robustness", "Does the headline depend on the choice of answers?", build_robustness_tables
    ),
    AnalysisSection(
        "models",
        "Between models",
        "Which conditions have similar scores, and on which items do all fail?",
        build_model_tables,
    ),
)


def build_section_tables(data: AnalysisData) -> dict[str, list[ResultTable]]:
    """Return the tables of all sections by the section's name. Table names are unique across sections."""
    return {section.name: section.build(data) for section in SECTIONS}
