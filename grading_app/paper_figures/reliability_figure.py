"""Reliability of a mean by the number of repetitions, for each condition that repeats its items."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from grading_app.paper_figures.figure_source import FigureSource
from grading_app.paper_figures.kinds import PaperFigure
from grading_app.reports import plot_style
from grading_app.reports.result_table import ResultColumn, ResultTable
from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.reliability import Repeatability, repeatability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 240
REPETITIONS = (1, 2, 3, 5, 10, 20, 50, 100)
MOST_CONDITIONS = len(plot_style.SERIES)
Found = dict[str, Repeatability]


def list_reliability_figures(source: FigureSource) -> Iterator[PaperFigure]:
    measure = source.measure
    scores = source.scores(measure) if measure else None
    if measure is None or scores is None:
        return
    figure = make_reliability_figure(scores, source.frames.labels, measure.label)
    if figure is not None:
        yield figure


def make_reliability_figure(
    scores: ItemScores, labels: dict[int, str], measure: str, suffix: str = ""
) -> PaperFigure | None:
    """Return the figure of one measure; None if no condition repeats its items."""
    found = {
        labels[int(key)]: one
        for key in scores.conditions
        if int(key) in labels and (one := repeatability(scores, int(key)))
    }
    if not found:
        return None
    return PaperFigure(
        f"reliability{suffix}",
        f"{measure}: reliability by number of repetitions",
        partial(_draw, found),
        partial(_build_table, found, measure),
        "Reliability of an item's mean over k repetitions by Spearman and Brown's formula, from the one-way intraclass "
        "correlation of single scores. The dot marks the repetitions of this experiment." + _describe_extent(found),
        f"Reliability over repetitions. {'; '.join(f'{name}: {one.single:.2f}' for name, one in found.items())}",
        page="experiment_analysis",
        in_report=True,
    )


def _describe_extent(found: Found) -> str:
    items = sorted({one.items for one in found.values()})
    text = f" {items[0]} items." if len(items) == 1 else f" {items[0]} to {items[-1]} items."
    return text + (f" The first {MOST_CONDITIONS} of {len(found)} conditions." if len(found) > MOST_CONDITIONS else "")


def _build_table(found: Found, measure: str) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("observed", "Repetitions", "number", 1),
        *(ResultColumn(f"k{k}", f"k = {k}", "number", 3) for k in REPETITIONS),
    ]
    rows = [
        {"condition": name, "items": one.items, "observed": one.repetitions}
        | {f"k{k}": one.reliability_of_mean(k) for k in REPETITIONS}
        for name, one in found.items()
    ]
    return ResultTable(
        "reliability",
        f"{measure}: reliability of means over k repetitions",
        columns,
        rows,
        formula="k r / (1 + (k − 1) r), with r = ICC(1,1) of single scores over items.",
    )


def _draw(found: Found, width: int) -> Figure:
    grid = plot_style.Grid(1, 1, width, HEIGHT, left=48, right=min(170, width // 3), top=16)
    figure, (axis,) = grid.figure()
    along = [10 ** (at / 40) for at in range(81)]
    ends = []
    shown = list(found.items())[:MOST_CONDITIONS]
    for (name, one), color, dashes in zip(shown, plot_style.SERIES, cycle(plot_style.DASHES), strict=False):
        curve = [one.reliability_of_mean(k) for k in along]
        axis.plot(along, curve, color=color, linewidth=1.6 * plot_style.PIXEL, linestyle=dashes)
        axis.plot([one.repetitions], [one.reliability_of_mean(one.repetitions)], marker="o", color=color,
                  markersize=6 * plot_style.PIXEL)  # fmt: skip
        ends.append((one.reliability_of_mean(along[-1]), name, color))
    axis.set_xscale("log")
    axis.set_xticks(REPETITIONS, [str(k) for k in REPETITIONS])
    axis.minorticks_off()
    axis.set(xlim=(0.93, 100), ylim=(0, 1.02))
    for place, (_, name, color) in zip(_spread_labels([end for end, *_ in sorted(ends)]), sorted(ends), strict=True):
        text = plot_style.shorten(name, grid.right - 12)
        plot_style.write_beside(axis, (100, place), text, right=8, color=color, fontsize=plot_style.SMALL)
    axis.set_xlabel("Repetitions", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    axis.set_ylabel("Reliability of the mean", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    plot_style.draw_gridlines(axis, "y")
    return figure


def _spread_labels(places: list[float], gap: float = 0.07) -> list[float]:
    """Return ascending places for labels, at least `gap` apart and below 1."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + gap) if found else place)
    over = max(0.0, found[-1] - 1.0) if found else 0.0
    return [place - over for place in found]
