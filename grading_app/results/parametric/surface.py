"""The surface of a task: accuracy beyond guessing over two of its parameters, and its recovery of a true surface.

Estimates come from the counts of points. For simulated models with skill profiles, the true value of each point is the
skill of the model's profile (`runs_app/simulator/skill_profiles.py`). Its cell is a point of a task in one condition,
with the interval of accuracy beyond guessing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets_app.models import Dataset
from evalsite.lib.sql import fetch_rows
from evalsite.lib.stats import Interval
from grading_app.models import GradeCondition
from grading_app.results.parametric.point_counts import CellCounts, PointCounts, sum_cells
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.reason_score import MIN_SHOWN_TRUNCATION, format_share
from runs_app.models import Experiment
from runs_app.simulator.skill_profiles import ModelProfile
from runs_app.stopping.rules import Tally

NO_PARAMETER = "all cases"  # The axis of a task that sets no parameter: one point, with an empty label.
LEVELS = 5  # Shades of a cell, from the lowest to the highest accuracy.
Difference = tuple[float, float, float]
"""A difference with the ends of its interval."""
SCORER = "final_answer"
CONFIDENCE = 0.95
ROUNDING = 1e-9
COUNTS = """
SELECT c.condition_id, m.model, s.max_tokens, i.metadata ->> 'task', i.metadata ->> 'params',
    count(*) FILTER (WHERE g.score = 1)::int, count(*) FILTER (WHERE g.score IS NOT NULL)::int,
    count(*) FILTER (WHERE t.truncated OR g.parse_error = 'truncated')::int,
    coalesce(sum((i.metadata ->> 'guess_chance')::float8) FILTER (WHERE g.score IS NOT NULL), 0)::float8
