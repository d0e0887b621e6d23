"""Results: the leaderboard, differences and norms by measure with their figures, and the agreement of raters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from django.http import QueryDict

from evalsite.lib.text.number_format import format_count
from grading_app.publish.report.document import (
    Block,
    Heading,
    count_noun,
    join_words,
    make_paragraph,
    make_sentence,
    make_table_block,
)
from grading_app.publish.report.report_source import ReportSource, make_figure_block
from grading_app.results.analysis.condition_differences import build_condition_tables
from grading_app.results.analysis.norms import build_norm_tables
from grading_app.results.figures import (
    analysis,
    calibration,
    cost,
    dimensions,
    list_results_figures,
    planes,
    reliability,
)
from grading_app.results.figures.analysis import prepend_measure
from grading_app.results.leaderboard import Leaderboard
from grading_app.results.leaderboard_tables import (
    BEST_NOTE,
    describe_coverage,
    describe_intervals,
    make_leaderboard_table,
)
from grading_app.results.raters import agreement_figures
from grading_app.results.raters.agreement_cache import AGREEMENT, AgreementQuery, assign_roles
from grading_app.results.raters.agreement_tables import make_pair_table
from grading_app.results.raters.judge_checks import check_judges
from grading_app.results.raters.rating_selection import RatingSelection, RatingSelectionForm
from grading_app.results.scores import Measure
from grading_app.results.table import ResultColumn, ResultTable, Row
from grading_app.statistics.intervals import describe_estimates_coverage

SHOWN = {
    "differences": ("a", "b", "items", "difference", "difference_ci", "test", "p", "p_holm", "effect"),
    "norm_differences": (
        "condition",
        "items",
        "model_mean",
        "human_mean",
        "difference",
        "difference_ci",
        "t",
        "df",
        "p",
        "p_holm",
        "d",
    ),
    "norm_agreement": ("condition", "items", "r", "r_ci", "rho", "rho_ci", "ccc", "ccc_ci", "icc21"),
}
MAX_MEASURES = 12  # Beyond it, the analysis page has the further ones; the report says so.


def write_leaderboard(source: ReportSource) -> Iterator[Block | None]:
    """Yield the best conditions, the leaderboard in a table for each measure, and the effort by condition."""
    if not source.measures:
        yield make_paragraph("No answer has a score yet.", tone="note")
        return
    page = source.get_url("experiment_results")
    measures: dict[str, list[str]] = {}
    for measure in source.board.measures:
        scored_rows = [row for row in source.board.rows if row.scores[measure.key].mean is not None]
        if measure.is_rating or len(scored_rows) < 2:
            continue
        best = next((row.label for row in scored_rows if source.board.is_best(row, measure)), "No condition")
        measures.setdefault(best, []).append(measure.label)
    yield make_paragraph(
        *(
            make_sentence(
                f"{best} scores higher than every other condition on {join_words(names)}, by paired tests over common "
                "items after Holm's correction. ",
                page,
            )
            for best, names in measures.items()
        )
    )
    table = make_leaderboard_table(source.board)
    for at, measure in enumerate(source.board.measures):
        yield _write_board_part(source.board, table, measure, page, is_detail=at > 0)
    totals = ("condition", "cost_usd", "input_tokens", "output_tokens", "latency_s")
    effort = _select_columns(table, "effort", "Effort by condition", totals)
    yield make_table_block(replace(effort, formula="", correction="", notes=[]), (), page, is_detail=True)


def _write_board_part(board: Leaderboard, table: ResultTable, measure: Measure, page: str, *, is_detail: bool) -> Block:
    """Return the columns of one measure, because all measures together are too wide for a page."""
    key, scores = measure.key, [row.scores[measure.key] for row in board.rows]
    has_best = any(row.get(f"{key}_best") for row in table.rows)
    has_reasons = any(score.reasons for score in scores)
    names = (f"{key}{end}" for end in ("", "_ci", "_n", "_missing", *(["_missing_reasons"] if has_reasons else []),
                                       *(["_best"] if has_best else [])))  # fmt: skip
    part = _select_columns(table, f"leaderboard-{key}", f"Scores by condition: {measure.label}", ("condition", *names))
    statistic = "Share" if measure.is_share else "Mean"
    formula = f"{statistic} over answers. n: answers with a score. {describe_intervals(scores)}"
    notes = describe_coverage(board, [measure])
    part = replace(part, formula=formula, correction=BEST_NOTE if has_best else "", notes=notes)
    return make_table_block(part, (), page, is_detail=is_detail)


def _select_columns(table: ResultTable, name: str, title: str, columns: tuple[str, ...]) -> ResultTable:
    selected = [column for column in table.columns if column.name in columns]
    rows = [{column.name: row.get(column.name) for column in selected} for row in table.rows]
    return replace(table, name=name.replace(":", "-"), title=title, columns=selected, rows=rows, links=[])


def write_figures(source: ReportSource) -> Iterator[Block]:
    """Yield the figures of all measures: people's ratings beside the models' first, if the dataset has norms."""
    if not source.measures:
        return
    figures = [figure for figure in list_results_figures(source.frames) if figure.in_report]
    figures.sort(key=lambda figure: figure.name != "norms")
    for at, figure in enumerate((*figures, *islice(cost.make_figures(source.board), 1))):
        yield make_figure_block(source, figure, is_detail=at > 0)


def write_measures(source: ReportSource) -> Iterator[Block | None]:
    """Yield the differences and the comparison with norms on each measure, with their figures.

    The first figure of a measure draws its main table; the tables and the other figures are details.
    """
    for measure in source.measures[:MAX_MEASURES]:
        data = source.get_analysis_data(measure)
        tables = [table for table in (*build_condition_tables(data), *build_norm_tables(data)) if table.name in SHOWN]
        suffix = f"-{measure.key.replace(':', '-')}"
        if tables:
            yield Heading(measure.label)
        for table in tables:
            if table.sentence:
                yield make_paragraph(make_sentence(table.sentence, source.get_analysis_url(measure, table.name)))
        pictures = analysis.make_figures({table.name: table for table in tables}, measure.label)
        figures = [replace(figure, name=figure.name + suffix) for figure in pictures]
        if (ratings := source.figures.load_ratings(measure)) is not None:
            figures += [figure for figure in dimensions.make_figures(ratings, suffix) if figure.in_report]
            rated = [rating for rating in source.measures if rating.is_rating]
            if measure == rated[0] and len(rated) > 1 and (other := source.figures.load_ratings(rated[1])):
                figures += [figure for figure in planes.make_figures(ratings, other) if figure.in_report]
        if (figure := reliability.make_figure(data.scores, source.frames.labels, measure.label, suffix)) is not None:
            figures.append(figure)
        for figure in figures[:1]:
            yield make_figure_block(source, figure, measure=measure.key)
        for table in tables:
            title = prepend_measure(table.title, measure.label)
            named_table = replace(table, name=f"{table.name}{suffix}", title=title, sentence="")
            page = source.get_analysis_url(measure, table.name)
            yield make_table_block(named_table, SHOWN[table.name], page, is_detail=True)
        for figure in figures[1:]:
            yield make_figure_block(source, figure, is_detail=True, measure=measure.key)
    if (remaining := len(source.measures) - MAX_MEASURES) > 0:
        text = f"The analysis page has {count_noun(remaining, 'further measure')}."
        yield make_paragraph(make_sentence(text, source.get_url("experiment_analysis")), tone="note")


def write_agreement(source: ReportSource) -> list[Block | None]:
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
    judges = check_judges(source.graders, source.graders)
    blocks: list[Block | None] = [
        *(
            make_paragraph(make_sentence(found.checks[0].describe(judge.short_label), page))
            for judge in source.graders
            if (found := judges[judge.pk]).checks
        ),
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
    figures = [
        *agreement_figures.make_figures(selection, roles, result),
        calibration.make_figure(calibration.load_calibrations(source.experiment)),
    ]
    return [*blocks, *(make_figure_block(source, figure, is_detail=True) for figure in figures if figure)]


def _describe_units(selection: RatingSelection, n: int) -> str:
    if selection.in_pairs:
        return count_noun(n, "pair of answers", "pairs of answers")
    if selection.covers_answers:
        return count_noun(n, "answer") + (f" on {selection.criterion}" if selection.criterion else "")
    return f"{count_noun(n, 'item')} on {selection.units.partition(':')[2]}"


def _write_measures(report: Any, page: str) -> Block:
    columns = [
        ResultColumn("measure", "Measure"),
        ResultColumn("estimate", "Estimate", "coefficient"),
        ResultColumn("interval", "95 % interval", "coefficient_interval"),
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
    formula = "Intervals over items: the jackknife, and from 1,000 items the percentile bootstrap."
    table = ResultTable("agreement", "Measures of agreement", columns, rows, formula=formula, notes=notes)
    notes_shown = ("why",) if any(row["why"] for row in rows) else ()
    shown = ("measure", "estimate", "interval", "units", *notes_shown)
    return make_table_block(table, shown, page, is_detail=True)


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
    table = replace(table, title="Agreement of pairs of raters", notes=notes)
    return make_table_block(table, rows=page, is_detail=True)
