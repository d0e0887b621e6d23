"""Summary lines by measure and condition: the number of scores, and their mean or share with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grading_app.reports.frames import Asked, Cell, Frames
from grading_app.statistics.clusters import ClusterSums, clustered_mean_of, clustered_share_of


@dataclass(frozen=True, slots=True)
class Measure:
    """The summarised values: a dimension's ratings, or a rule's scores (for rated items, on a dimension)."""

    label: str
    rule: int | None
    dimension: int | None
    is_share: bool


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """A mean or share with its interval.

    If the measure is a share, `mean` is 0 to 1, `sd` is None, and the interval is Wilson's. Everything but the counts
    is None if no score could be read. `se`, `low` and `high` are None with one item.
    """

    measure: Measure
    condition: str
    category: str | None
    n: int
    items: int
    unread: int
    mean: float | None = None
    sd: float | None = None
    se: float | None = None
    low: float | None = None
    high: float | None = None
    effective_n: float | None = None


def score_lines(cells: Iterable[Cell], frames: Frames, *, by_category: bool = False) -> list[ScoreLine]:
    """Return lines by measure, then condition in the order of the design, then (if requested) category."""
    cells = list(cells)
    binary = _binary_measures(cells)
    sums: dict[tuple[int | None, int | None, int, str | None], tuple[ClusterSums, int]] = {}
    for cell in cells:
        key = (cell.rule, cell.dimension, cell.condition, cell.category if by_category else None)
        added, unread = sums.get(key, (ClusterSums(), 0))
        sums[key] = (added + cell.sums, unread + cell.unread)
    lines = []
    for (rule, dimension, condition, category), (added, unread) in sums.items():
        label = measure_label(frames.rules, frames.dimensions, rule, dimension)
        measure = Measure(label, rule, dimension, (rule, dimension) in binary)
        lines.append(_line(measure, frames.labels[condition], category, added, unread))
    order = {label: at for at, label in enumerate(frames.labels.values())}
    return sorted(lines, key=lambda line: (place_of(line.measure), order[line.condition], line.category or ""))


def _binary_measures(cells: list[Cell]) -> set[tuple[int | None, int | None]]:
    """Return the measures whose scores are all 0 or 1, in every condition. These are shown as shares."""
    seen = {(cell.rule, cell.dimension) for cell in cells}
    return seen - {(cell.rule, cell.dimension) for cell in cells if not cell.is_binary}


def measure_label(
    rules: Mapping[int, str], dimensions: Mapping[int, Asked], rule: int | None, dimension: int | None
) -> str:
    parts = [rules[rule]] if rule is not None else []
    if dimension is not None:
        parts.append(dimensions[dimension].title)
    return " · ".join(parts)


def place_of(measure: Measure) -> tuple[bool, bool, int, int]:
    """Return the sort key of a measure: ratings first, people (whose keys are negative) last."""
    rule = measure.rule or 0
    return (measure.rule is not None, rule < 0, abs(rule), measure.dimension or 0)


def _line(measure: Measure, condition: str, category: str | None, sums: ClusterSums, unread: int) -> ScoreLine:
    counts = (measure, condition, category, round(sums.n), round(sums.clusters), unread)
    if measure.is_share:
        share = clustered_share_of(sums)
        if share is None:
            return ScoreLine(*counts)
        return ScoreLine(*counts, share.share, None, share.se, share.low, share.high, share.effective_n)
    mean = clustered_mean_of(sums)
    if mean is None:
        return ScoreLine(*counts)
    return ScoreLine(*counts, mean.mean, sums.sd, mean.se, mean.low, mean.high)