FROM runs_app_answer t
JOIN runs_app_condition c ON c.id = t.condition_id
JOIN runs_app_languagemodel m ON m.id = t.model_id
JOIN runs_app_sampler s ON s.id = t.sampler_id
JOIN datasets_app_item i ON i.id = t.item_id
LEFT JOIN grading_app_grading g ON g.trial_id = t.trial_id AND g.condition_id = %(rule)s
WHERE t.experiment_id = %(experiment)s AND t.status = 'done' AND i.metadata ? 'params'
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, min(i.position)
"""


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter of a task, with the labels of its values in order. is_number: all of them are numbers."""

    name: str
    labels: tuple[str, ...]
    is_number: bool

    @property
    def varies(self) -> bool:
        return len(self.labels) > 1

    def list_positions(self) -> list[float]:
        """Return the positions of the values on an axis: the numbers themselves, or 0, 1, 2 for words."""
        return (
            [float(label) for label in self.labels]
            if self.is_number
            else [float(index) for index in range(len(self.labels))]
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """The accuracy beyond guessing from one tally.

    value: (correct - G) / (n - G), between 0 and 1. interval: Wilson's of the raw share, mapped in the same way, so
    that it covers as often as Wilson's. Both are None without scored answers.
    """

    tally: Tally
    value: float | None
    interval: Interval | None
    tokens: float | None = None

    @property
    def level(self) -> int | None:
        return None if self.value is None else min(LEVELS - 1, int(self.value * LEVELS))

    @property
    def is_cut(self) -> bool:
        return self.tally.truncation > MIN_SHOWN_TRUNCATION

    @property
    def ends(self) -> tuple[float, float] | None:
        return (self.interval.low, self.interval.high) if self.interval else None

    @property
    def text(self) -> str:
        """The interval as `.84 - .97`, with ` [-.05]` above 2 % truncation."""
        interval = f"{format_share(self.interval.low)} - {format_share(self.interval.high)}" if self.interval else "N/A"
        return f"{interval} [-{format_share(self.tally.truncation)}]" if self.is_cut else interval


@dataclass(frozen=True, slots=True)
class SurfaceGrid:
    """The points of a task by the labels of two parameters. y is None for a curve over x alone.

    fixed: the values of fixed parameters. averaged: the varying parameters over which a cell averages.
    """

    task: str
    x: Axis
    y: Axis | None
    points: Mapping[tuple[str, str], tuple[int, ...]]
    fixed: Mapping[str, str]
    averaged: tuple[str, ...]

    @property
    def rows(self) -> tuple[str, ...]:
        return self.y.labels if self.y else ("",)

    def get_parameters(self, x: str, y: str) -> dict[str, str]:
        """Return the parameters that all points of a cell share, for the list of trials."""
        axis_values = {self.x.name: x, **({self.y.name: y} if self.y else {})}
        return {**self.fixed, **{name: label for name, label in axis_values.items() if label}}

    def describe(self) -> str:
        """Return a sentence on the fixed and the averaged parameters."""
        fixed = [f"{name} {label}" for name, label in self.fixed.items()]
        parts = [f"Fixed: {', '.join(fixed)}."] if fixed else []
        if self.averaged:
            parts.append(f"Averaged over all answers at each value of {', '.join(self.averaged)}.")
        return " ".join(parts)


def label_value(value: Any) -> str:
    """Return the label of a parameter's value: a string unchanged, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def list_axes(counts: PointCounts, task: str) -> list[Axis]:
    """Return the parameters of a task with their values: numbers by size, others in the order of the dataset."""
    values: dict[str, dict[str, Any]] = {}
    for name, params in zip(counts.tasks, counts.params, strict=True):
        if name == task:
            for parameter, value in params.items():
                values.setdefault(parameter, {}).setdefault(label_value(value), value)
    axes = []
    for name, by_label in values.items():
        is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in by_label.values())
        labels = sorted(by_label, key=by_label.__getitem__) if is_number else list(by_label)
        axes.append(Axis(name, tuple(labels), is_number))
    return axes or [Axis(NO_PARAMETER, ("",), False)]


def build_grid(counts: PointCounts, task: str, x: Axis, y: Axis | None, fixed: Mapping[str, str]) -> SurfaceGrid:
    """Return the points of each cell. Parameters that are neither an axis nor fixed are averaged over."""
    points: dict[tuple[str, str], tuple[int, ...]] = {}
    for number, (name, params) in enumerate(zip(counts.tasks, counts.params, strict=True)):
        labels = {parameter: label_value(value) for parameter, value in params.items()}
        if name != task or any(labels.get(parameter) != label for parameter, label in fixed.items()):
            continue
        cell = labels.get(x.name, ""), labels.get(y.name, "") if y else ""
        points[cell] = (*points.get(cell, ()), number)
    axis_names = {x.name, *fixed, *([y.name] if y else [])}
    averaged = tuple(axis.name for axis in list_axes(counts, task) if axis.varies and axis.name not in axis_names)
    return SurfaceGrid(task, x, y, points, dict(fixed), averaged)


def estimate_cells(counts: PointCounts, grid: SurfaceGrid, condition: int) -> dict[tuple[str, str], Estimate]:
    """Return the estimate of each cell with answers."""
    by_point = {cell.point: cell for cell in counts.by_condition.get(condition, [])}
    estimates = {}
    for position, points in grid.points.items():
        point_cells = [by_point[point] for point in points if point in by_point]
        if any(cell.done for cell in point_cells):
            estimates[position] = estimate_accuracy(point_cells)
    return estimates


def estimate_tasks(counts: PointCounts, condition: int) -> dict[str, Estimate]:
    """Return the estimate of each task with answers, over all of its points."""
    cells: dict[str, list[CellCounts]] = {}
    for cell in counts.by_condition.get(condition, []):
        if cell.done:
            cells.setdefault(counts.tasks[cell.point], []).append(cell)
    return {task: estimate_accuracy(cells[task]) for task in counts.task_names if task in cells}


def estimate_accuracy(cells: Iterable[CellCounts]) -> Estimate:
    cell_list = list(cells)
    tally = sum_cells(cell_list)
    interval = tally.interval(correction="mapped") if tally.total else None
    unguessed = tally.total - tally.guess_chances
    value = min(1.0, max(0.0, (tally.correct - tally.guess_chances) / unguessed)) if interval else None
    done = sum(cell.done for cell in cell_list)
    return Estimate(tally, value, interval, sum(cell.output_tokens for cell in cell_list) / done if done else None)


def subtract_estimates(one: Estimate, other: Estimate) -> Difference | None:
    """Return `other` minus `one`, with Newcombe's interval from the two mapped Wilson intervals."""
    if one.interval is None or other.interval is None:
        return None
    (p, a), (q, b) = (
        (_compute_raw_accuracy(one.tally), one.interval),
        (_compute_raw_accuracy(other.tally), other.interval),
    )
    below = ((q - (b.center - b.margin)) ** 2 + (a.center + a.margin - p) ** 2) ** 0.5
    above = ((b.center + b.margin - q) ** 2 + (p - (a.center - a.margin)) ** 2) ** 0.5
    return q - p, max(-1.0, q - p - below), min(1.0, q - p + above)


def _compute_raw_accuracy(tally: Tally) -> float:
    """Return the unclipped accuracy beyond guessing, which is below 0 for fewer right answers than by guessing."""
    return (tally.correct - tally.guess_chances) / (tally.total - tally.guess_chances)


def choose_axes(axes: Sequence[Axis]) -> tuple[Axis | None, Axis | None]:
    """Return the two axes to show first, or None if there are too few parameters.

    Numbers come before words, and parameters with many values before those with few.
    """
    varying = sorted((axis for axis in axes if axis.varies), key=lambda axis: (not axis.is_number, -len(axis.labels)))
    ordered = [*varying, *(axis for axis in axes if not axis.varies)]
    x = ordered[0] if ordered else None
    return x, varying[1] if len(varying) > 1 else None


@dataclass(frozen=True, slots=True)
class RecoveredCell:
    """One point in one condition: its counts, and the true values from the profile.

    skill: the true accuracy beyond guessing. truncation: the true share of truncated answers.
    """

    condition: str
    model: str
    task: str
    params: Mapping[str, Any]
    tally: Tally
    skill: float
    truncation: float

    @property
    def interval(self) -> Interval | None:
        """The interval of the accuracy beyond guessing; None without scored answers."""
        return self.tally.interval(CONFIDENCE) if self.tally.total else None

    @property
    def covers(self) -> bool | None:
        """True if the interval contains the true accuracy; None without an interval."""
        interval = self.interval
        return None if interval is None else interval.low - ROUNDING <= self.skill <= interval.high + ROUNDING


def list_recovered_cells(experiment: Experiment, profiles: Mapping[str, ModelProfile]) -> list[RecoveredCell]:
    """Return the cells of the models that have a profile, by the newest grader with the scorer `final_answer`."""
    rule = experiment.grade_conditions.filter(kind=GradeCondition.Kind.RULE, scorer=SCORER).order_by("-pk").first()
    rows = fetch_rows(COUNTS, {"experiment": experiment.pk, "rule": rule.pk if rule else None})
    cells = []
    for condition, model, max_tokens, task, text, correct, total, truncated, guesses in rows:
        profile, params = profiles.get(model), json.loads(text)
        skill = profile.skill(task, params) if profile else None
        if profile is None or skill is None:
            continue
        tally = Tally(correct, total, truncated, min(float(total), guesses))
        truncation = profile.truncation(task, params, max_tokens) or 0.0
        cells.append(RecoveredCell(condition, model, task, params, tally, skill, truncation))
    return cells


def make_recovery_table(experiment: Experiment, profiles: Mapping[str, ModelProfile]) -> ResultTable:
    """Return the cells with their true values, and how many intervals contain the true accuracy."""
    cells = list_recovered_cells(experiment, profiles)
    covers = [cell.covers for cell in cells if cell.covers is not None]
    sentence = f"{sum(covers):,} of {len(covers):,} intervals contain the true accuracy."
    return ResultTable(
        name="recovery",
        title=f"Recovered surface of {experiment.slug}",
        columns=[
            ResultColumn("condition", "Condition"),
            ResultColumn("task", "Task"),
            ResultColumn("params", "Parameters"),
            ResultColumn("n", "n", "count"),
            ResultColumn("interval", "Accuracy beyond guessing, 95 %", "share_interval"),
            ResultColumn("skill", "True", "share"),
            ResultColumn("covers", "Contains it"),
            ResultColumn("truncated", "Cut off", "share"),
            ResultColumn("truncation", "True", "share"),
        ],
        rows=[_make_row(cell) for cell in cells],
        sentence=sentence if covers else "No cell has a scored answer.",
        formula="Wilson's interval of the answers, mapped by (p - g) / (1 - g), where g is the mean guess chance.",
    )


def _make_row(cell: RecoveredCell) -> dict[str, Any]:
    interval = cell.interval
    return {
        "condition": cell.condition,
        "task": cell.task,
        "params": _describe_params(cell.params),
        "n": cell.tally.total,
        "interval": (interval.low, interval.high) if interval else None,
        "skill": cell.skill,
        "covers": None if cell.covers is None else "yes" if cell.covers else "no",
        "truncated": cell.tally.truncation,
        "truncation": cell.truncation,
    }


def make_truth_table(dataset: Dataset, profiles: Mapping[str, ModelProfile], max_tokens: int | None) -> ResultTable:
    """Return the true surface of every profile, over the points of a dataset."""
    points = [] if not hasattr(dataset, "parametric_space") else dataset.parametric_space.read_definition()["points"]
    rows = [
        {
            "model": model,
            "task": point["base_task"],
            "params": _describe_params(point["params"]),
            "skill": skill,
            "truncation": profile.truncation(point["base_task"], point["params"], max_tokens),
        }
        for model, profile in profiles.items()
        for point in points
        if (skill := profile.skill(point["base_task"], point["params"])) is not None
    ]
    return ResultTable(
        name="truth",
        title=f"True surface over {dataset}",
        columns=[
            ResultColumn("model", "Model"),
            ResultColumn("task", "Task"),
            ResultColumn("params", "Parameters"),
            ResultColumn("skill", "Accuracy beyond guessing", "share"),
            ResultColumn("truncation", "Cut off", "share"),
        ],
        rows=rows,
    )


def _describe_params(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(params.items()))
