"""The points of an adaptive experiment after their last decision, for the page, the figure and `status`.

Only the rows of the points are read: they hold the counts on which the decision was based.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.models import Experiment, Point, Wave
from runs_app.planning.points import read_adaptive_spec
from runs_app.stopping.rules import Scale


@dataclass(frozen=True, slots=True)
class PointLine:
    """One point of one run. Shares are from 0 to 1; `accuracy`, `low` and `high` are corrected for guessing.

    Rated items have a `mean` of `rated_items` items instead of an accuracy. Then `mean`, `low`, `high` and `half_width`
    are in points of the `scale`. `asked` counts the cases with a trial, `most` all possible cases, and `scored` the
    answers in the accuracy or the mean.
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
    usd_per_case: Decimal | None

    @property
    def is_open(self) -> bool:
        return self.status == Point.Status.OPEN

    @property
    def is_below_guessing(self) -> bool:
        """Return whether the whole interval lies below the level of guessing."""
        return self.guesses and self.high == 0

    @property
    def saved(self) -> int:
        """Return the number of cases that were not needed because the point was decided early."""
        return 0 if self.is_open else self.most - self.asked


@dataclass(frozen=True, slots=True)
class Savings:
    """Totals over all points: points, decided points, cases asked, possible cases, saved cases and US dollars."""

    points: int
    decided: int
    asked: int
    most: int
    saved: int
    saved_usd: Decimal | None

    @property
    def saved_percent(self) -> int:
        return round(100 * self.saved / self.most) if self.most else 0


def list_point_lines(experiment: Experiment, wave: Wave | None = None) -> list[PointLine]:
    """Return the points of all runs, or of one wave, in the order of the design; empty if it is not adaptive."""
    spec = read_adaptive_spec(experiment)
    if spec is None:
        return []
    points = Point.objects.filter(run__experiment=experiment).select_related("run__wave", "dimension").defer("items")
    points = points.filter(run__wave=wave) if wave else points
    return [_build_line(point, spec, experiment.samples) for point in points.order_by("run__wave__number", "run", "pk")]


def _build_line(point: Point, spec: AdaptiveSpec, samples: int) -> PointLine:
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
        most=min(spec.for_point(point.key).max, point.n_items * samples),
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
        usd_per_case=run.spent_usd / run.n_done if run.n_done and not run.n_unpriced else None,
    )


def compute_savings(lines: Sequence[PointLine]) -> Savings:
    """Return the totals. Saved dollars use the mean price of each run's answers; None if any price is unknown."""
    costs = [line.saved * line.usd_per_case if line.usd_per_case is not None else None for line in lines if line.saved]
    return Savings(
        points=len(lines),
        decided=sum(not line.is_open for line in lines),
        asked=sum(line.asked for line in lines),
        most=sum(line.most for line in lines),
        saved=sum(line.saved for line in lines),
        saved_usd=None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0)),
    )


def describe_rule(spec: AdaptiveSpec) -> list[str]:
    """Return sentences that describe the rounds and the stopping rule of the design, and the rules of its tasks."""
    sentences = [] if spec.tasks and spec.targetci is None else _describe_rule_of(spec, "Each point")
    for name in sorted(spec.tasks):
        sentences += _describe_rule_of(spec.for_task(name), f"Each point of {name}")
    return sentences


def _describe_rule_of(spec: AdaptiveSpec, points: str) -> list[str]:
    if spec.targetci is None:
        sentences = [f"{points} gets {spec.round:,} cases."]
    else:
        sentences = [
            f"{points} runs in rounds of {spec.round:,} cases, up to {spec.max:,} cases, until the "
            f"{_format_percent(spec.confidence)} interval of {_describe_measure(spec)} is within ±{spec.targetci:g}."
        ]
    if spec.backoffht is not None:
        share = _format_percent(spec.backoffht)
        sentences.append(f"If more than {share} of answers are truncated, the target is ±{spec.targetciht:g}.")
    if spec.minci:
        sentences.append(f"The target is never below ±{spec.minci:g}.")
    if spec.abortht is not None:
        sentences.append(
            f"If more than {_format_percent(spec.abortht)} of answers are truncated, the point is aborted."
        )
    return sentences


def _describe_measure(spec: AdaptiveSpec) -> str:
    return "its mean rating, in points of the scale," if spec.is_rated else f"its accuracy by {spec.scorer}"


def _format_percent(share: float) -> str:
    return f"{100 * share:g} %"


def report_points(experiment: Experiment) -> list[dict[str, Any]]:
    """Return a mapping for each point, for `status --json`."""
    names = (
        "run", "wave", "label", "status", "asked", "most", "saved", "scored", "correct", "truncated", "unread",
        "failed", "right", "accuracy", "low", "high", "half_width", "dimension",
        "rated_items", "mean", "rounds", "reason",
    )  # fmt: skip
    return [{name: getattr(line, name) for name in names} for line in list_point_lines(experiment)]
