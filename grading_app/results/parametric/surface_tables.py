"""The numbers of each view of the explorer as tables, and the readings of its tasks: what their points show. Pure.

A reading is one sentence for each task and condition. A parameter matters if accuracy beyond guessing differs between
its first and its last value. Only settings of the other parameters that have answers at both values count, each with
the same weight, so that a setting with more answers does not decide. The standard error of a point is half its interval
over 1.96. The interval of the difference is Bonferroni's over all parameters, tasks and conditions of the experiment. A
parameter matters if this interval excludes 0 and the difference is at least MIN_DIFFERENCE.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from grading_app.results.parametric.explorer_query import ExplorerQuery
from grading_app.results.parametric.point_counts import PointCounts
from grading_app.results.parametric.surface import (
    Estimate,
    estimate_accuracy,
    estimate_tasks,
    label_value,
    list_axes,
    subtract_estimates,
)
from grading_app.results.table import ResultColumn, ResultTable, Row
from grading_app.statistics.reason_score import format_share
from grading_app.statistics.stratified_shares import overlap_groups

MIN_DIFFERENCE = 0.05
Z_95 = NormalDist().inv_cdf(0.975)
FORMULA = (
    "Accuracy beyond guessing: (correct − G) / (n − G), with G the sum of guess chances and n the answers that were "
    "not cut off. Intervals: Wilson's 95 % interval of the share of right answers, mapped in the same way; "
    "each interval is pointwise, and covers 93 % or more in simulations."
)
NUMBERS = (
    ResultColumn("accuracy", "Accuracy", "number"),
    ResultColumn("interval", "95 % interval", "interval"),
    ResultColumn("n", "n", "count"),
    ResultColumn("correct", "Correct", "count"),
    ResultColumn("guesses", "Guesses", "number"),
    ResultColumn("truncated", "Cut off", "count"),
    ResultColumn("truncation", "Share", "share"),
    ResultColumn("tokens", "Tokens per answer", "number", 0),
)


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
    judged_readings = []
    for reading in readings:
        judged = [
            replace(effect, matters=abs(effect.difference) >= MIN_DIFFERENCE and abs(effect.difference) > z * effect.se)
            for effect in reading.effects
        ]
        judged.sort(key=lambda effect: -abs(effect.difference))
        judged_readings.append(replace(reading, effects=tuple(judged)))
    return judged_readings


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
        if not pairs:
            continue
        n = len(pairs)
        intervals = [estimate.ends or (0.0, 1.0) for pair in pairs for estimate in pair]
        se = math.sqrt(math.fsum(((high - low) / 2 / Z_95) ** 2 for low, high in intervals)) / n
        first, last = (math.fsum(pair[at].value or 0.0 for pair in pairs) / n for at in (0, 1))
        effects.append(ParameterEffect(axis.name, axis.labels[0], axis.labels[-1], first, last, se, n))
    return tuple(effects)


def group_by_task(readings: Iterable[TaskReading]) -> Mapping[str, list[TaskReading]]:
    groups: dict[str, list[TaskReading]] = {}
    for reading in readings:
        groups.setdefault(reading.task, []).append(reading)
    return groups


def make_map_table(query: ExplorerQuery) -> ResultTable:
    """Return one row for each cell of the heat map."""
    grid, cells = query.grid, query.estimate_cells(query.condition)
    columns = [*_list_axis_columns(query), *NUMBERS]
    rows: list[Row] = [
        {query.x.name: x, **({query.y.name: y} if query.y else {}), **_list_numbers(cells[x, y])}
        for y in grid.rows
        for x in grid.x.labels
        if (x, y) in cells
    ]
    title = f"{query.task}, {query.labels[query.condition]}"
    return ResultTable("surface", title, columns, rows, formula=FORMULA, notes=_list_notes(query))


def make_curve_table(query: ExplorerQuery) -> ResultTable:
    """Return one row for each condition and value of x."""
    from grading_app.results.parametric.surface import estimate_cells

    rows: list[Row] = []
    for condition in query.ordered_conditions:
        cells = estimate_cells(query.counts, query.line, condition)
        rows += [
            {"condition": query.labels[condition], query.x.name: x, **_list_numbers(cells[x, ""])}
            for x in query.x.labels
            if (x, "") in cells
        ]
    columns = [ResultColumn("condition", "Condition"), ResultColumn(query.x.name, query.x.name), *NUMBERS]
    title = f"{query.task} along {query.x.name}"
    note = query.line.describe()
    return ResultTable("curves", title, columns, rows, formula=FORMULA, notes=[note] if note else [])


def make_models_table(query: ExplorerQuery) -> ResultTable:
    """Return one row for each condition and cell."""
    rows: list[Row] = []
    for condition in query.labels:
        cells = query.estimate_cells(condition)
        rows += [
            {
                "condition": query.labels[condition],
                query.x.name: x,
                **({query.y.name: y} if query.y else {}),
                **_list_numbers(cells[x, y]),
            }
            for y in query.grid.rows
            for x in query.x.labels
            if (x, y) in cells
        ]
    columns = [ResultColumn("condition", "Condition"), *_list_axis_columns(query), *NUMBERS]
    return ResultTable("models", f"{query.task} by condition", columns, rows, formula=FORMULA, notes=_list_notes(query))


def make_difference_table(query: ExplorerQuery) -> ResultTable:
    """Return one row per cell of both conditions: the compared condition minus the chosen condition."""
    first, second = query.estimate_cells(query.condition), query.estimate_cells(query.against)
    rows: list[Row] = []
    for y in query.grid.rows:
        for x in query.x.labels:
            a, b = first.get((x, y)), second.get((x, y))
            difference = subtract_estimates(a, b) if a and b else None
            if a and b and difference:
                rows.append(
                    {
                        query.x.name: x,
                        **({query.y.name: y} if query.y else {}),
                        "difference": difference[0],
                        "interval": difference[1:],
                        "a": a.value,
                        "b": b.value,
                        "n_a": a.tally.total,
                        "n_b": b.tally.total,
                    }
                )
    columns = [
        *_list_axis_columns(query),
        ResultColumn("difference", "Difference", "signed"),
        ResultColumn("interval", "95 % interval", "interval"),
        ResultColumn("a", "A", "coefficient"),
        ResultColumn("b", "B", "coefficient"),
        ResultColumn("n_a", "n of A", "count"),
        ResultColumn("n_b", "n of B", "count"),
    ]
    n_significant = sum(1 for row in rows if row["interval"][0] > 0 or row["interval"][1] < 0)
    return ResultTable(
        "difference",
        f"{query.task}: B minus A",
        columns,
        rows,
        formula=FORMULA,
        test=(
            "Intervals of differences: Newcombe's hybrid of both Wilson intervals, as if the answers were independent. "
            "Both conditions answered the same items, so the intervals are conservative."
        ),
        sentence=(
            f"A: {query.labels[query.condition]}. B: {query.labels[query.against]}. {n_significant} of {len(rows)} "
            "intervals do not include 0. Without any difference, about one in twenty would not include 0 by chance."
        ),
        notes=_list_notes(query),
    )


def make_readings_table(query: ExplorerQuery) -> ResultTable:
    """Return one row for each task and condition, with what its parameters change."""
    rows: list[Row] = [
        {
            "task": reading.task,
            "condition": query.labels[reading.condition],
            "accuracy": reading.overall.value,
            "interval": reading.overall.ends,
            "n": reading.overall.tally.total,
            "reading": reading.sentence,
        }
        for reading in read_tasks(query.counts, query.labels)
    ]
    columns = [
        ResultColumn("task", "Task"),
        ResultColumn("condition", "Condition"),
        ResultColumn("reading", "Reading"),
        *NUMBERS[:3],
    ]
    note = (
        "A parameter matters if accuracy differs by at least .05 between its first and its last value, each setting of "
        "the others with equal weight, and Bonferroni's 95 % interval over all parameters shown here excludes 0."
    )
    return ResultTable("readings", "All tasks in words", columns, rows, formula=FORMULA, notes=[note])


def make_tasks_table(query: ExplorerQuery) -> ResultTable:
    """Return one row for each condition and task."""
    rows: list[Row] = [
        {"condition": label, "task": task, **_list_numbers(estimate)}
        for condition, label in query.labels.items()
        for task, estimate in estimate_tasks(query.counts, condition).items()
    ]
    columns = [ResultColumn("condition", "Condition"), ResultColumn("task", "Task"), *NUMBERS]
    return ResultTable("tasks", "Accuracy by task", columns, rows, formula=FORMULA)


def make_clusters_table(query: ExplorerQuery) -> ResultTable:
    """Return the conditions of the task from the highest accuracy, with the groups whose intervals all overlap."""
    estimates_by_condition = {
        condition: estimates[query.task]
        for condition in query.labels
        if query.task in (estimates := estimate_tasks(query.counts, condition)) and estimates[query.task].ends
    }
    ordered = sorted(estimates_by_condition, key=lambda condition: -(estimates_by_condition[condition].value or 0.0))
    groups = overlap_groups([estimates_by_condition[condition].ends or (0.0, 0.0) for condition in ordered])
    names = {
        index: [_get_letter(number) for number, group in enumerate(groups) if index in group]
        for index in range(len(ordered))
    }
    rows: list[Row] = [
        {
            "condition": query.labels[condition],
            "clusters": " ".join(names[index]),
            **_list_numbers(estimates_by_condition[condition]),
        }
        for index, condition in enumerate(ordered)
    ]
    columns = [ResultColumn("condition", "Condition"), ResultColumn("clusters", "Clusters"), *NUMBERS]
    return ResultTable(
        "clusters",
        f"Clusters of conditions in {query.task}",
        columns,
        rows,
        formula=FORMULA,
        notes=[
            "Conditions with a common letter have intervals that all overlap. Overlap is not a test: two intervals may "
            "overlap although the difference is significant. The ranks of the leaderboard are tests."
        ],
    )


def _get_letter(number: int) -> str:
    """Return A to Z, then A2 to Z2, and so on."""
    round_number, letter = divmod(number, 26)
    return chr(ord("A") + letter) + (str(round_number + 1) if round_number else "")


def _list_axis_columns(query: ExplorerQuery) -> list[ResultColumn]:
    axes = [query.x, *([query.y] if query.y else [])]
    return [ResultColumn(axis.name, axis.name) for axis in axes]


def _list_numbers(estimate: Estimate) -> Row:
    return {
        "accuracy": estimate.value,
        "interval": estimate.ends,
        "n": estimate.tally.total,
        "correct": estimate.tally.correct,
        "guesses": estimate.tally.guess_chances,
        "truncated": estimate.tally.truncated,
        "truncation": estimate.tally.truncation,
        "tokens": estimate.tokens,
    }


def _list_notes(query: ExplorerQuery) -> Sequence[str]:
    note = query.grid.describe()
    return [note] if note else []
