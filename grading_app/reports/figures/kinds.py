"""The parts of a figure: a picture, its table, its caption and its alternative text, all from one frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from grading_app.reports.frames import Frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Frame = TypeVar("Frame")


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers that a figure shows, as text. Columns from `first_number` on are numbers."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    first_number: int


@dataclass(frozen=True)
class FigureKind(Generic[Frame]):
    """One kind of figure. `frame` selects its data; it returns None if the experiment has no data for it.

    `size(frame, width)` and `draw(frame, width)` agree on width and height in CSS pixels.
    """

    name: str
    title: str
    frame: Callable[[Frames], Frame | None]
    size: Callable[[Frame, int], tuple[int, int]]
    draw: Callable[[Frame, int], Figure]
    table: Callable[[Frame], Table]
    caption: Callable[[Frame], str]
    alt: Callable[[Frame], str]


AnyFigure = FigureKind[Any]
