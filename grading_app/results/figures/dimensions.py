"""The figures of a rating study: distributions, the relation of mean and SD, two dimensions, and models over people.

The set is that of OASIS-LLM, for any dimension and scale. Small multiples show one condition each. `RatingData` holds
the ratings of one dimension by item and condition, with the norms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from datasets_app.models import Item
from grading_app.results import plot_style
from grading_app.results.closeness import load_norms
from grading_app.results.figure import Figure
from grading_app.results.scores import Measure
from grading_app.results.statistic_format import format_coefficient, format_number
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.correlation import pearson
from grading_app.statistics.item_scores import Floats, ItemScores
from runs_app.models import Experiment

HUMAN = "Human norms"
MAX_PANELS = 24
BINS = 24
MANY_POINTS = 1500
FEWEST = 3
BOLD = 0.88  # A bold head has room for this share of the letters.


@dataclass(frozen=True, eq=False)
class Series:
    """The means and standard deviations of one condition's ratings (or of the norms), by item. NaN: not known.

    n: ratings behind each mean.
    """

    label: str
    mean: Floats
    sd: Floats
    n: Floats
    is_human: bool = False

    @property
    def rated(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.mean)


@dataclass(frozen=True, eq=False)
class RatingData:
    """One dimension. Arrays of the series follow `keys`, `categories` and `items`."""

    measure: Measure
    items: list[int]
    keys: list[str]
    categories: list[str]
    conditions: list[Series]
    norms: Series | None

    @property
    def all_series(self) -> list[Series]:
        return [*self.conditions, *([self.norms] if self.norms else [])]

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the scale."""
        return float(self.measure.low or 0), float(self.measure.high or 1)

    def pool_conditions(self) -> Series:
        """Return the mean over conditions by item."""
        if len(self.conditions) == 1:
            return self.conditions[0]
        means, sds = (np.vstack([getattr(series, name) for series in self.conditions]) for name in ("mean", "sd"))
        n = np.sum([series.n for series in self.conditions], axis=0)
        return Series("Mean of conditions", _average_rows(means), _average_rows(sds), n)

    @cached_property
    def category_names(self) -> list[str]:
        return sorted(set(self.categories))


