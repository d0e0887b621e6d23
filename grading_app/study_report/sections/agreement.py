"""Agreement of those who scored the same answers or items, by the default question of the agreement page."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict

from grading_app.comparison.agreement_cache import AGREEMENT, AgreementQuery, assign_roles
from grading_app.comparison.rating_selection import RatingSelection, RatingSelectionForm
from grading_app.paper_figures.agreement_figures import compared_figures
from grading_app.paper_figures.calibration_figure import calibration_figures
from grading_app.reports.result_table import ResultColumn, ResultTable, Row
from grading_app.study_report.document import Block, paragraph, sentence, table_block
from grading_app.study_report.figure_blocks import figure_block
from grading_app.study_report.report_source import ReportSource
from grading_app.study_report.words import count_noun, join_words


def blocks(source: ReportSource) -> list[Block | None]:
    selection = RatingSelectionForm(QueryDict(), source.experiment).selection()
    if selection is None or len(selection.raters) < 2:
        return [paragraph("Nobody else scored the same answers, so there is no agreement to report.", tone="note")]
    roles = assign_roles(selection, {})
    (compared,) = AGREEMENT.compute([AgreementQuery(selection, roles)], lambda _: None)
    page = source.page("experiment_agreement")
    if compared.report is None:
        return [paragraph("The raters have no unit in common.", tone="note")]
    measured = compared.report
    found: list[Block | None] = [
        paragraph(
            sentence(
                f"{count_noun(len(measured.coverage), 'rater')} scored {count_noun(compared.units, 'unit')}, of which "
                f"{measured.shared} have two scores or more. ",
                page,
            ),
            sentence(f"The raters are {join_words([one.label for one in selection.raters])}.", page),
        ),
        _measures(measured, page),
        _pairs(measured, selection, page),
    ]
    figures = [*compared_figures(selection, roles, compared), *calibration_figures(source.figures)]
    return [*found, *(figure_block(source, one) for one in figures)]


def _measures(measured: Any, page: str) -> Block:
    columns = [
        ResultColumn("measure", "Measure"),
        ResultColumn("estimate", "Estimate", "number", 3),
        ResultColumn("interval", "95 % interval", "interval", 3),
        ResultColumn("units", "Units", "count"),
        ResultColumn("source", "Source"),
        ResultColumn("why", "Note"),
    ]
    rows = [_measure_row(line) for line in measured.measures]
    notes = [f"Level of measurement: {measured.level}; {measured.level_reason}."]
    table = ResultTable("agreement", "Measures of agreement", columns, rows, notes=notes)
    return table_block(table, ("measure", "estimate", "interval", "units", "why"), page)


def _measure_row(line: Any) -> Row:
    found = line.estimate
    return {
        "measure": line.name,
        "estimate": found.estimate if found else None,
        "interval": (found.low, found.high) if found and found.low is not None else None,
        "units": found.units if found else None,
        "source": line.description.citation,
        "why": line.reason if not found or found.estimate is None else "",
    }


def _pairs(measured: Any, selection: RatingSelection, page: str) -> Block | None:
    labels = {rater.key: rater.label for rater in selection.all_raters}
    rows = [
        {
            "first": labels.get(str(pair.first), str(pair.first)),
            "second": labels.get(str(pair.second), str(pair.second)),
            **{name: getattr(pair, name) for name in ("n", "same", "kappa", "r", "difference")},
        }
        for pair in measured.pairs
    ]
    if not rows:
        return None
    columns = [
        ResultColumn("first", "First"),
        ResultColumn("second", "Second"),
        ResultColumn("n", "Units", "count"),
        ResultColumn("same", "Same score", "share"),
        ResultColumn("kappa", "Kappa", "coefficient"),
        ResultColumn("r", "Pearson's r", "coefficient"),
        ResultColumn("difference", "Mean difference", "signed"),
    ]
    return table_block(ResultTable("rater_pairs", "Agreement of pairs of raters", columns, rows), rows=page)
