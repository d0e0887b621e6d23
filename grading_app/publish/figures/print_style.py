"""The print style: a figure redrawn in a size, a font size and colours, and written as SVG, PNG or PDF."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from grading_app.results import plot_style
from grading_app.results.figure import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Format = Literal["svg", "png", "pdf"]
PICTURE_CONTENT_TYPES: Mapping[str, str] = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
MM_PER_INCH, CSS_PER_INCH = 25.4, 96
TITLE_PX = 26  # CSS pixels that a title adds to the height of a figure.
FONT_PT = plot_style.NORMAL
"""The size of normal text in figures, in points. Other sizes scale all text, lines and marks with it."""


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours in place of those of the site. series: for categories and conditions, used in turn."""

    label: str
    data: str
    soft: str
    human: str
    series: tuple[str, ...]

    @property
    def replacements(self) -> dict[str, str]:
        """The colours by the site's light colours, which stand for them while a figure is drawn."""
        lines, series = (
            {site_color: self.series[index % len(self.series)] for index, site_color in enumerate(colors)}
            for colors in (plot_style.LINES, plot_style.SERIES)
        )
        role_colors = {plot_style.DATA: self.data, plot_style.DATA_SOFT: self.soft, plot_style.HUMAN: self.human}
        return {**lines, **series, **role_colors}


OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#b8a800")
TOL_BRIGHT = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#000000")
GREY = ("#1a1a1a", "#8c8c8c", "#404040", "#b3b3b3", "#666666", "#cccccc", "#262626", "#a0a0a0")
PALETTES: Mapping[str, Palette] = {
    "okabe-ito": Palette("Okabe and Ito", "#0072b2", "#8cc4e6", "#d55e00", OKABE_ITO),
    "tol": Palette("Tol, bright", "#4477aa", "#a9c0da", "#ee6677", TOL_BRIGHT),
    "grey": Palette("Grey", "#1a1a1a", "#9a9a9a", "#6e6e6e", GREY),
    "site": Palette("Evalsite", plot_style.DATA, plot_style.DATA_SOFT, plot_style.HUMAN, plot_style.SERIES),
}


@dataclass(frozen=True, slots=True)
class PrintStyle:
    """The choices of a printed figure. height_mm: None keeps the drawn one. title, x_label, y_label: "" keeps them."""

    width_mm: float = 170
    height_mm: float | None = None
    font_pt: float = 8
    palette: str = "okabe-ito"
    dpi: int = 300
    title: str = ""
    x_label: str = ""
    y_label: str = ""

    def write(self, draw: Callable[[int], Drawing], file_format: Format) -> bytes:
        """Return the file of a figure, given its drawing at a width in CSS pixels."""
        return plot_style.render_file(
            lambda: self.apply(draw),
            file_format,
            background=plot_style.SURFACE,
            dpi=self.dpi if file_format == "png" else 72,
        )

    def measure(self, figure: Figure) -> tuple[int, int]:
        """Return the size of the printed figure in CSS pixels, without drawing it."""
        scale = self.font_pt / FONT_PT
        width, height = figure.size(self._get_drawing_width(scale))
        height += TITLE_PX if self.title else 0
        ratio = scale * min(1.0, self.width_mm / MM_PER_INCH * CSS_PER_INCH / (width * scale))
        new_height = self.height_mm / MM_PER_INCH * CSS_PER_INCH if self.height_mm else height * ratio
        return round(width * ratio), round(new_height)

    def _get_drawing_width(self, scale: float) -> int:
        return round(self.width_mm / MM_PER_INCH * CSS_PER_INCH / scale)

    def apply(self, draw: Callable[[int], Drawing]) -> Drawing:
        """Draw the figure so that it has the chosen width when its text is scaled to the chosen size."""
        scale = self.font_pt / FONT_PT
        figure = draw(self._get_drawing_width(scale))
        for axes in figure.axes:
            if self.x_label and axes.get_xlabel():
                axes.set_xlabel(self.x_label)
            if self.y_label and axes.get_ylabel():
                axes.set_ylabel(self.y_label)
        if self.title:
            _add_title(figure, self.title)
        width, height = figure.get_size_inches()
        figure.draw_without_rendering()  # Now all ticks exist.
        # Text, lines, marks and distances are scaled, and colours are replaced, in everything that is drawn.
        colors = PALETTES[self.palette].replacements
        for artist in figure.findobj():
            _recolor(artist, colors)
            _scale(artist, scale)
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                axis.labelpad *= scale
                axis.set_tick_params(pad=axis.get_tick_params().get("pad", 4) * scale)
        ratio = self.width_mm / MM_PER_INCH / (width * scale) if width * scale > self.width_mm / MM_PER_INCH else 1.0
        new_height = self.height_mm / MM_PER_INCH if self.height_mm else height * scale * ratio
        figure.set_size_inches(width * scale * ratio, new_height)
        return figure


