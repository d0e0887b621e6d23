"""The look of a cell of the matrix: its text, its colour and its histogram. A colour never stands without a text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from evalsite.lib.text.number_format import format_count, format_duration, format_money, format_score
from grading_app.reports.matrix_cells import MatrixCell
from grading_app.reports.scope import MISSING_WRONG, Scope
from grading_app.statistics.item_order import TOLERANCE

LEVELS = 5
"""Shades of a score: the ends of the scale have their own."""
WIDTH, HEIGHT = 56, 16
"""Of a histogram, in units of its view box."""
MOST_BINS = 11


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell for the template. path: the bars of the histogram, as an SVG path. norm_x: the mark of the human norm."""

    address: str
    tone: str
    text: str
    detail: str
    label: str
    path: str = ""
    norm_x: str = ""


class CellStyle:
    """The look of all cells of one measure. is_share: scores mean right or wrong."""

    def __init__(self, scope: Scope, is_share: bool, display: str) -> None:
        self.measure = scope.measure
        self.low, self.high = scope.measure.low, scope.measure.high
        self.wrong = scope.missing == MISSING_WRONG
        self.is_share = is_share
        self.display = display
        self.bins = self._bins()

    def shown(self, cell: MatrixCell | None, norm: float, address: str, name: str) -> CellView | None:
        if cell is None:
            return None
        text = self._score(cell)
        has_bars = self.bins > 0 and bool(cell.scores) and self.display == ""
        label = f"{name}: {self._words(cell, text)}" + ("" if norm != norm else f", norm {norm:.2f}")
        return CellView(
            address=address,
            tone=self._tone(cell),
            text=self._amount(cell) if self.display else text,
            detail=self._detail(cell),
            label=label,
            path=self._bars(cell.scores) if has_bars else "",
            norm_x=f"{self._along(norm) * WIDTH:.1f}" if has_bars and norm == norm else "",
        )

    def _bins(self) -> int:
        """Return the number of bars; 0 where a histogram says nothing: shares and scales without ends."""
        low, high = self.low, self.high
        if self.is_share or low is None or high is None or high <= low:
            return 0
        points = high - low + 1
        return int(points) if points <= MOST_BINS and points == int(points) else 10

    def _score(self, cell: MatrixCell) -> str:
        if cell.mean is None:
            return "no score" if cell.missing else "failed" if cell.failed else "open" if cell.open else "not graded"
        if not self.is_share:
            return format_score(cell.mean) if len(cell.scores) == 1 else f"{cell.mean:.2f}".replace("-", "−")
        total = len(cell.scores) + (cell.missing if self.wrong else 0)
        right = sum(score > TOLERANCE for score in cell.scores)
        if total == 1:
            return "✓" if right else "✗"
        return f"{right}/{total}"

    def _words(self, cell: MatrixCell, text: str) -> str:
        spoken = {"✓": "right", "✗": "wrong"}.get(text, text)
        if self.is_share and "/" in text:
            spoken = f"{text.replace('/', ' of ')} right"
        elif len(cell.scores) > 1:
            spoken = f"mean {text} of {len(cell.scores)}"
        rest = [
            (cell.missing, "without a score"),
            (cell.failed, "failed"),
            (cell.open, "open"),
        ]
        parts = [spoken, *(f"{n} {name}" for n, name in rest if n and cell.mean is not None)]
        return ", ".join([*parts, *([cell.extracted] if cell.extracted and not self.measure.is_rating else [])])

    def _detail(self, cell: MatrixCell) -> str:
        """Return the second line: the extracted answer beside the score, or the score beside another amount."""
        if self.display:
            return self._score(cell)
        return "" if self.measure.is_rating else cell.extracted

    def _amount(self, cell: MatrixCell) -> str:
        if self.display == "answer":
            return cell.extracted or "–"
        if cell.amount is None:
            return "–"
        if self.display == "cost":
            return format_money(cell.amount)
        return format_duration(cell.amount) if self.display == "latency" else format_count(round(cell.amount))

    def _tone(self, cell: MatrixCell) -> str:
        """Return the class of the colour: from low to high on the scale, or none."""
        low, high = self.low, self.high
        if cell.mean is None:
            return "none"
        if low is None or high is None or high <= low:
            return "plain"
        at = min(1.0, max(0.0, (cell.mean - low) / (high - low)))
        level = (
            0 if at <= TOLERANCE else LEVELS - 1 if at >= 1 - TOLERANCE else 1 + min(LEVELS - 3, int(at * (LEVELS - 2)))
        )
        return f"{'rated' if self.measure.is_rating else 'level'}-{level}"

    def _bars(self, scores: tuple[float, ...]) -> str:
        width = WIDTH / self.bins
        counts = Counter(self._bin(score) for score in scores)
        most = max(counts.values())
        return "".join(
            f"M{at * width + 0.5:.1f} {HEIGHT}v-{max(2.0, HEIGHT * n / most):.1f}h{width - 1:.1f}V{HEIGHT}z"
            for at, n in sorted(counts.items())
        )

    def _bin(self, score: float) -> int:
        return min(self.bins - 1, max(0, int(self._along(score) * self.bins)))

    def _along(self, value: float) -> float:
        """Return where a value lies along the histogram, from 0 to 1. A point of the scale is the middle of its bar."""
        if self.low is None or self.high is None:
            return 0.0
        length = self.high - self.low
        at = (value - self.low + 0.5) / self.bins if self.bins == length + 1 else (value - self.low) / length
        return min(1.0, max(0.0, at))
