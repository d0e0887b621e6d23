"""The presentation of a matrix cell: its text, its colour and its histogram. Every colour comes with a text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from evalsite.lib.text.number_format import format_count, format_duration, format_money, format_score
from grading_app.results.item_matrix import MatrixCell
from grading_app.results.scope import MISSING_WRONG, Scope
from grading_app.statistics.item_scores import TOLERANCE

LEVELS = 5
"""Shades of a score. Each end of the scale has its own shade."""
WIDTH, HEIGHT = 56, 16
"""The size of a histogram, in units of its view box."""
MAX_BINS = 11


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
    """The presentation of all cells of one measure. is_share: scores mean right or wrong."""

    def __init__(self, scope: Scope, is_share: bool, display: str) -> None:
        self.measure = scope.measure
        self.low, self.high = scope.measure.low, scope.measure.high
        self.counts_missing_as_wrong = scope.missing == MISSING_WRONG
        self.is_share = is_share
        self.display = display
        self.n_bins = self._count_bins()

    def make_cell(self, cell: MatrixCell | None, norm: float, address: str, name: str) -> CellView | None:
        if cell is None:
            return None
        text = self._format_score(cell)
        has_bars = self.n_bins > 0 and bool(cell.scores) and self.display == ""
        label = f"{name}: {self._describe(cell, text)}" + ("" if norm != norm else f", norm {norm:.2f}")
        return CellView(
            address=address,
            tone=self._choose_tone(cell),
            text=self._format_amount(cell) if self.display else text,
            detail=self._format_detail(cell),
            label=label,
            path=self._draw_bars(cell.scores) if has_bars else "",
            norm_x=f"{self._scale_position(norm) * WIDTH:.1f}" if has_bars and norm == norm else "",
        )

    def _count_bins(self) -> int:
        """Return the number of bars, or 0 for shares and scales without ends, which have no histogram."""
        low, high = self.low, self.high
        if self.is_share or low is None or high is None or high <= low:
            return 0
        points = high - low + 1
        return int(points) if points <= MAX_BINS and points == int(points) else 10

    def _format_score(self, cell: MatrixCell) -> str:
        if cell.mean is None:
            return "no score" if cell.missing else "failed" if cell.failed else "open" if cell.open else "not graded"
        if not self.is_share:
            return format_score(cell.mean) if len(cell.scores) == 1 else f"{cell.mean:.2f}".replace("-", "−")
        total = len(cell.scores) + (cell.missing if self.counts_missing_as_wrong else 0)
        right = sum(score > TOLERANCE for score in cell.scores)
        if total == 1:
            return "✓" if right else "✗"
        return f"{right}/{total}"

    def _describe(self, cell: MatrixCell, text: str) -> str:
        description = {"✓": "right", "✗": "wrong"}.get(text, text)
        if self.is_share and "/" in text:
            description = f"{text.replace('/', ' of ')} right"
        elif len(cell.scores) > 1:
            description = f"mean {text} of {len(cell.scores)}"
        counts = [
            (cell.missing, "without a score"),
            (cell.failed, "failed"),
            (cell.open, "open"),
        ]
        parts = [description, *(f"{n} {name}" for n, name in counts if n and cell.mean is not None)]
        return ", ".join([*parts, *([cell.extracted] if cell.extracted and not self.measure.is_rating else [])])

    def _format_detail(self, cell: MatrixCell) -> str:
        """Return the second line: the extracted answer beside the score, or the score beside another amount."""
        if self.display:
            return self._format_score(cell)
        return "" if self.measure.is_rating else cell.extracted

    def _format_amount(self, cell: MatrixCell) -> str:
        if self.display == "answer":
            return cell.extracted or "–"
        if cell.amount is None:
            return "–"
        if self.display == "cost":
            return format_money(cell.amount)
        return format_duration(cell.amount) if self.display == "latency" else format_count(round(cell.amount))

    def _choose_tone(self, cell: MatrixCell) -> str:
        """Return the CSS class of the colour, from low to high on the scale."""
        low, high = self.low, self.high
        if cell.mean is None:
            return "none"
        if low is None or high is None or high <= low:
            return "plain"
        position = min(1.0, max(0.0, (cell.mean - low) / (high - low)))
        level = (
            0
            if position <= TOLERANCE
            else LEVELS - 1
            if position >= 1 - TOLERANCE
            else 1 + min(LEVELS - 3, int(position * (LEVELS - 2)))
        )
        return f"{'rated' if self.measure.is_rating else 'level'}-{level}"

    def _draw_bars(self, scores: tuple[float, ...]) -> str:
        width = WIDTH / self.n_bins
        counts = Counter(
            min(self.n_bins - 1, max(0, int(self._scale_position(score) * self.n_bins))) for score in scores
        )
        highest = max(counts.values())
        return "".join(
            f"M{index * width + 0.5:.1f} {HEIGHT}v-{max(2.0, HEIGHT * n / highest):.1f}h{width - 1:.1f}V{HEIGHT}z"
            for index, n in sorted(counts.items())
        )

    def _scale_position(self, value: float) -> float:
        """Return a value's position in the histogram, from 0 to 1. A scale point is at the middle of its bar."""
        if self.low is None or self.high is None:
            return 0.0
        length = self.high - self.low
        position = (value - self.low + 0.5) / self.n_bins if self.n_bins == length + 1 else (value - self.low) / length
        return min(1.0, max(0.0, position))
