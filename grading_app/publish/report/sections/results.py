"""Results: the leaderboard, paired differences and the comparison with norms, each with its figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from grading_app.publish.report.document import (
    Block,
    FigureBlock,
    Heading,
    make_paragraph,
    make_sentence,
    make_table_block,
)
from grading_app.publish.report.figure_blocks import make_figure_block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import count_noun, join_words
from grading_app.results.analysis.condition_differences import build_condition_tables
from grading_app.results.analysis.norms import build_norm_tables
from grading_app.results.figure import Figure
from grading_app.results.figures import analysis, cost, dimensions, list_results_figures, planes, reliability
from grading_app.results.figures.analysis import prepend_measure
from grading_app.results.leaderboard_tables import make_leaderboard_table
from grading_app.results.scores import Measure
from grading_app.results.table import ResultTable

BEST_NOTE = (
    "Best: higher than each other condition by a paired test over common items, p < 0.05 after Holm's correction."
)
SHOWN = {
    "differences": ("a", "b", "items", "difference", "difference_ci", "p", "p_holm", "effect"),
    "norm_differences": (
        "condition",
        "items",
        "model_mean",
        "human_mean",
        "difference",
        "difference_ci",
        "p",
        "p_holm",
        "d",
    ),
    "norm_agreement": ("condition", "items", "r", "r_ci", "rho", "ccc", "icc21"),
}
MAX_MEASURES = 12  # Beyond it, the analysis page has the further ones; the report says so.


def write_blocks(source: ReportSource) -> list[Block | None]:
    if not source.measures:
        return [make_paragraph("No answer has a score yet.", tone="note")]
    blocks: list[Block | None] = [*_write_leaderboard(source), *_write_figures(source)]
    for measure in source.measures[:MAX_MEASURES]:
        blocks += _write_measure(source, measure)
    if len(source.measures) > MAX_MEASURES:
        remaining = len(source.measures) - MAX_MEASURES
        blocks.append(make_paragraph(make_sentence(f"The analysis page has {count_noun(remaining, 'further measure')}.",
                                        source.get_url("experiment_analysis")), tone="note"))  # fmt: skip
    return blocks


def _write_leaderboard(source: ReportSource) -> Iterator[Block | None]:
    page = source.get_url("experiment_results")
    yield _write_best_conditions(source, page)
    table = make_leaderboard_table(source.board)
    yield from (_write_board_part(table, measure, page) for measure in source.board.measures)
    totals = ("condition", "cost_usd", "input_tokens", "output_tokens", "latency_s")
    effort = _select_columns(table, "effort", "Effort by condition", totals)
    yield make_table_block(replace(effort, formula="", correction="", notes=[]), (), page)


def _write_best_conditions(source: ReportSource, page: str) -> Block | None:
    """Return a sentence for each condition that is best on a measure, and one for the measures without a best one."""
    measures: dict[str, list[str]] = {}
    for measure in source.board.measures:
        scored_rows = [row for row in source.board.rows if row.scores[measure.key].mean is not None]
        if measure.is_rating or len(scored_rows) < 2:
            continue
        best = next((row.label for row in scored_rows if source.board.is_best(row, measure)), "No condition")
        measures.setdefault(best, []).append(measure.label)
    return make_paragraph(
        *(
            make_sentence(
                f"{best} scores higher than every other condition on {join_words(names)}, by paired tests over common "
                "items after Holm's correction. ",
                page,
            )
            for best, names in measures.items()
        )
    )


def _write_board_part(table: ResultTable, measure: Measure, page: str) -> Block:
    """Return the columns of one measure, because all measures together are too wide for a page."""
    key = measure.key
    has_best = any(row.get(f"{key}_best") for row in table.rows)
    names = (key, f"{key}_ci", f"{key}_n", f"{key}_missing", *([f"{key}_best"] if has_best else []))
    part = _select_columns(table, f"leaderboard-{key}", f"Leaderboard: {measure.label}", ("condition", *names))
    statistic = "Share" if measure.is_share else "Mean"
    formula = f"{statistic} over answers, with standard errors clustered by item. n: answers with a score."
    notes = table.notes if measure.is_share else []
    return make_table_block(
        replace(part, formula=formula, correction=BEST_NOTE if has_best else "", notes=notes), (), page
    )


def _select_columns(table: ResultTable, name: str, title: str, columns: tuple[str, ...]) -> ResultTable:
    selected = [column for column in table.columns if column.name in columns]
    rows = [{column.name: row.get(column.name) for column in selected} for row in table.rows]
    return replace(table, name=name.replace(":", "-"), title=title, columns=selected, rows=rows, links=[])


def _write_figures(source: ReportSource) -> Iterator[Block]:
    for figure in [*list_results_figures(source.frames), *islice(cost.make_figures(source.board), 1)]:
        if figure.in_report:
            yield make_figure_block(source, figure)


def _write_measure(source: ReportSource, measure: Measure) -> list[Block | None]:
    data = source.get_analysis_data(measure)
    tables = [table for table in (*build_condition_tables(data), *build_norm_tables(data)) if table.name in SHOWN]
    blocks: list[Block | None] = [Heading(measure.label)] if tables else []
    suffix = f"-{measure.key.replace(':', '-')}"
    for table in tables:
        page = source.get_analysis_url(measure, table.name)
        # The measure is in name and title. The sentence stands before the table.
        title = prepend_measure(table.title, measure.label)
        blocks += [
            make_paragraph(make_sentence(table.sentence, page)) if table.sentence else None,
            make_table_block(
                replace(table, name=f"{table.name}{suffix}", title=title, sentence=""), SHOWN[table.name], page
            ),
        ]
    tables_by_name = {table.name: table for table in tables}
    pictures = [
        replace(figure, name=figure.name + suffix) for figure in analysis.make_figures(tables_by_name, measure.label)
    ]
    return [
        *blocks,
        *(make_figure_block(source, picture, measure=measure.key) for picture in pictures),
        *_write_further_figures(source, measure),
    ]


def _write_further_figures(source: ReportSource, measure: Measure) -> Iterator[FigureBlock]:
    """Yield the further figures of a measure: of a dimension, of two dimensions, of repetitions."""
    suffix = f"-{measure.key.replace(':', '-')}"
    figures: list[Figure] = []
    if (data := source.figures.load_ratings(measure)) is not None:
        figures += [figure for figure in dimensions.make_figures(data, suffix) if figure.in_report]
        ratings = [rating for rating in source.measures if rating.is_rating]
        if measure == ratings[0] and len(ratings) > 1 and (other := source.figures.load_ratings(ratings[1])):
            figures += [figure for figure in planes.make_figures(data, other) if figure.in_report]
    scores = source.get_analysis_data(measure).scores
    if (figure := reliability.make_figure(scores, source.frames.labels, measure.label, suffix)) is not None:
        figures.append(figure)
    yield from (make_figure_block(source, figure, measure=measure.key) for figure in figures)
