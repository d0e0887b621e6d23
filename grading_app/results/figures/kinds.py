"""The parts of a figure: a picture, its table, its caption and its alternative text, all from the same data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from grading_app.results.frames import Frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DataT = TypeVar("DataT")


@dataclass(frozen=True, slots=True)
class FigureTable:
    """The numbers that a figure shows, as text. Columns from `first_number` on are numbers."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    first_number: int


@dataclass(frozen=True)
class FigureKind(Generic[DataT]):
    """One kind of figure. `select_data` returns its data, or None if the experiment has no data for it.

    `size(data, width)` returns the width and height of the figure that `draw(data, width)` draws, in CSS pixels.
    """

    name: str
    title: str
    select_data: Callable[[Frames], DataT | None]
    size: Callable[[DataT, int], tuple[int, int]]
    draw: Callable[[DataT, int], Figure]
    table: Callable[[DataT], FigureTable]
    caption: Callable[[DataT], str]
    alt: Callable[[DataT], str]


AnyFigure = FigureKind[Any]


def describe_hidden_panels(panels: Sequence[object], visible_panels: Sequence[object]) -> str:
    """Return a sentence for a caption if the figure does not show all panels."""
    if len(visible_panels) == len(panels):
        return ""
    return f" Only the first {len(visible_panels)} of {len(panels)} panels are drawn; the table lists all."
