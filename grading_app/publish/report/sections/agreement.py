"""Agreement of those who scored the same answers or items, by the default question of the agreement page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import QueryDict

from evalsite.lib.text.number_format import format_count
from grading_app.publish.report.document import Block, make_paragraph, make_sentence, make_table_block
from grading_app.publish.report.figure_blocks import make_figure_block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import count_noun
from grading_app.raters import agreement_figures
from grading_app.raters.agreement_cache import AGREEMENT, AgreementQuery, assign_roles
from grading_app.raters.agreement_tables import make_pair_table
from grading_app.raters.rating_selection import RatingSelection, RatingSelectionForm
from grading_app.results.figures import calibration
from grading_app.results.table import ResultColumn, ResultTable, Row
from grading_app.statistics.known_coverage import describe_estimates_coverage


def write_blocks(source: ReportSource) -> list[Block | None]:
    selection = RatingSelectionForm(QueryDict(), source.experiment).get_selection()
    if selection is None or len(selection.raters) < 2:
        return [
            make_paragraph(
                "The same answers have scores of one rater only, so there is no agreement to report.", tone="note"
            )
        ]
    roles = assign_roles(selection, {})
    (result,) = AGREEMENT.compute([AgreementQuery(selection, roles)], lambda _: None)
    page = source.get_url("experiment_agreement")
    if result.report is None:
        return [make_paragraph("The raters scored no answers or items in common.", tone="note")]
    report = result.report
    blocks: list[Block | None] = [
        make_paragraph(
            make_sentence(
                f"{count_noun(len(report.coverage), 'rater')} scored {_describe_units(selection, result.units)}; "
                f"{format_count(report.shared)} of them have at least two scores. ",
                page,
            ),
            make_sentence(f"The raters are: {'; '.join(rater.label for rater in selection.raters)}.", page),
        ),
        _write_measures(report, page),
        _write_pairs(report, selection, page),
    ]
    figures = [*agreement_figures.make_figures(selection, roles, result), calibration.make_figure(source.experiment)]
    return [*blocks, *(make_figure_block(source, figure) for figure in figures if figure)]


def _describe_units(selection: RatingSelection, n: int) -> str:
    if selection.in_pairs:
        return count_noun(n, "pair of answers", "pairs of answers")
    if selection.covers_answers:
        return count_noun(n, "answer") + (f" on {selection.criterion}" if selection.criterion else "")
    return f"{count_noun(n, 'item')} on {selection.units.partition(':')[2]}"


def _write_measures(report: Any, page: str) -> Block:
    columns = [
        ResultColumn("measure", "Measure"),
        ResultColumn("estimate", "Estimate", "number", 3),
        ResultColumn("interval", "95 % interval", "interval", 3),
        ResultColumn("units", "Units", "count"),
        ResultColumn("source", "Source"),
        ResultColumn("why", "Note"),
    ]
    rows: list[Row] = []
    for line in report.measures:
        result = line.estimate
        rows.append(
            {
                "measure": line.name,
                "estimate": result.estimate if result else None,
                "interval": (result.low, result.high) if result and result.low is not None else None,
                "units": result.units if result else None,
                "source": line.description.citation,
                "why": line.reason if not result or result.estimate is None else "",
            }
        )
    coverage = describe_estimates_coverage((line.name, line.estimate) for line in report.measures)
    notes = [f"Level of measurement: {report.level}; {report.level_reason}.", *([coverage] if coverage else [])]
    table = ResultTable("agreement", "Measures of agreement", columns, rows, notes=notes)
    notes_shown = ("why",) if any(row["why"] for row in rows) else ()
    return make_table_block(table, ("measure", "estimate", "interval", "units", *notes_shown), page)


def _write_pairs(report: Any, selection: RatingSelection, page: str) -> Block | None:
    labels = {rater.key: rater.label for rater in selection.all_raters}
    if not report.pairs:
        return None
    table = make_pair_table(report.pairs, labels, is_nominal=report.level == "nominal")
    notes = (
        ["Same rating: over the single ratings, if a rater's score is the mean of several."]
        if selection.singles
        else []
    )
    return make_table_block(replace(table, title="Agreement of pairs of raters", notes=notes), rows=page)
