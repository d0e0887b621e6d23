"""Results: the leaderboard, paired differences and the comparison with norms, each with its figures."""

from __future__ import annotations

from collections.abc import Iterator

from grading_app.analysis.condition_differences import build_condition_tables
from grading_app.analysis.figures import select_figures
from grading_app.analysis.norms import build_norm_tables
from grading_app.paper_figures.kinds import PaperFigure
from grading_app.paper_figures.plane_figures import Plane, make_plane_figures
from grading_app.paper_figures.rating_data import load_rating_data
from grading_app.paper_figures.rating_figures import make_dimension_figures
from grading_app.paper_figures.reliability_figure import reliability_figure
from grading_app.paper_figures.site_figures import board_figures, frame_figures, table_figure
from grading_app.reports.leaderboard_tables import make_leaderboard_table
from grading_app.reports.result_table import ResultTable
from grading_app.reports.score_matrix import Measure
from grading_app.study_report.document import Block, FigureBlock, Heading, paragraph, sentence, table_block
from grading_app.study_report.figure_blocks import figure_block
from grading_app.study_report.report_source import ReportSource

SHOWN = {
    "differences": ("a", "b", "items", "difference", "difference_ci", "p", "p_holm", "effect"),
    "norm_differences": ("condition", "items", "model_mean", "human_mean", "difference", "difference_ci", "p", "d"),
    "norm_agreement": ("condition", "items", "r", "r_ci", "rho", "ccc", "icc21"),
}
MOST_MEASURES = 12  # Beyond it, the analysis page has the further ones; the report says so.


def blocks(source: ReportSource) -> list[Block | None]:
    if not source.measures:
        return [paragraph("No answer has a score yet.", tone="note")]
    found: list[Block | None] = [*_leaderboard(source), *_figures(source)]
    for measure in source.measures[:MOST_MEASURES]:
        found += _measure(source, measure)
    if len(source.measures) > MOST_MEASURES:
        left = len(source.measures) - MOST_MEASURES
        found.append(paragraph(sentence(f"{left} further measures are on the analysis page.",
                                        source.page("experiment_analysis")), tone="note"))  # fmt: skip
    return found


def _leaderboard(source: ReportSource) -> Iterator[Block | None]:
    page = source.page("experiment_results")
    for measure in source.board.measures:
        known = [row for row in source.board.rows if row.scores[measure.key].mean is not None]
        best = [row for row in known if row.scores[measure.key].is_best]
        if best:
            yield paragraph(
                sentence(
                    f"On {measure.label}, {best[0].label} scores higher than every other condition by paired tests "
                    "after Holm's correction.",
                    page,
                )
            )
        elif len(known) > 1 and not measure.is_rating:
            yield paragraph(
                sentence(f"On {measure.label}, no condition is better than every other one by these tests.", page)
            )
    table = make_leaderboard_table(source.board)
    yield from (_board_part(table, measure.key, page) for measure in source.board.measures)
    totals = ("condition", "cost_usd", "input_tokens", "output_tokens", "latency_s")
    yield table_block(_select_columns(table, "effort", "Effort by condition", totals), (), page)


def _board_part(table: ResultTable, key: str, page: str) -> Block:
    """Return the columns of one measure, because all measures together are too wide for a page."""
    names = ("condition", key, f"{key}_ci", f"{key}_n", f"{key}_missing", f"{key}_best")
    label = next(column.label for column in table.columns if column.name == key)
    return table_block(_select_columns(table, f"leaderboard-{key}", f"Leaderboard: {label}", names), (), page)


def _select_columns(table: ResultTable, name: str, title: str, columns: tuple[str, ...]) -> ResultTable:
    from dataclasses import replace

    chosen = [column for column in table.columns if column.name in columns]
    is_board = name.startswith("leaderboard")
    formula, correction = (table.formula, table.correction) if is_board else ("", "")
    rows = [{column.name: row.get(column.name) for column in chosen} for row in table.rows]
    safe = name.replace(":", "-")
    return replace(
        table, name=safe, title=title, columns=chosen, rows=rows, formula=formula, correction=correction, links=[]
    )


def _figures(source: ReportSource) -> Iterator[Block]:
    for figure in [*frame_figures(source.figures), *board_figures(source.figures)]:
        if figure.in_report:
            yield figure_block(source, figure)


def _measure(source: ReportSource, measure: Measure) -> list[Block | None]:
    data = source.analysis(measure)
    tables = [one for one in (*build_condition_tables(data), *build_norm_tables(data)) if one.name in SHOWN]
    found: list[Block | None] = [Heading(measure.label)] if tables else []
    suffix = f"-{measure.key.replace(':', '-')}"
    for table in tables:
        page = source.analysis_page(measure, table.name)
        found += [
            paragraph(sentence(table.sentence, page)) if table.sentence else None,
            table_block(_add_suffix(table, suffix), SHOWN[table.name], page),
        ]
    drawn = {table.name: table for table in tables}
    pictures = [table_figure(figure, table, suffix) for figure, table in select_figures(drawn)]
    return [*found, *(figure_block(source, one, measure=measure.key) for one in pictures), *_extra(source, measure)]


def _add_suffix(table: ResultTable, suffix: str) -> ResultTable:
    from dataclasses import replace

    return replace(table, name=f"{table.name}{suffix}", sentence="")


def _extra(source: ReportSource, measure: Measure) -> Iterator[FigureBlock]:
    """Yield the further figures of a measure: of a dimension, of two dimensions, of repetitions."""
    suffix = f"-{measure.key.replace(':', '-')}"
    found: list[PaperFigure] = []
    if measure.is_rating and (data := load_rating_data(source.figures, measure)) is not None:
        found += [one for one in make_dimension_figures(data, suffix) if one.in_report]
        ratings = [one for one in source.measures if one.is_rating]
        if measure == ratings[0] and len(ratings) > 1 and (other := load_rating_data(source.figures, ratings[1])):
            found += [one for one in make_plane_figures(Plane(data, other, {})) if one.in_report]
    scores = source.analysis(measure).scores
    if (one := reliability_figure(scores, source.frames.labels, measure.label, suffix)) is not None:
        found.append(one)
    yield from (figure_block(source, one, measure=measure.key) for one in found)
