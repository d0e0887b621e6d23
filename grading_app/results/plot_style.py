"""The style of the figures: colours for light and dark themes, thin lines, and labels beside the marks, not a legend.

matplotlib is imported inside the functions, so that pages without a figure do not load it. pyplot is not used, because
it does not free its figures. Each colour has a light and a dark value; CSS `light-dark` selects the reader's theme.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Theme = Literal["auto", "light", "dark"]

# The same values as in tokens.css. Light values are unique, because `apply_theme` replaces them by the pair.
TEXT = "#1e2228"
MUTED = "#585c63"
LINE = "#e0e0dc"
RULE = "#87857e"
SURFACE = "#ffffff"
DATA = "#2e5091"
DATA_SOFT = "#9fb2d6"
HUMAN = "#9a5200"
# For categories and conditions in one panel: the colours of Okabe and Ito (2008), darker where text needs contrast.
SERIES = ("#0072b2", "#d55e00", "#007a58", "#a8518a", "#2f8fc4", "#b57c00", "#5b5b5b", "#7a6a00")
DARK_OF = {
    TEXT: "#e1e3e6",
    MUTED: "#9ea4ab",
    LINE: "#2d3135",
    RULE: "#6a6f76",
    SURFACE: "#181b1f",
    DATA: "#9ab8ee",
    DATA_SOFT: "#4a6296",
    HUMAN: "#e6bd77",
    **dict(
        zip(
            SERIES,
            ("#5cb5ee", "#ff9a52", "#3fcfa4", "#e39bc8", "#8fd0f7", "#f0bd4a", "#b5b5b5", "#d9c94a"),
            strict=True,
        )
    ),
}
# Shades of heat maps from the lowest to the highest, as the levels in matrix.css; and colours of lines in one figure.
SHADES = ("#eac9c8", "#f4e4e3", "#efe9e0", "#e1ece9", "#c3d8d2")
LINES = (DATA, HUMAN, "#176a53", "#8a3a7c", "#ae2e2a", "#51555c")
DARK_OF |= dict(zip(SHADES, ("#503a3b", "#342b2d", "#33302a", "#243232", "#314a45"), strict=True))
DARK_OF |= dict(zip(LINES[2:], ("#78cfb1", "#dd9bd0", "#f1938c", "#adb1b8"), strict=True))
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 2)), (0, (6, 2, 2, 2)), (0, (1, 1)), (0, (10, 3)))
# Not system-ui: inside an image, browsers may resolve it to another font than on the page.
FONTS = ["-apple-system", "Segoe UI", "Roboto", "Noto Sans", "Liberation Sans", "Arial", "sans-serif"]
FONT_FAMILY = ", ".join(f"'{name}'" if " " in name else name for name in FONTS)

WIDE, NARROW = 560, 332  # CSS pixels: half of a page, and a phone.
PIXEL = 0.75  # The size of a CSS pixel in points.
LETTER = 7.0  # The width of an average letter at the normal size, in CSS pixels.
SEPARATOR = re.compile(" [−·] |: ")  # Where a long label may go on in a second line.
SMALL = NORMAL = 12 * PIXEL  # Small text is muted, not smaller: 12 pixels are the least that everybody reads.
DRAWING = threading.Lock()  # All threads share the fonts and settings of matplotlib.


@dataclass(frozen=True, slots=True)
class Grid:
    """Panels in rows and columns. All sizes are CSS pixels. left: the space for labels of the first panel of a row."""

    panels: int
    columns: int
    width: int
    panel_height: int
    left: int = 44
    right: int = 12
    top: int = 26
    bottom: int = 44
    gap_x: int = 18
    gap_y: int = 40

    @property
    def rows(self) -> int:
        return -(-self.panels // self.columns)

    @property
    def height(self) -> int:
        return self.top + self.bottom + self.rows * self.panel_height + (self.rows - 1) * self.gap_y

    @property
    def panel_width(self) -> float:
        return (self.width - self.left - self.right - (self.columns - 1) * self.gap_x) / self.columns

    def make_panels(self) -> tuple[Figure, list[Axes]]:
        """Return an empty figure and its panels, row by row."""
        figure = make_figure(self.width, self.height)
        axes: list[Axes] = []
        for number in range(self.panels):
            row, column = divmod(number, self.columns)
            x = self.left + column * (self.panel_width + self.gap_x)
            y = self.height - self.top - (row + 1) * self.panel_height - row * self.gap_y
            box = (x / self.width, y / self.height, self.panel_width / self.width, self.panel_height / self.height)
            axes.append(style_axes(figure.add_axes(box)))
        return figure, axes


def make_figure(width: int, height: int) -> Figure:
    """Return a transparent figure of this size in CSS pixels."""
    from matplotlib.figure import Figure as MatplotlibFigure

    figure = MatplotlibFigure(figsize=(width * PIXEL / 72, height * PIXEL / 72), dpi=72)
    figure.patch.set_visible(False)
    return figure


def style_axes(axes: Axes) -> Axes:
    """Style the axes with a bottom line and small labels, but without box, tick marks and background."""
    axes.set_facecolor("none")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.spines["bottom"].set_linewidth(PIXEL)
    axes.tick_params(length=0, labelsize=SMALL, labelcolor=MUTED, pad=4)
    return axes


def draw_gridlines(axes: Axes, axis: Literal["x", "y"]) -> None:
    axes.grid(visible=True, axis=axis, color=LINE, linewidth=PIXEL)
    axes.set_axisbelow(True)


def write_head(axes: Axes, text: str, *, left: float = 0, offset: float = 6) -> None:
    """Write the name of a panel, `offset` pixels above it and `left` pixels to the left of it."""
    write_note(axes, 0, 1, text, left=left, offset=offset, va="bottom", fontsize=NORMAL, color=TEXT, fontweight="bold")


def write_note(
    axes: Axes, x: float, y: float, text: str, *, left: float = 0, offset: float = 0, **options: Any
) -> None:
    """Write a short muted text at (x, y), in shares of the panel, moved left and up by a number of pixels."""
    style: dict[str, Any] = {"fontsize": SMALL, "color": MUTED, "ha": "left", "va": "top"}
    axes.annotate(
        text,
        (x, y),
        xycoords="axes fraction",
        xytext=(-left * PIXEL, offset * PIXEL),
        textcoords="offset points",
        annotation_clip=False,
        **{**style, **options},
    )


def write_beside(
    axes: Axes, point: tuple[float, float], text: str, *, right: float = 0, up: float = 0, **options: Any
) -> None:
    """Write a text at a point in data coordinates, moved right and up by a number of pixels."""
    axes.annotate(
        text,
        point,
        xytext=(right * PIXEL, up * PIXEL),
        textcoords="offset points",
        annotation_clip=False,
        **{"va": "center", "fontsize": NORMAL, "color": TEXT, **options},
    )


def shorten(text: str, width: float) -> str:
    """Shorten a text to about this width in CSS pixels at the normal size.

    The middle is cut, because both ends identify the text better.
    """
    max_length = max(6, int(width / LETTER))
    if len(text) <= max_length:
        return text
    tail = (max_length - 1) // 2
    return f"{text[: max_length - 1 - tail]}…{text[-tail:]}"


def wrap(text: str, width: float) -> str:
    """Return the text on one line if this width in pixels suffices, else on two lines, each cut to the width.

    The line ends at the separator next to the middle.
    """
    if len(text) <= int(width / LETTER):
        return text
    ends = [match.start() + 1 if match[0].startswith(" ") else match.end() for match in SEPARATOR.finditer(text)]
    if not ends:
        return shorten(text, width)
    end = min(ends, key=lambda position: abs(position - len(text) / 2))
    return "\n".join(shorten(line.strip(), width) for line in (text[:end], text[end:]))


def fit_labels(labels: Sequence[str], width: int, max_width: int) -> int:
    """Return the space in pixels for these labels of rows, at most `max_width` and 42 % of the figure's width."""
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    return round(min(longest * LETTER + 18, max_width, 0.42 * width))


