"""The readings of a parametric task: one sentence for each task and condition, about what its points show. Pure.

A parameter matters if accuracy beyond guessing differs between its first and its last value. Only settings of the other
parameters that have answers at both values count, each with the same weight, so that a setting with more answers does
not decide. The standard error of a point is half its interval over 1.96. The interval of the difference is Bonferroni's
over all parameters, tasks and conditions of the experiment. A parameter matters if this interval excludes 0 and the
difference is at least MIN_DIFFERENCE.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from grading_app.parametric.point_counts import PointCounts
from grading_app.parametric.surface import Estimate, estimate_accuracy, estimate_tasks, label_value, list_axes
from grading_app.statistics.reason_score import format_share

MIN_DIFFERENCE = 0.05
Z_95 = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class ParameterEffect:
    """The accuracy at the first and at the last value of a parameter. matters: False until all effects are known.

    settings: the number of settings of the other parameters that have answers at both values.
    """

    name: str
    first_label: str
    last_label: str
    first: float
    last: float
    se: float
    settings: int
    matters: bool = False

    @property
    def difference(self) -> float:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class TaskReading:
    """One task under one condition. effects: by the size of the difference, the largest first."""

    task: str
    condition: int
    overall: Estimate
    effects: tuple[ParameterEffect, ...]

    @property
    def sentence(self) -> str:
        """Return the parameters that matter with their accuracies, then those that do not."""
        parts = [
            f"{'falls' if effect.difference < 0 else 'rises'} with {effect.name}: "
            f"{format_share(effect.first)} at {effect.first_label}, {format_share(effect.last)} at {effect.last_label}"
            for effect in self.effects
            if effect.matters
        ]
        unclear = [effect.name for effect in self.effects if not effect.matters]
        if unclear:
            names = unclear[0] if len(unclear) == 1 else f"{', '.join(unclear[:-1])} and {unclear[-1]}"
            parts.append(f"no difference seen with {names}")
        return "; ".join(parts) or "one point only"


def read_tasks(counts: PointCounts, conditions: Iterable[int]) -> list[TaskReading]:
    """Return a reading for each task and condition with answers, by task and then in the order of the conditions."""
    readings = []
    overall = {condition: estimate_tasks(counts, condition) for condition in conditions}
    for task in counts.task_names:
        for condition, estimates in overall.items():
            if task in estimates:
                readings.append(TaskReading(task, condition, estimates[task], _list_effects(counts, task, condition)))
    n_effects = sum(len(reading.effects) for reading in readings)
    z = NormalDist().inv_cdf(1 - 0.025 / n_effects) if n_effects else Z_95
    return [replace(reading, effects=_judge_effects(reading.effects, z)) for reading in readings]


def _judge_effects(effects: Sequence[ParameterEffect], z: float) -> tuple[ParameterEffect, ...]:
    judged = [
        replace(effect, matters=abs(effect.difference) >= MIN_DIFFERENCE and abs(effect.difference) > z * effect.se)
        for effect in effects
    ]
    return tuple(sorted(judged, key=lambda effect: -abs(effect.difference)))


def _list_effects(counts: PointCounts, task: str, condition: int) -> tuple[ParameterEffect, ...]:
    by_point = {cell.point: cell for cell in counts.by_condition.get(condition, ()) if cell.total}
    points = [
        ({name: label_value(value) for name, value in counts.params[point].items()}, estimate_accuracy([cell]))
        for point, cell in by_point.items()
        if counts.tasks[point] == task
    ]
    effects = []
    for axis in list_axes(counts, task):
        if not axis.varies:
            continue
        ends: dict[tuple[tuple[str, str], ...], dict[str, list[Estimate]]] = defaultdict(dict)
        for labels, estimate in points:
            if labels.get(axis.name) in (axis.labels[0], axis.labels[-1]):
                others = tuple(sorted((name, label) for name, label in labels.items() if name != axis.name))
                ends[others].setdefault(labels[axis.name], []).append(estimate)
        pairs = [
            (found[axis.labels[0]][0], found[axis.labels[-1]][0])
            for found in ends.values()
            if axis.labels[0] in found and axis.labels[-1] in found
        ]
        if pairs:
            effects.append(_make_effect(axis.name, (axis.labels[0], axis.labels[-1]), pairs))
    return tuple(effects)


def _make_effect(name: str, labels: tuple[str, str], pairs: Sequence[tuple[Estimate, Estimate]]) -> ParameterEffect:
    variances = [_get_standard_error(estimate) ** 2 for pair in pairs for estimate in pair]
    first, last = (math.fsum(pair[at].value or 0.0 for pair in pairs) / len(pairs) for at in (0, 1))
    return ParameterEffect(name, *labels, first, last, math.sqrt(math.fsum(variances)) / len(pairs), len(pairs))


def _get_standard_error(estimate: Estimate) -> float:
    low, high = estimate.ends or (0.0, 1.0)
    return (high - low) / 2 / Z_95


def group_by_task(readings: Iterable[TaskReading]) -> Mapping[str, list[TaskReading]]:
    groups: dict[str, list[TaskReading]] = {}
    for reading in readings:
        groups.setdefault(reading.task, []).append(reading)
    return groups
