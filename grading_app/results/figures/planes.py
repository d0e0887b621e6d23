"""Two dimensions in one plane: each point is an item, as a dot or its image, plain or coloured by category."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets_app.models import Item
from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.figures.dimensions import (
    BOLD,
    RatingData,
    Series,
    arrange_panels,
    choose_color,
    draw_scatter,
    match_items,
    set_scale_ticks,
)
from grading_app.results.statistic_format import format_coefficient
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.correlation import pearson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MAX_IMAGES = 300
"""More items are drawn as dots: their images would hide each other."""
MARK = 22  # CSS pixels of an image used as a mark.
MAX_CATEGORIES = len(plot_style.SERIES)
MARKERS, SIGNS = "os^DvPX*", "●■▲◆▼✚✖★"
"""The marks of categories, which grey prints need too, and their signs in the legend."""


class Plane:
    """Two dimensions on their common items: a pair of series for each condition, and for norms that both have."""

    def __init__(self, x: RatingData, y: RatingData, thumbnails: dict[int, Path]) -> None:
        self.x, self.y, self.thumbnails = x, y, thumbnails
        self.at_x, self.at_y = match_items(x, y)
        ys = {series.label: series for series in y.all_series}
        self.pairs: list[tuple[Series, Series]] = [
            (series, ys[series.label]) for series in x.all_series if series.label in ys
        ]

    @property
    def title(self) -> str:
        return f"{self.x.measure.label} and {self.y.measure.label.lower()}"

    def get_points(self, pair: tuple[Series, Series]) -> tuple[Any, Any, Any]:
        """Return x, y and the positions in `x.items` of the items that both have."""
        x, y = pair[0].mean[self.at_x], pair[1].mean[self.at_y]
        common = ~np.isnan(x) & ~np.isnan(y)
        return x[common], y[common], self.at_x[common]


def make_figures(x: RatingData, y: RatingData, *, has_images: bool = False) -> Iterator[Figure]:
    """Yield the plane of two dimensions, and the plane with the categories. has_images: draw images for dots."""
    plane = Plane(x, y, _find_thumbnails(x) if has_images else {})
    if not plane.pairs:
        return
    alt = f"{plane.title}, item by item: {', '.join(series.label for series, _ in plane.pairs)}."
    first_of_pairs = [series for series, _ in plane.pairs]

    def lay_out(width: int) -> plot_style.Grid:
        return arrange_panels(first_of_pairs, width, height=190)

    yield Figure(
        "plane",
        plane.title,
        "Each point is an item, by its mean rating on both dimensions, with Pearson's r over items.",
        alt,
        lambda width: (width, lay_out(width).height),
        lambda width: _draw(plane, lay_out(width)),
        lambda: _build_table(plane),
        in_report=True,
    )
    if len(plane.x.category_names) < 2:
        return
    # The largest categories have colours.
    names = sorted(plane.x.category_names, key=lambda name: (-plane.x.categories.count(name), name))
    colors = dict(zip(sorted(names[:MAX_CATEGORIES]), plot_style.SERIES, strict=False))
    many = len(plane.x.category_names) > MAX_CATEGORIES

    def lay_out_categories(width: int) -> plot_style.Grid:
        return arrange_panels(first_of_pairs, width, height=190, top=44 + 20 * -(-len(colors) // 4))

    yield Figure(
        "plane-categories",
        f"{plane.title} by category",
        "Each point is an item. The large marks are the means of the categories."
        + (f" The {MAX_CATEGORIES} largest categories have a colour and a mark." if many else ""),
        alt,
        lambda width: (width, lay_out_categories(width).height),
        lambda width: _draw_categories(plane, lay_out_categories(width), colors),
        lambda: _build_table(plane),
    )


def _find_thumbnails(data: RatingData) -> dict[int, Path]:
    """Return the files of the images of the items, by the place of the item; none for too many items."""
    if len(data.items) > MAX_IMAGES:
        return {}
    items = {
        item.pk: item for item in Item.objects.filter(pk__in=data.items, image__isnull=False).select_related("image")
    }
    paths = {
        index: item.image.shared_thumbnail.fetch()
        for index, key in enumerate(data.items)
        if (item := items.get(key)) is not None and item.image is not None
    }
    return {index: path for index, path in paths.items() if path.is_file()}


def _build_table(plane: Plane) -> ResultTable:
    columns = [
        ResultColumn("item", "Item"),
        ResultColumn("category", "Category"),
        ResultColumn("rated_by", "Rated by"),
        ResultColumn("x", plane.x.measure.label, "number"),
        ResultColumn("y", plane.y.measure.label, "number"),
    ]
    rows = []
    for pair in plane.pairs:
        for x, y, index in zip(*plane.get_points(pair), strict=True):
            row = {"item": plane.x.keys[index], "category": plane.x.categories[index], "rated_by": pair[0].label}
            rows.append({**row, "x": float(x), "y": float(y)})
    return ResultTable("plane", plane.title, columns, rows)


def _draw(plane: Plane, grid: plot_style.Grid) -> Drawing:
    figure, axes = grid.make_panels()
    for place, (axis, pair) in enumerate(zip(axes, plane.pairs, strict=False)):
        x, y, positions = plane.get_points(pair)
        _draw_frame(axis, place, plane, pair, grid)
        if plane.thumbnails:
            _draw_images(axis, x, y, [plane.thumbnails.get(int(position)) for position in positions])
        else:
            draw_scatter(axis, x, y, choose_color(pair[0]))
    return figure


def _draw_frame(axis: Axes, place: int, plane: Plane, pair: tuple[Series, Series], grid: plot_style.Grid) -> None:
    x, y, _ = plane.get_points(pair)
    correlation = pearson(list(x), list(y)) if len(x) > 2 else None
    text = f"r = {format_coefficient(correlation.r)}, {len(x)} items" if correlation else f"{len(x)} items"
    plot_style.write_head(axis, plot_style.shorten(pair[0].label, BOLD * grid.panel_width), offset=19)
    plot_style.write_note(axis, 0, 1, text, va="bottom", offset=5, color=plot_style.TEXT)
    for data, set_ends in ((plane.x, axis.set_xlim), (plane.y, axis.set_ylim)):
        low, high = data.ends
        set_ends(low - 0.04 * (high - low), high + 0.04 * (high - low))
    set_scale_ticks(axis.xaxis, axis.yaxis)
    axis.spines["left"].set(visible=True, color=plot_style.RULE, linewidth=plot_style.PIXEL)
    plot_style.draw_gridlines(axis, "y")
    if place % grid.columns == 0:
        axis.set_ylabel(plane.y.measure.label, fontsize=plot_style.SMALL, color=plot_style.MUTED)
    if place + grid.columns >= grid.panels:
        axis.set_xlabel(plane.x.measure.label, fontsize=plot_style.SMALL, color=plot_style.MUTED)


def _draw_images(axis: Axes, x: Any, y: Any, files: list[Path | None]) -> None:
    """Draw the image of each item at its place, small; a dot for an item without one."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage
    from PIL import Image

    plain = [index for index, file in enumerate(files) if file is None]
    draw_scatter(axis, x[plain], y[plain])
    for index, file in enumerate(files):
        if file is None:
            continue
        with Image.open(file) as original:
            image = original.convert("RGB")
            image.thumbnail((4 * MARK, 4 * MARK))
            pixels = np.asarray(image)
        zoom = MARK * plot_style.PIXEL / max(pixels.shape[:2])
        axis.add_artist(AnnotationBbox(OffsetImage(pixels, zoom=zoom), (x[index], y[index]), frameon=False, pad=0))


