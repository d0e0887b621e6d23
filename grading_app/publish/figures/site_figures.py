"""The figures of the results and analysis pages, with the numbers behind them instead of rounded texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from evalsite.lib.text.number_format import format_count
from grading_app.publish.figures.figure_source import FigureSource
from grading_app.publish.figures.kinds import PaperFigure, make_text_table
from grading_app.results import cost_figure
from grading_app.results.analysis.figures import select_figures
from grading_app.results.figures import FIGURES
from grading_app.results.leaderboard import Leaderboard, list_priced_rows
from grading_app.results.scores import ConditionScore, Measure
from grading_app.results.table import ResultColumn, ResultTable

IN_REPORT = ("ratings", "norms", "accuracy", "points")


def list_frame_figures(source: FigureSource) -> Iterator[PaperFigure]:
    """Yield the figures of the results page."""
    for kind in FIGURES.values():
        frame = kind.select_data(source.frames)
        if frame is None:
            continue
        yield PaperFigure(
            kind.name,
            kind.title,
            partial(kind.draw, frame),
            partial(_list_numbers, kind, frame),
            " ".join(filter(None, (kind.caption(frame), _describe_counts(kind.name, frame)))),
            kind.alt(frame),
            in_report=kind.name in IN_REPORT,
        )


def _describe_counts(name: str, frame: Any) -> str:
    """Return how many ratings or answers a panel or row has, for figures that do not write it."""
    if name == "ratings":
        counts, noun = {panel.n for panel in frame.panels if panel.n}, "ratings per panel"
    elif name == "accuracy":
        counts, noun = {line.score.n for line in frame.lines}, "answers per row"
    elif name == "categories":
        counts, noun = {line.n for panel in frame.panels for line in panel.lines.values()}, "answers per row"
    else:
        return ""
    least, most = format_count(min(counts)), format_count(max(counts))
    return f"{least if least == most else f'{least} to {most}'} {noun}."


def _list_numbers(kind: Any, frame: Any) -> ResultTable:
    builders: dict[str, Callable[[str, str, Any], ResultTable]] = {
        "ratings": _build_rating_counts,
        "norms": _build_norm_points,
        "accuracy": lambda name, title, frame: _build_score_lines(
            name, title, [(line.measure.label, line.condition, None, line.score) for line in frame.lines]
        ),
        "categories": lambda name, title, frame: _build_score_lines(
            name,
            title,
            [
                (panel.measure, panel.condition, category, score)
                for panel in frame.panels
                for category, score in panel.lines.items()
            ],
        ),
    }
    if kind.name in builders:
        return builders[kind.name](kind.name, kind.title, frame)
    return make_text_table(kind.name, kind.title, kind.table(frame))


def _build_rating_counts(name: str, title: str, frame: Any) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("dimension", "Dimension"),
        ResultColumn("rating", "Rating", "count"),
        ResultColumn("n", "n", "count"),
        ResultColumn("share", "Share", "share"),
    ]
    rows = [
        {"condition": panel.condition, "dimension": panel.dimension, "rating": rating, "n": n, "share": n / panel.n}
        for panel in frame.panels
        for rating, n in sorted(panel.counts.items())
    ]
    return ResultTable(name, title, columns, rows)


def _build_norm_points(name: str, title: str, frame: Any) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("dimension", "Dimension"),
        ResultColumn("item", "Item"),
        ResultColumn("n", "Ratings", "count"),
        ResultColumn("human_mean", "Human mean", "number"),
        ResultColumn("model_mean", "Model mean", "number"),
    ]
    rows = [
        {
            "condition": panel.condition,
            "dimension": panel.dimension.title,
            "item": pair.item_key,
            "n": pair.n,
            "human_mean": pair.human_mean,
            "model_mean": pair.model_mean,
        }
        for panel in frame.panels
        for pair in panel.pairs
    ]
    return ResultTable(name, title, columns, rows)


def _build_score_lines(
    name: str, title: str, lines: Iterable[tuple[str, str, str | None, ConditionScore]]
) -> ResultTable:
    columns = [
        ResultColumn("measure", "Measure"),
        ResultColumn("condition", "Condition"),
        ResultColumn("category", "Category"),
        ResultColumn("n", "n", "count"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("mean", "Correct", "share"),
        ResultColumn("interval", "95 % interval", "share_interval"),
        ResultColumn("missing", "No score", "count"),
    ]
    rows = [
        {
            "measure": measure,
            "condition": condition,
            "category": category,
            "n": score.n,
            "items": score.items,
            "mean": score.mean,
            "interval": score.interval,
            "missing": score.missing,
        }
        for measure, condition, category, score in lines
    ]
    return ResultTable(name, title, columns, rows)


def list_board_figures(source: FigureSource) -> Iterator[PaperFigure]:
    """Yield score against cost for each measure."""
    board = source.board
    if board is None:
        return
    for measure in board.measures:
        if not cost_figure.has_costs(board, measure):
            continue
        name = f"cost-{measure.key.replace(':', '-')}"
        yield PaperFigure(
            name,
            f"{cost_figure.TITLE}: {measure.label}",
            partial(cost_figure.draw_cost_figure, board, measure),
            partial(_build_cost_table, name, board, measure),
            "A point for each condition, with its 95 % interval. The line is the efficient frontier: no cheaper "
            "condition scores as high.",
            cost_figure.write_alt_text(board, measure),
            in_report=True,
        )


def _build_cost_table(name: str, board: Leaderboard, measure: Measure) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("cost_per_answer", "Cost per answer", "money"),
        ResultColumn("mean", measure.label, measure.mean_column),
        ResultColumn("interval", "95 % interval", measure.interval_column),
    ]
    rows = []
    for row in list_priced_rows(board, measure):
        score = row.scores[measure.key]
        rows.append(
            {
                "condition": row.label,
                "cost_per_answer": row.cost_per_answer,
                "mean": score.mean,
                "interval": score.interval,
            }
        )
    return ResultTable(name, f"{cost_figure.TITLE}: {measure.label}", columns, rows)


def list_analysis_figures(source: FigureSource) -> Iterator[PaperFigure]:
    """Yield the figures of the analysis page for the measure in the address, among them the forest of differences."""
    if source.scope is None:
        return
    for figure, table in select_figures(source.tables):
        yield make_table_figure(figure, table, source.scope.measure.label)


def make_table_figure(figure: Any, table: ResultTable, measure: str, suffix: str = "") -> PaperFigure:
    """Return the figure of an analysis table. measure: its label, which is a part of the title."""
    title = prepend_measure(figure.title, measure)
    return PaperFigure(
        f"analysis-{figure.name}{suffix}",
        title,
        partial(figure.draw, table),
        lambda: table,
        " ".join(filter(None, (figure.caption, table.formula, _describe_extent(figure, table)))),
        f"{title}. {figure.alt(table)}",
        page="experiment_analysis",
    )


def prepend_measure(title: str, measure: str) -> str:
    return f"{measure}: {title[:1].lower()}{title[1:]}"


def _describe_extent(figure: Any, table: ResultTable) -> str:
    """Return the number of items behind the rows of the figure, and how many rows it leaves out."""
    rows = figure.rows(table)
    counts = {row["items"] for row in rows if isinstance(row, Mapping) and row.get("items")}
    items = f"{min(counts)} to {max(counts)} items." if len(counts) > 1 else "".join(f"{n} items." for n in counts)
    drawable = [row for row in table.rows if row.get(figure.value) is not None] if hasattr(figure, "value") else []
    omission = f"The first {len(rows)} of {len(drawable)} rows." if len(drawable) > len(rows) else ""
    return " ".join(filter(None, (items, omission)))
