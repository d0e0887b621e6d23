"""The figures of two raters: Bland and Altman's plot of differences, and the confusion matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from grading_app.models.rubrics import CHOICE
from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.raters.agreement_cache import RaterRoles
from grading_app.results.raters.raters import Rater
from grading_app.results.raters.rating_selection import RatingSelection
from grading_app.results.statistic_format import format_number
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.intervals import describe_coverage

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from grading_app.results.raters.agreement_report import AgreementResult
    from grading_app.statistics.agreement_coefficients import ConfusionMatrix
    from grading_app.statistics.judge_bias import LimitsOfAgreement

MAX_BUBBLE = 26  # CSS pixels across
MAX_VECTOR_POINTS = 1500
PAGE = "experiment_agreement"


def make_figures(selection: RatingSelection, roles: RaterRoles, result: AgreementResult) -> Iterator[Figure]:
    """Yield the figures of a comparison; none where nobody was compared."""
    report = result.report
    if report and report.judge_comparison and report.judge_comparison.limits and roles.judge:
        yield make_difference_figure(report.judge_comparison.limits, roles.judge)
    if report and report.confusion and roles.pair:
        names = (roles.pair[0].label, roles.pair[1].label)
        words = {value: name.removeprefix("the ") for value, name in CHOICE.points} if selection.in_pairs else None
        yield make_confusion_figure(report.confusion, names, words)


def make_difference_figure(limits: LimitsOfAgreement, judge: Rater) -> Figure:
    """Return the plot of a judge minus people over the mean of both, with the limits of agreement."""
    columns = [
        ResultColumn("level", "Level"),
        ResultColumn("value", "Value", "number"),
        ResultColumn("interval", "95 % interval", "interval"),
    ]
    rows = [
        {
            "level": name,
            "value": limit.estimate,
            "interval": None if limit.low is None or limit.high is None else (limit.low, limit.high),
        }
        for name, limit in (("Upper limit", limits.high), ("Lower limit", limits.low))
    ]
    rows.insert(1, {"level": "Mean difference", "value": limits.mean, "interval": None})
    n, note = sum(limits.times), describe_coverage(limits.low.formula, limits.low.clusters)
    title = f"{judge.label} minus people"

    def make_grid(width: int) -> plot_style.Grid:
        return plot_style.Grid(1, 1, width, panel_height=222, left=48, right=100, top=14, bottom=44)

    return Figure(
        "agreement-differences",
        title,
        f"Each point is one of {n:,} units, or several if they coincide (larger points): the {judge.noun}'s rating "
        "minus the mean of the people, over the mean of both. About 95 % of the differences lie between the dashed "
        "lines: mean ∓ 1.96 SD (Bland & Altman 1986). The limits are a range of differences, not an interval of their "
        "mean." + (f" The interval of a limit {note}." if note and limits.low.low is not None else ""),
        f"Differences between {judge.label} and people over {n} units: mean {format_number(limits.mean)}, limits "
        f"{format_number(limits.low.estimate)} and {format_number(limits.high.estimate)}.",
        lambda width: (width, make_grid(width).height),
        lambda width: _draw_differences(limits, judge.noun, make_grid(width)),
        lambda: ResultTable("agreement-differences", title, columns, rows),
        page=PAGE,
        in_report=True,
    )


def make_confusion_figure(
    matrix: ConfusionMatrix, names: tuple[str, str], value_labels: Mapping[float, str] | None = None
) -> Figure:
    """Return the confusion matrix, with the first rater in rows and the second in columns.

    value_labels: the names of categories that have names.
    """
    categories = [format_category(category, value_labels or {}) for category in matrix.categories]
    columns = [
        ResultColumn("rating", names[0]),
        *(ResultColumn(f"as_{category}", category, "count") for category in categories),
    ]
    rows = [
        {"rating": category, **{f"as_{other}": n for other, n in zip(categories, counts, strict=True)}}
        for category, counts in zip(categories, matrix.counts, strict=True)
    ]
    share = 100 * matrix.agreed / matrix.units if matrix.units else 0

    def make_grid(width: int) -> plot_style.Grid:
        side = min(width - 96, max(232, 44 * len(categories)))
        return plot_style.Grid(1, 1, side + 96, panel_height=side, left=84, right=12, top=40, bottom=30)

    return Figure(
        "agreement-confusion",
        "Confusion matrix",
        f"Rows: {names[0]}. Columns: {names[1]}. Both rated {matrix.units:,} units and agree on {matrix.agreed:,} "
        f"({share:.1f} %), on the diagonal. The shade is the share of the row.",
        f"Confusion matrix of {names[0]} and {names[1]}: they agree on {matrix.agreed} of {matrix.units} units.",
        lambda width: ((grid := make_grid(width)).width, grid.height),
        lambda width: _draw_confusion(matrix, categories, names, make_grid(width)),
        lambda: ResultTable("agreement-confusion", "Confusion matrix", columns, rows),
        page=PAGE,
        in_report=True,
    )


def format_category(category: str | float, value_labels: Mapping[float, str]) -> str:
    return category if isinstance(category, str) else value_labels.get(category) or f"{category:g}"


def _draw_differences(limits: LimitsOfAgreement, noun: str, grid: plot_style.Grid) -> Drawing:
    figure, (axis,) = grid.make_panels()
    plot_style.draw_gridlines(axis, "y")
    points: Counter[tuple[float, float]] = Counter()
    for mean, difference, times in zip(limits.means, limits.differences, limits.times, strict=True):
        points[mean, difference] += times
    max_count = max(points.values())
    sizes = [max(5.0, MAX_BUBBLE * (count / max_count) ** 0.5) if max_count > 1 else 6.0 for count in points.values()]
    axis.scatter(
        [x for x, _ in points], [y for _, y in points], s=[(size * plot_style.PIXEL) ** 2 for size in sizes],
        color=plot_style.DATA, alpha=0.5, linewidths=0, clip_on=False, zorder=2,
        rasterized=len(points) > MAX_VECTOR_POINTS,
    )  # fmt: skip
    lines = ((limits.high.estimate, "upper"), (limits.mean, "mean"), (limits.low.estimate, "lower"))
    for value, name in lines:
        if value is not None:
            style: dict[str, Any] = {} if name == "mean" else {"dashes": (4, 3)}
            axis.axhline(value, color=plot_style.HUMAN, linewidth=1.25 * plot_style.PIXEL, zorder=1, **style)
            axis.annotate(
                f"{name} {format_number(value)}", (1, value), xycoords=("axes fraction", "data"),
                xytext=(6 * plot_style.PIXEL, 0), textcoords="offset points", va="center", fontsize=plot_style.SMALL,
                color=plot_style.TEXT, annotation_clip=False,
            )  # fmt: skip
    axis.set_xlabel(f"Mean of {noun} and people", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    axis.set_ylabel(f"{noun.capitalize()} minus people", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    return figure


def _draw_confusion(
    matrix: ConfusionMatrix, categories: list[str], names: tuple[str, str], grid: plot_style.Grid
) -> Drawing:
    from matplotlib.patches import Rectangle

    figure, (axis,) = grid.make_panels()
    n = len(categories)
    for at, row in enumerate(matrix.counts):
        total = sum(row)
        for column, count in enumerate(row):
            # The shade is light enough for the number to be readable in both themes.
            x, y, share = column, n - 1 - at, count / total if total else 0
            shade = 0.04 + 0.4 * share
            axis.add_patch(Rectangle((x, y), 0.97, 0.97, facecolor=plot_style.DATA, alpha=shade, linewidth=0))
            axis.text(
                x + 0.485, y + 0.485, str(count), ha="center", va="center", fontsize=plot_style.SMALL,
                color=plot_style.TEXT,
            )  # fmt: skip
    axis.set(xlim=(0, n), ylim=(0, n))
    axis.set_xticks([at + 0.5 for at in range(n)], [plot_style.shorten(text, 84) for text in categories])
    axis.set_yticks([n - at - 0.5 for at in range(n)], [plot_style.shorten(text, 60) for text in categories])
    axis.spines["bottom"].set_visible(False)
    columns_title = plot_style.shorten(f"across: {names[1]}", grid.panel_width)
    plot_style.write_note(axis, 0, 1, columns_title, va="bottom", offset=4, color=plot_style.TEXT)
    plot_style.write_note(axis, 0, 1, plot_style.shorten(f"down: {names[0]}", grid.panel_width), va="bottom", offset=20)
    return figure
