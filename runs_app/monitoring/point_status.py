"""The points of an adaptive experiment as they were left by their last decision: numbers for page, figure and status.

Read from the rows of the points alone, whose counts are those that the decision was made on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runs_app.models import Experiment, Point, Wave
from runs_app.planning.points import adaptive_of
from runs_app.planning.specs import AdaptiveSpec
from runs_app.stopping.rules import Scale


@dataclass(frozen=True, slots=True)
class PointLine:
    """One point of one run. Shares are from 0 to 1; `accuracy`, `low` and `high` are beyond guessing.

    Where items are rated there is no accuracy, but a `mean` of as many `rated_items`; it, `low`, `high` and
    `half_width` are on the `scale`. `asked` counts its cases that have a trial, `most` those that there are; `scored`
    those that make the accuracy or the mean.
    """

    run: int
    condition: int
    wave: str
    label: str
    status: str
    status_label: str
    asked: int
    most: int
    scored: int
    correct: int
    truncated: int
    unread: int
    failed: int
    guesses: bool
    right: float | None
    accuracy: float | None
    low: float | None
    high: float | None
    half_width: float | None
    dimension: str
    scale: Scale | None
    rated_items: int
    mean: float | None
    rounds: int
    reason: str
    usd_a_case: Decimal | None

    @property
    def is_open(self) -> bool:
        return self.status == Point.Status.OPEN

    @property
    def is_below_guessing(self) -> bool:
        """So few are right that the whole interval lies below what guessing gives."""
        return self.guesses and self.high == 0

    @property
    def saved(self) -> int:
        """Cases that were never asked, since the point was decided before."""
        return 0 if self.is_open else self.most - self.asked


@dataclass(frozen=True, slots=True)
class Savings:
    """Over all points: how many are decided, the cases asked, those there are, those decided without; US dollars."""

    points: int
    decided: int
    asked: int
    most: int
    saved: int
    saved_usd: Decimal | None

    @property
    def saved_percent(self) -> int:
        return round(100 * self.saved / self.most) if self.most else 0


def point_lines(experiment: Experiment, wave: Wave | None = None) -> list[PointLine]:
    """Of all runs, or of one wave's, in the order of the design; none where the experiment is not adaptive."""
    spec = adaptive_of(experiment)
    if spec is None:
        return []
    points = Point.objects.filter(run__experiment=experiment).select_related("run__wave", "dimension").defer("items")
    points = points.filter(run__wave=wave) if wave else points
    return [_line(point, spec, experiment.samples) for point in points.order_by("run__wave__number", "run", "pk")]


def _line(point: Point, spec: AdaptiveSpec, samples: int) -> PointLine:
    interval = point.interval(spec.confidence, spec.correction)
    guess = point.guess_chances / point.n_total if point.n_total else 0.0
    is_rated = point.dimension is not None
    right = point.n_correct / point.n_total if point.n_total and not is_rated else None
    run = point.run
    return PointLine(
        run=run.pk,
        condition=run.condition_id,
        wave=str(run.wave),
        label=point.label,
        status=point.status,
        status_label=point.get_status_display(),
        asked=point.n_planned,
        most=min(spec.max, point.n_items * samples),
        scored=point.n_total,
        correct=point.n_correct,
        truncated=point.n_truncated,
        unread=point.n_unread,
        failed=point.n_failed,
        guesses=guess > 0,
        right=right,
        accuracy=None if right is None or guess >= 1 else max(0.0, (right - guess) / (1 - guess)),
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        half_width=point.half_width,
        dimension=point.dimension.name if point.dimension else "",
        scale=point.dimension.scale if point.dimension else None,
        rated_items=point.n_rated_items,
        mean=point.mean,
        rounds=len(point.rounds),
        reason=point.reason,
        usd_a_case=run.spent_usd / run.n_done if run.n_done and not run.n_unpriced else None,
    )


def savings(lines: Sequence[PointLine]) -> Savings:
    """What was saved in US dollars is at the mean price of the run's answers; None where any price is unknown."""
    costs = [line.saved * line.usd_a_case if line.usd_a_case is not None else None for line in lines if line.saved]
    return Savings(
        points=len(lines),
        decided=sum(not line.is_open for line in lines),
        asked=sum(line.asked for line in lines),
        most=sum(line.most for line in lines),
        saved=sum(line.saved for line in lines),
        saved_usd=None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0)),
    )


def rule_in_words(spec: AdaptiveSpec) -> list[str]:
    """What a point of this design is asked, and until when, in sentences."""
    told = [
        f"Each point is asked in rounds of {spec.round:,} cases, {spec.max:,} at most, until the "
        f"{_per_cent(spec.confidence)} interval of {_what_is_known(spec)} is within ±{spec.targetci:g}."
    ]
    if spec.backoffht is not None:
        share = _per_cent(spec.backoffht)
        told.append(f"Above {share} of answers cut off, ±{spec.targetciht:g} is asked for instead.")
    if spec.minci:
        told.append(f"No half-width below ±{spec.minci:g} is asked for.")
    if spec.abortht is not None:
        told.append(f"Above {_per_cent(spec.abortht)} of answers cut off, the point is given up.")
    return told


def _what_is_known(spec: AdaptiveSpec) -> str:
    return "its mean rating, in points of the scale," if spec.is_rated else f"its accuracy by {spec.scorer}"


def _per_cent(share: float) -> str:
    return f"{100 * share:g} %"


def status_of_points(experiment: Experiment) -> list[dict[str, Any]]:
    """For `status --json`: a mapping for each point."""
    names = (
        "run", "wave", "label", "status", "asked", "most", "saved", "scored", "correct", "truncated", "unread",
        "failed", "right", "accuracy", "low", "high", "half_width", "dimension",
        "rated_items", "mean", "rounds", "reason",
    )  # fmt: skip
    return [{name: getattr(line, name) for name in names} for line in point_lines(experiment)]
