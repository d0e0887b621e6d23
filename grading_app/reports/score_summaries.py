"""Summary lines by measure and condition: the number of scores, and their mean or share with an interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grading_app.reports.frames import Frames, RatedDimension, ScoreCell
from grading_app.statistics.clusters import ClusterSums
from grading_app.statistics.intervals import SHARE_BOUNDS, Bounds, estimate_mean, is_share_scale


@dataclass(frozen=True, slots=True)
class SummaryMeasure:
    """The summarized values: ratings of a dimension, or scores by a grader (on a dimension if items are rated)."""

    label: str
    rule: int | None
    dimension: int | None
    is_share: bool


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """A mean or share with its interval.

    If the measure is a share, `mean` is 0 to 1 and `sd` is None. If no score could be read, all numbers but the counts
    are None. `method` names the method of the interval. Without an interval, `low` and `high` are None and `reason`
    says why.
    """

    measure: SummaryMeasure
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
    method: str = ""
    reason: str = ""


def summarize_scores(cells: Iterable[ScoreCell], frames: Frames, *, by_category: bool = False) -> list[ScoreSummary]:
    """Return lines by measure, then condition in the order of the design, then (if requested) category."""
    cells = list(cells)
    shares = _find_shares(cells, frames)
    sums: dict[tuple[int | None, int | None, int, str | None], tuple[ClusterSums, int]] = {}
    for cell in cells:
        key = (cell.rule, cell.dimension, cell.condition, cell.category if by_category else None)
        cluster_sums, unread = sums.get(key, (ClusterSums(), 0))
        sums[key] = (cluster_sums + cell.sums, unread + cell.unread)
    lines = []
    for (rule, dimension, condition, category), (cluster_sums, unread) in sums.items():
        label = label_measure(frames.rules, frames.dimensions, rule, dimension)
        measure = SummaryMeasure(label, rule, dimension, (rule, dimension) in shares)
        lines.append(
            _summarize(
                measure, frames.labels[condition], category, cluster_sums, unread, _get_bounds(rule, dimension, frames)
            )
        )
    order = {label: position for position, label in enumerate(frames.labels.values())}
    return sorted(lines, key=lambda line: (get_sort_key(line.measure), order[line.condition], line.category or ""))


def _find_shares(cells: list[ScoreCell], frames: Frames) -> set[tuple[int | None, int | None]]:
    """Return the measures whose means are shares."""
    measures = {(cell.rule, cell.dimension) for cell in cells}
    others = {(cell.rule, cell.dimension) for cell in cells if not cell.is_binary}
    return {key for key in measures if is_share_scale(key not in others, _get_bounds(*key, frames))}


def label_measure(
    rules: Mapping[int, str], dimensions: Mapping[int, RatedDimension], rule: int | None, dimension: int | None
) -> str:
    parts = [rules[rule]] if rule is not None else []
    if dimension is not None:
        parts.append(dimensions[dimension].title)
    return " · ".join(parts)


def get_sort_key(measure: SummaryMeasure) -> tuple[bool, bool, int, int]:
    """Return the sort key of a measure: ratings first, people (whose keys are negative) last."""
    rule = measure.rule or 0
    return (measure.rule is not None, rule < 0, abs(rule), measure.dimension or 0)


def _get_bounds(rule: int | None, dimension: int | None, frames: Frames) -> Bounds | None:
    """Return the ends of the scale of a grader, or of a dimension without a grader; None if they are unknown."""
    if rule is not None:
        return frames.rule_bounds.get(rule)
    rated = frames.dimensions.get(dimension) if dimension is not None else None
    return (float(rated.low), float(rated.high)) if rated else None


def _summarize(
    measure: SummaryMeasure, condition: str, category: str | None, sums: ClusterSums, unread: int, bounds: Bounds | None
) -> ScoreSummary:
    counts = (measure, condition, category, round(sums.n), round(sums.clusters), unread)
    estimate = estimate_mean(sums, SHARE_BOUNDS if measure.is_share else bounds)
    if estimate is None:
        return ScoreSummary(*counts)
    sd = None if measure.is_share else estimate.sd
    numbers = (estimate.mean, sd, estimate.se, estimate.low, estimate.high, estimate.effective_n)
    return ScoreSummary(*counts, *numbers, method=estimate.method, reason=estimate.reason)