def _average_rows(rows: Floats) -> Floats:
    counts = (~np.isnan(rows)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(counts > 0, np.nansum(rows, axis=0) / np.maximum(counts, 1), np.nan)
    return means


def load_rating_data(
    experiment: Experiment, measure: Measure, scores: ItemScores | None, labels: Mapping[int, str]
) -> RatingData | None:
    """Return the ratings of a dimension; None without a rating. labels: of the conditions."""
    if scores is None or not scores.n.any():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.where(scores.n > 1, np.sqrt(scores.within / (scores.n - 1)), np.nan)
    conditions = [
        Series(labels[int(key)], scores.mean[:, index], sd[:, index], scores.n[:, index].astype(np.float64))
        for index, key in enumerate(scores.conditions)
        if int(key) in labels and scores.n[:, index].any()
    ]
    rows = Item.objects.filter(dataset=experiment.dataset_id).values_list("pk", "key", "category")
    items = {pk: (key, category) for pk, key, category in rows.iterator()}
    keys = [int(pk) for pk in scores.items]
    norms = load_norms(experiment, measure, scores.items)
    return RatingData(
        measure,
        keys,
        [items[pk][0] for pk in keys],
        [items[pk][1] for pk in keys],
        conditions,
        Series(HUMAN, norms.mean, norms.sd, np.nan_to_num(norms.n), is_human=True) if norms else None,
    )


def match_items(first: RatingData, second: RatingData) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of the common items in both."""
    places = {key: index for index, key in enumerate(second.items)}
    common = [(index, places[key]) for index, key in enumerate(first.items) if key in places]
    return np.array([a for a, _ in common], dtype=np.intp), np.array([b for _, b in common], dtype=np.intp)


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

Lay = Callable[[Sequence[Series], int], plot_style.Grid]
"""The grid of some series at a width."""


def make_figures(data: RatingData, suffix: str = "") -> Iterator[Figure]:
    """Yield the figures of one dimension. suffix: of their names, where several dimensions are listed together."""
    title = data.measure.label
    labels = ", ".join(series.label for series in data.all_series)
    with_sd = [series for series in data.all_series if not np.isnan(series.sd).all()]
    models = [*data.conditions, *([data.pool_conditions()] if len(data.conditions) > 1 else [])]
    kinds: list[tuple[str, str, Sequence[Series], Lay, Callable[..., Drawing], str]] = [
        ("means", "distribution of item means", data.all_series, partial(arrange_panels, height=110), _draw_means,
         "Histograms of the mean rating of each item."),
        ("sds", "distribution of item SDs", with_sd, partial(arrange_panels, height=110), _draw_sds,
         "Histograms of the standard deviation of each item's ratings."),
        ("mean-sd", "mean and SD of items", with_sd, arrange_panels, _draw_mean_sd,
         "Each point is an item: the SD of its ratings over their mean, with the least-squares quadratic fit."),
        ("human", "models over people", models if data.norms is not None else [],
         partial(arrange_panels, height=170, max_columns=2), _draw_human,
         "Each point is an item: the model's mean over the human mean, with the least-squares line and Pearson's r. "
         "Dashed: equality."),
        ("conditions", "item means by condition", data.all_series, _arrange_rows, _draw_conditions,
         "Item means: median, quartiles, and whiskers to the 5th and 95th percentile."),
    ]  # fmt: skip

    def make(
        name: str, description: str, series: Sequence[Series], lay_out: Lay, draw: Callable[..., Drawing], caption: str
    ) -> Figure:
        # The number of items where the panels do not say it, and how many panels are left out.
        if name == "conditions":
            n, limit, noun = len(data.all_series), 2 * MAX_PANELS, "rows"
        else:
            n, limit, noun = len(data.all_series), MAX_PANELS, "panels"
        items = f"{len(data.items)} items." if name == "conditions" else ""
        extent = " ".join(filter(None, (items, f"The first {limit} of {n} {noun}." if n > limit else "")))
        return Figure(
            f"dimension-{name}{suffix}",
            f"{title}: {description}",
            f"{caption} {extent}".strip(),
            f"{title}: {description}. {labels}. The table holds the numbers.",
            lambda width: (width, lay_out(series, width).height),
            lambda width: draw(data, series, lay_out(series, width)),
            lambda: _build_item_table(data, f"dimension-{name}", title),
            in_report=name in ("mean-sd", "conditions"),
        )

    for kind in kinds:
        if kind[2]:
            yield make(*kind)


def _build_item_table(data: RatingData, name: str, title: str) -> ResultTable:
    """Return the numbers behind every figure of a dimension: a row for each item and condition."""
    columns = [
        ResultColumn("item", "Item"),
        ResultColumn("category", "Category"),
        ResultColumn("rated_by", "Rated by"),
        ResultColumn("n", "Ratings", "count"),
        ResultColumn("mean", "Mean", "number"),
        ResultColumn("sd", "SD", "number"),
    ]
    rows = [
        {
            "item": data.keys[index],
            "category": data.categories[index],
            "rated_by": series.label,
            "n": int(series.n[index]) or None,
            "mean": float(series.mean[index]),
            "sd": None if np.isnan(series.sd[index]) else float(series.sd[index]),
        }
        for series in data.all_series
        for index in np.flatnonzero(series.rated)
    ]
    return ResultTable(name, title, columns, rows)


def arrange_panels(
    series: Sequence[Series], width: int, *, height: int = 150, top: int = 44, max_columns: int = 3
) -> plot_style.Grid:
    """Return the grid of the first MAX_PANELS series."""
    panels = min(MAX_PANELS, len(series))
    columns = max(1, min(max_columns if width >= plot_style.WIDE else 2, panels, width // 150))
    return plot_style.Grid(
        panels, columns, width, panel_height=height, left=48, right=14, top=top, bottom=44, gap_x=40, gap_y=62
    )


def choose_color(series: Series) -> str:
    return plot_style.HUMAN if series.is_human else plot_style.DATA


def _draw_histograms(
    data: RatingData,
    all_series: Sequence[Series],
    grid: plot_style.Grid,
    values: Callable[[Series], Any],
    label: str,
    ends: tuple[float, float],
) -> Drawing:
    figure, axes = grid.make_panels()
    edges = np.linspace(*ends, BINS + 1).tolist()
    for place, (axis, series) in enumerate(zip(axes, all_series, strict=False)):
        item_values = values(series)[~np.isnan(values(series))]
        axis.hist(np.clip(item_values, *ends), edges, color=choose_color(series), alpha=0.8, linewidth=0)
        axis.axvline(float(item_values.mean()), color=plot_style.TEXT, linewidth=plot_style.PIXEL, dashes=(4, 3))
        text = f"mean {format_number(float(item_values.mean()))}, {len(item_values)} items"
        _name_panel(axis, series.label, text, grid)
        axis.set_xlim(*ends)
        set_scale_ticks(axis.yaxis, *([axis.xaxis] if ends == data.ends else []))
        plot_style.draw_gridlines(axis, "y")
        axis.tick_params(axis="x", pad=7)  # Two zeros meet in the corner.
        _label_sides(axis, place, grid, label, "Items")
    return figure


def _draw_means(data: RatingData, series: Sequence[Series], grid: plot_style.Grid) -> Drawing:
    return _draw_histograms(data, series, grid, lambda one: one.mean, f"Mean {data.measure.label.lower()}", data.ends)


def _draw_sds(data: RatingData, series: Sequence[Series], grid: plot_style.Grid) -> Drawing:
    top = max([*(float(np.nanmax(one.sd)) for one in series), 0.5])
    return _draw_histograms(
        data, series, grid, lambda one: one.sd, f"SD of {data.measure.label.lower()}", (0.0, top * 1.02)
    )


def _name_panel(axis: Axes, name: str, text: str, grid: plot_style.Grid) -> None:
    plot_style.write_head(axis, plot_style.shorten(name, BOLD * grid.panel_width), offset=19)
    plot_style.write_note(axis, 0, 1, text, va="bottom", offset=5, color=plot_style.TEXT)


def _label_sides(axis: Axes, place: int, grid: plot_style.Grid, x: str, y: str) -> None:
    axis.spines["left"].set(visible=True, color=plot_style.RULE, linewidth=plot_style.PIXEL)
    if place % grid.columns == 0:
        axis.set_ylabel(y, fontsize=plot_style.SMALL, color=plot_style.MUTED)
    if place + grid.columns >= grid.panels:
        axis.set_xlabel(x, fontsize=plot_style.SMALL, color=plot_style.MUTED)


def draw_scatter(axis: Axes, x: Any, y: Any, color: str = plot_style.DATA, marker: str = "o") -> None:
    axis.plot(
        x, y, linestyle="none", marker=marker, markersize=4.5 * plot_style.PIXEL, color=color, markeredgewidth=0,
        alpha=0.55, rasterized=len(x) > MANY_POINTS, clip_on=False, zorder=2,
    )  # fmt: skip


def fit_quadratic(x: Any, y: Any) -> tuple[Any, float] | None:
    """Return the coefficients (a, b, c) of a + b x + c x^2 by least squares, and R^2; None for too few values."""
    if len(set(np.round(x, 9))) < FEWEST or len(x) <= FEWEST:
        return None
    coefficients = np.polynomial.polynomial.polyfit(x, y, 2)
    residuals = y - np.polynomial.polynomial.polyval(x, coefficients)
    total = float(((y - y.mean()) ** 2).sum())
    return coefficients, 1 - float((residuals**2).sum()) / total if total > 0 else 0.0


def _draw_mean_sd(data: RatingData, all_series: Sequence[Series], grid: plot_style.Grid) -> Drawing:
    figure, axes = grid.make_panels()
    top = max(float(np.nanmax(series.sd)) for series in all_series[:MAX_PANELS]) * 1.08 or 1.0
    for place, (axis, series) in enumerate(zip(axes, all_series, strict=False)):
        mask = series.rated & ~np.isnan(series.sd)
        x, y = series.mean[mask], series.sd[mask]
        draw_scatter(axis, x, y, choose_color(series))
        fit = fit_quadratic(x, y)
        if fit is not None:
            x_values = np.linspace(x.min(), x.max(), 80)
            curve = np.polynomial.polynomial.polyval(x_values, fit[0])
            axis.plot(x_values, curve, color=plot_style.TEXT, linewidth=1.4 * plot_style.PIXEL)
        text = f"R² = {format_coefficient(fit[1])}, {len(x)} items" if fit else f"{len(x)} items, too few for a fit"
        _name_panel(axis, series.label, text, grid)
        axis.set_xlim(*_pad(data.ends))
        axis.set_ylim(0, top)
        set_scale_ticks(axis.xaxis)
        plot_style.draw_gridlines(axis, "y")
        _label_sides(axis, place, grid, f"Mean {data.measure.label.lower()}", "SD")
    return figure


def set_scale_ticks(*axes: Any) -> None:
    """Mark whole numbers on these axes, as points of a scale or counts have no decimals."""
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator(nbins=5, integer=True))


def _pad(ends: tuple[float, float]) -> tuple[float, float]:
    margin = 0.03 * (ends[1] - ends[0])
    return ends[0] - margin, ends[1] + margin


def _draw_human(data: RatingData, all_series: Sequence[Series], grid: plot_style.Grid) -> Drawing:
    norms = data.norms
    if norms is None:
        raise ValueError("the dimension has no norms")
    figure, axes = grid.make_panels()
    low, high = data.ends
    for place, (axis, series) in enumerate(zip(axes, all_series, strict=False)):
        common = series.rated & norms.rated
        x, y = norms.mean[common], series.mean[common]
        axis.plot([low, high], [low, high], color=plot_style.RULE, linewidth=plot_style.PIXEL, dashes=(4, 4), zorder=1)
        draw_scatter(axis, x, y)
        _name_panel(axis, series.label, _draw_regression(axis, x, y, with_slope=grid.panel_width > 170), grid)
        axis.set(xlim=_pad(data.ends), ylim=_pad(data.ends))
        set_scale_ticks(axis.xaxis, axis.yaxis)
        _label_sides(axis, place, grid, "Human mean", "Model mean")
    return figure


def _draw_regression(axis: Axes, x: Any, y: Any, *, with_slope: bool) -> str:
    """Draw the least-squares line of y over x, and return the text of r and, in a wide panel, of the line."""
    correlation = pearson(list(x), list(y)) if len(x) >= FEWEST else None
    if correlation is None:
        return f"{len(x)} items: r is not defined"
    slope = correlation.r * float(y.std()) / float(x.std())
    start = float(y.mean()) - slope * float(x.mean())
    ends = np.array([x.min(), x.max()])
    axis.plot(ends, start + slope * ends, color=plot_style.TEXT, linewidth=1.4 * plot_style.PIXEL, zorder=3)
    slope_text = f"slope {format_number(slope)}, " if with_slope else ""
    return f"r = {format_coefficient(correlation.r)}, {slope_text}{len(x)} items"


def _name_rows(series: Sequence[Series], width: int) -> list[str]:
    return [plot_style.wrap(one.label, min(190, 0.42 * width) - 14) for one in series[: 2 * MAX_PANELS]]


def _arrange_rows(series: Sequence[Series], width: int) -> plot_style.Grid:
    names = _name_rows(series, width)
    return plot_style.Grid(1, 1, width, 32 * len(names), left=plot_style.fit_labels(names, width, 190))


def _draw_conditions(data: RatingData, series_of_all: Sequence[Series], grid: plot_style.Grid) -> Drawing:
    all_series = series_of_all[: 2 * MAX_PANELS]
    figure, (axis,) = grid.make_panels()
    for place, series in zip(range(len(all_series) - 1, -1, -1), all_series, strict=True):
        low, first, median, third, high = np.quantile(series.mean[series.rated], [0.05, 0.25, 0.5, 0.75, 0.95])
        color = choose_color(series)
        axis.plot([low, high], [place, place], color=color, linewidth=1.5 * plot_style.PIXEL, zorder=1)
        axis.barh(place, third - first, left=first, height=0.46, color=color, alpha=0.75, linewidth=0, zorder=2)
        axis.plot([median, median], [place - 0.23, place + 0.23], color=plot_style.SURFACE,
                  linewidth=2 * plot_style.PIXEL, zorder=3)  # fmt: skip
    axis.set_yticks(range(len(all_series)), _name_rows(all_series, grid.width)[::-1])
    axis.set(ylim=(-0.6, len(all_series) - 0.4), xlim=data.ends)
    axis.set_xlabel(f"Mean {data.measure.label.lower()} of an item", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    plot_style.draw_gridlines(axis, "x")
    return figure
