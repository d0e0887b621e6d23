"""Reliability of a mean by the number of repetitions, for each condition that repeats its items."""

from __future__ import annotations

from collections.abc import Collection
from itertools import cycle
from typing import TYPE_CHECKING

from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.statistic_format import format_coefficient
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.intraclass import Repeatability, repeatability
from grading_app.statistics.item_scores import ItemScores

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

HEIGHT = 220
LABEL_GAP = 0.07  # Between labels of curves, on the scale from 0 to 1.
REPETITIONS = (1, 2, 3, 5, 10, 20, 50, 100)
MAX_CONDITIONS = len(plot_style.SERIES)
RepeatabilityByCondition = dict[str, Repeatability]


def make_figure(scores: ItemScores, labels: dict[int, str], measure: str, suffix: str = "") -> Figure | None:
    """Return the figure of one measure; None if no condition repeats its items."""
    by_condition = {
        labels[int(key)]: estimate
        for key in scores.conditions
        if int(key) in labels and (estimate := repeatability(scores, int(key)))
    }
    if not by_condition:
        return None
    return Figure(
        f"reliability{suffix}",
        f"{measure}: reliability by number of repetitions",
        "Reliability of an item's mean over k repetitions by Spearman and Brown's formula, from the one-way intraclass "
        "correlation of single scores. The dot marks the repetitions of this experiment."
        + _describe_extent(by_condition),
        "Reliability over repetitions. "
        + "; ".join(f"{name}: {format_coefficient(estimate.single)}" for name, estimate in by_condition.items()),
        lambda width: (width, _make_grid(by_condition, width).height),
        lambda width: _draw(by_condition, _make_grid(by_condition, width)),
        lambda: _build_table(by_condition, measure),
        page="experiment_analysis",
        in_report=True,
    )


def _describe_extent(by_condition: RepeatabilityByCondition) -> str:
    items = sorted({estimate.items for estimate in by_condition.values()})
    text = f" {items[0]} items." if len(items) == 1 else f" {items[0]} to {items[-1]} items."
    return text + (
        f" The first {MAX_CONDITIONS} of {len(by_condition)} conditions." if len(by_condition) > MAX_CONDITIONS else ""
    )


def _build_table(by_condition: RepeatabilityByCondition, measure: str) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("observed", "Repetitions", "number", 1),
        *(ResultColumn(f"k{k}", f"k = {k}", "coefficient") for k in REPETITIONS),
    ]
    rows = [
        {"condition": name, "items": estimate.items, "observed": estimate.repetitions}
        | {f"k{k}": estimate.reliability_of_mean(k) for k in REPETITIONS}
        for name, estimate in by_condition.items()
    ]
    return ResultTable(
        "reliability",
        f"{measure}: reliability of means over k repetitions",
        columns,
        rows,
        formula="k r / (1 + (k − 1) r), with r = ICC(1,1) of single scores over items.",
    )


def _make_grid(names: Collection[str], width: int) -> plot_style.Grid:
    """Return the grid, with space for the names at the right ends of their curves."""
    right = round(min(170, width / 3, 16 + plot_style.LETTER * max(map(len, names))))
    return plot_style.Grid(1, 1, width, HEIGHT, left=48, right=right, top=16)


def _draw(by_condition: RepeatabilityByCondition, grid: plot_style.Grid) -> Drawing:
    figure, (axis,) = grid.make_panels()
    k_values = [10 ** (index / 40) for index in range(81)]
    ends = []
    entries = list(by_condition.items())[:MAX_CONDITIONS]
    for (name, estimate), color, dashes in zip(entries, plot_style.SERIES, cycle(plot_style.DASHES), strict=False):
        curve = [estimate.reliability_of_mean(k) for k in k_values]
        axis.plot(k_values, curve, color=color, linewidth=1.6 * plot_style.PIXEL, linestyle=dashes)
        axis.plot([estimate.repetitions], [estimate.reliability_of_mean(estimate.repetitions)], marker="o", color=color,
                  markersize=6 * plot_style.PIXEL)  # fmt: skip
        ends.append((estimate.reliability_of_mean(k_values[-1]), name, color))
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


def _spread_labels(places: list[float]) -> list[float]:
    """Return ascending places for labels, at least LABEL_GAP apart and below 1."""
    positions: list[float] = []
    for place in places:
        positions.append(max(place, positions[-1] + LABEL_GAP) if positions else place)
    excess = max(0.0, positions[-1] - 1.0) if positions else 0.0
    return [place - excess for place in positions]