def render_figures_pdf(figures: Iterable[Figure], style: PrintStyle) -> bytes:
    """Return one PDF with a page for each figure. The same rows give the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_pdf import PdfPages

    buffer = io.BytesIO()
    metadata = {"CreationDate": None, "Creator": None, "Producer": None}
    settings: Any = {"pdf.fonttype": 42, "text.parse_math": False}
    with plot_style.DRAWING, mpl.rc_context(settings), PdfPages(buffer, metadata=metadata) as pages:
        for figure in figures:
            drawing = style.apply(figure.draw)
            drawing.patch.set(visible=True, facecolor=plot_style.SURFACE)
            drawing.suptitle(figure.title, y=1.0, va="bottom", fontsize=style.font_pt, color=plot_style.TEXT)
            pages.savefig(drawing, bbox_inches="tight")
    return buffer.getvalue()


def _add_title(figure: Drawing, title: str) -> None:
    """Make the figure taller at its top, and write the title there."""
    width, height = figure.get_size_inches()
    new_height = height + TITLE_PX * plot_style.PIXEL / 72
    share = height / new_height
    for axes in figure.axes:
        left, bottom, panel_width, panel_height = axes.get_position().bounds
        axes.set_position((left, bottom * share, panel_width, panel_height * share))
    for text in figure.texts:
        text.set_y(text.get_position()[1] * share)
    figure.set_size_inches(width, new_height)
    text_style: dict[str, Any] = {
        "fontsize": plot_style.NORMAL,
        "color": plot_style.TEXT,
        "va": "top",
        "fontweight": "bold",
    }
    figure.text(8 * plot_style.PIXEL / 72 / width, 1 - 4 * plot_style.PIXEL / 72 / new_height, title, **text_style)


def _scale(artist: Any, scale: float) -> None:
    """Scale the text, the lines and the marks of this artist."""
    import numpy as np
    from matplotlib.collections import Collection, PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Annotation, Text

    if isinstance(artist, Text):
        artist.set_fontsize(float(artist.get_fontsize()) * scale)
    if isinstance(artist, Annotation) and artist.anncoords == "offset points":
        artist.xyann = (artist.xyann[0] * scale, artist.xyann[1] * scale)
    if isinstance(artist, Line2D):
        artist.set_markersize(artist.get_markersize() * scale)
    if isinstance(artist, Line2D | Patch):
        artist.set_linewidth(artist.get_linewidth() * scale)
    if isinstance(artist, Collection):
        artist.set_linewidth([float(width) * scale for width in np.atleast_1d(artist.get_linewidth())])
    if isinstance(artist, PathCollection):
        artist.set_sizes(artist.get_sizes() * scale**2)


COLOR_NAMES = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")


def _recolor(artist: Any, colors: Mapping[str, str]) -> None:
    from matplotlib.collections import Collection
    from matplotlib.colors import to_hex, to_rgba

    if isinstance(artist, Collection):
        for name in ("facecolors", "edgecolors"):
            old_colors: list[Any] = [tuple(color) for color in getattr(artist, f"get_{name}")()]
            new_colors = [
                (*to_rgba(colors[hex_code])[:3], color[3]) if (hex_code := to_hex(color)) in colors else color
                for color in old_colors
            ]
            if old_colors:
                getattr(artist, f"set_{name}")(new_colors)
        return
    for name in COLOR_NAMES:
        get = getattr(artist, f"get_{name}", None)
        value = get() if get else None
        if isinstance(value, str | tuple) and value not in ("none", "auto", "None") and to_hex(value) in colors:
            alpha = to_rgba(value)[3]
            getattr(artist, f"set_{name}")((*to_rgba(colors[to_hex(value)])[:3], alpha))
