"""What a figure is: a picture, the table behind it, and the words that go with both, all from one frame."""

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
    """The numbers that a figure shows, as text; columns from `first_number` on are numbers."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    first_number: int


@dataclass(frozen=True)
class FigureKind(Generic[Frame]):
    """One kind of figure. `frame` picks what it needs, or None where the experiment has nothing to show of it.

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