def draw_intervals(axes: Axes, rows: Sequence[tuple[int, float, float | None, float | None]]) -> None:
    """Draw a dot and its interval for each (position, value, low, high), at y = -position, from top to bottom."""
    for position, value, low, high in rows:
        if low is not None and high is not None:
            axes.plot([low, high], [-position, -position], color=DATA, linewidth=2 * PIXEL, solid_capstyle="butt")
        axes.plot([value], [-position], marker="o", markersize=7 * PIXEL, color=DATA, markeredgewidth=0, clip_on=False)


def render_svg(draw: Callable[[], Figure], theme: Theme = "auto") -> bytes:
    """Return the picture as SVG with text elements. The same figure gives the same bytes.

    theme: "auto" follows the page that shows the picture. "light" and "dark" are fixed and have a background.
    """
    picture = render_file(draw, "svg", background=SURFACE if theme != "auto" else "", settings={"svg.fonttype": "none"})
    return apply_theme(picture.decode(), theme).encode()


def render_path_svg(draw: Callable[[], Figure]) -> str:
    """Return the picture as transparent SVG in light colours. Its text is paths, so it needs no font."""
    picture = render_file(draw, "svg").decode()
    return picture[picture.index("<svg") :]


def render_file(
    draw: Callable[[], Figure],
    file_format: Literal["svg", "png", "pdf"],
    *,
    background: str = "",
    dpi: int = 72,
    settings: Mapping[str, Any] | None = None,
) -> bytes:
    """Draw the figure and return its file. The same figure gives the same bytes. background: "" for transparent."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}.get(
        file_format, {"CreationDate": None, "Creator": None, "Producer": None}
    )
    shared_params: dict[str, Any] = {"svg.hashsalt": "evalsite", "path.simplify": False, "text.parse_math": False}
    rc_params: Any = {**shared_params, "pdf.fonttype": 42, **(settings or {})}
    with DRAWING, mpl.rc_context(rc_params):
        figure = draw()
        figure.patch.set(visible=bool(background), facecolor=background or SURFACE)
        figure.savefig(buffer, format=file_format, dpi=dpi, metadata=metadata)
    return buffer.getvalue()


def render_png(draw: Callable[[], Figure]) -> bytes:
    """Return the picture as PNG on white, with two pixels for each CSS pixel."""
    return render_file(draw, "png", background=SURFACE, dpi=round(2 * 72 / PIXEL))


def apply_theme(picture: str, theme: Theme) -> str:
    """Return the picture with the page's fonts and the theme's colours. "auto" keeps both colours."""
    picture = picture[picture.index("<svg") :]
    picture = re.sub(r"'DejaVu Sans'[^;\"]*", FONT_FAMILY, picture)
    for light, dark in DARK_OF.items():
        # The plain colour comes first, for browsers without light-dark.
        colours = {"dark": dark, "light": light, "auto": f"{light}; \\1: light-dark({light}, {dark})"}[theme]
        picture = re.sub(rf"(fill|stroke): {light}\b", rf"\1: {colours}", picture)
    if theme != "auto":
        return picture
    end = picture.index(">") + 1
    return f"{picture[:end]}<style>:root {{ color-scheme: light dark }}</style>{picture[end:]}"