def _draw_categories(plane: Plane, grid: plot_style.Grid, colors: dict[str, str]) -> Drawing:
    width = grid.width
    figure, axes = grid.make_panels()
    for place, (axis, pair) in enumerate(zip(axes, plane.pairs, strict=False)):
        x, y, positions = plane.get_points(pair)
        _draw_frame(axis, place, plane, pair, grid)
        categories = np.array([plane.x.categories[position] for position in positions])
        for (name, color), marker in zip(colors.items(), MARKERS, strict=False):
            draw_scatter(axis, x[categories == name], y[categories == name], color, marker)
            if (categories == name).any():
                axis.plot(
                    [x[categories == name].mean()], [y[categories == name].mean()], marker=marker, color=color,
                    zorder=4, markersize=10 * plot_style.PIXEL, markeredgecolor=plot_style.SURFACE,
                )  # fmt: skip
    for index, (name, color) in enumerate(colors.items()):
        row, column = divmod(index, 4)
        place_x, place_y = (grid.left + column * (width - grid.left) / 4) / grid.width, 1 - (8 + 20 * row) / grid.height
        figure.text(place_x, place_y, SIGNS[index], color=color, fontsize=plot_style.SMALL, va="top")
        label = plot_style.shorten(name or "no category", (width - grid.left) / 4 - 20)
        figure.text(
            place_x + 14 / grid.width, place_y, label, color=plot_style.TEXT, fontsize=plot_style.SMALL, va="top"
        )
    return figure
