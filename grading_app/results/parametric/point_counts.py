"""The counts of an experiment's answers at each point of a parametric dataset, computed by the database and stored.

A point is one setting of a task's parameters. A cell is one point under one condition. All leaderboards and surfaces
are sums of cells, so that no page reads the trials.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from evalsite.lib.sql import fetch_rows
from evalsite.lib.stats import AnswerSums, estimate_effective_size
from grading_app.models import GradeCondition
from grading_app.results.cached_aggregates import (
    MAX_ANSWERS_PER_REQUEST,
    fingerprint_results,
    has_many_answers,
    make_answer_aggregate,
)
from grading_app.results.scores import IN_SCOPE
from runs_app.models import Experiment, Wave
from runs_app.planning.points import GUESS
from runs_app.stopping.rules import Tally

SCORER = "final_answer"
TASK = "coalesce(nullif(i.category, ''), i.metadata ->> 'task', '')"
"""SQL for the task of the item `i`."""

CASES = """datasets_app_item i
    WHERE i.dataset_id = %(dataset)s AND NOT i.excluded AND jsonb_typeof(i.metadata -> 'params') = 'object'"""
"""SQL for the active items with parameters."""
GRADED_ANSWERS = """runs_app_answer t JOIN datasets_app_item i ON i.id = t.item_id
    LEFT JOIN grading_app_grading g ON g.condition_id = %(grader)s AND g.trial_id = t.trial_id
    CROSS JOIN LATERAL (SELECT (t.truncated OR g.parse_error = 'truncated') IS TRUE AS cut) AS state"""
"""SQL for answers with their item and their grading. cut: by the model's limit, or by that of the rule."""

# The items are read once, because their metadata is large. Imported parameters include `count`, which is no difficulty.
POINTS = f"""SELECT {TASK},
        ((i.metadata -> 'params') - 'count')::text, array_agg(i.id ORDER BY i.id),
        array_agg(coalesce((i.metadata ->> 'guess_chance')::float8, {GUESS}) ORDER BY i.id)
    FROM {CASES}
    GROUP BY 1, 2 ORDER BY min(i.position), 1, 2"""  # noqa: S608 - constants
# The accuracy excludes truncated answers, whether the model was cut off or the rule's limit counts it as cut.
ANSWERED = """FROM unnest(%(items)s::bigint[], %(points)s::int[], %(guesses)s::float8[])
    AS item_point (item, point, guess)
    JOIN runs_app_answer t ON t.item_id = item_point.item
    LEFT JOIN grading_app_grading g ON g.condition_id = %(grader)s AND g.trial_id = t.trial_id
    CROSS JOIN LATERAL (SELECT t.status = 'done' AND (t.truncated OR g.parse_error = 'truncated') IS TRUE AS truncated,
        t.status = 'done' AND NOT t.truncated AND g.score IS NOT NULL AS scored) AS state"""
SUMS = """count(*) FILTER (WHERE t.status = 'done') AS done,
    count(*) FILTER (WHERE state.scored AND g.score = 1) AS correct,
    count(*) FILTER (WHERE state.scored) AS total, count(*) FILTER (WHERE state.truncated) AS truncated,
    count(*) FILTER (WHERE state.scored AND g.detail ->> 'valid' = 'false') AS invalid,
    coalesce(sum(item_point.guess) FILTER (WHERE state.scored), 0)::float8 AS guesses,
    coalesce(sum(t.input_tokens), 0)::bigint AS input_tokens,
    coalesce(sum(t.output_tokens), 0)::bigint AS output_tokens"""
COUNTS = f"""SELECT t.condition_id, item_point.point, {SUMS} {ANSWERED} WHERE {IN_SCOPE} GROUP BY 1, 2 ORDER BY 1, 2"""
# For items with several answers: grouped by item first, for the effective number of answers.
REPEATED_COUNTS = f"""WITH by_item AS (
        SELECT t.condition_id, item_point.point, t.item_id, {SUMS} {ANSWERED} WHERE {IN_SCOPE} GROUP BY 1, 2, 3)
    SELECT condition_id, point, sum(done)::bigint, sum(correct)::bigint, sum(total)::bigint, sum(truncated)::bigint,
        sum(invalid)::bigint, sum(guesses), sum(input_tokens)::bigint, sum(output_tokens)::bigint,
        count(*) FILTER (WHERE total > 0), sum(total ^ 2)::float8, sum(correct ^ 2)::float8,
        sum(total * correct)::float8
    FROM by_item GROUP BY 1, 2 ORDER BY 1, 2"""  # noqa: S608 - constants
UNDECIDED = f"""SELECT DISTINCT r.condition_id, {TASK}
    FROM runs_app_point p JOIN runs_app_run r ON r.id = p.run_id JOIN datasets_app_item i ON i.id = p.items[1]
    WHERE {IN_SCOPE} AND p.status NOT IN ('enough', 'exhausted', 'aborted')"""  # noqa: S608 - constants


class CellCounts(NamedTuple):
    """The answers of one condition at one point (its number in `PointCounts.tasks` and `params`).

    total: scored answers without truncated answers. invalid: scored answers without a readable final answer. guesses:
    the sum of the guess chances of the scored cases. items and the sums of squares describe repetitions (`AnswerSums`);
    items is 0 if each item has one answer.
    """

    condition: int
    point: int
    done: int
    correct: int
    total: int
    truncated: int
    invalid: int
    guesses: float
    input_tokens: int
    output_tokens: int
    items: int = 0
    sizes_squared: float = 0.0
    right_squared: float = 0.0
    sizes_by_right: float = 0.0


@dataclass(frozen=True)
class PointCounts:
    """The cells of an experiment. tasks, params, items: of each point, in the dataset's order.

    cells: the first fields of `CellCounts`, as columns. expected: answers of an item in the design.
    unfinished: pairs of condition and task with an undecided adaptive point. is_adaptive: a point may have fewer
    answers than `expected`, because a stopping rule ends it, or because an imported study has the cases asked only.
    """

    tasks: list[str]
    params: list[dict[str, Any]]
    items: list[int]
    cells: dict[str, list[int | float]]
    expected: int = 1
    is_adaptive: bool = False
    unfinished: list[tuple[int, str]] = field(default_factory=list)

    @cached_property
    def rows(self) -> list[CellCounts]:
        # By name: a stored value has its columns in another order.
        columns = [self.cells[name] for name in _COLUMNS if name in self.cells]
        return [CellCounts(*values) for values in zip(*columns, strict=True)]

    @cached_property
    def by_condition(self) -> dict[int, list[CellCounts]]:
        cells_by_condition: dict[int, list[CellCounts]] = {}
        for cell in self.rows:
            cells_by_condition.setdefault(cell.condition, []).append(cell)
        return cells_by_condition

    @cached_property
    def task_names(self) -> list[str]:
        return list(dict.fromkeys(self.tasks))

    def is_incomplete(self, condition: int, task: str, done: int) -> bool:
        """Return whether planned cases of the task have no answer under this condition."""
        if self.is_adaptive:
            answered = {cell.point for cell in self.by_condition.get(condition, ()) if cell.done}
            without_answer = {point for point, name in enumerate(self.tasks) if name == task} - answered
            return bool(without_answer) or (condition, task) in {(key, name) for key, name in self.unfinished}
        planned = sum(items for name, items in zip(self.tasks, self.items, strict=True) if name == task)
        return done < planned * self.expected


_COLUMNS = CellCounts._fields


def sum_cells(cells: Iterable[CellCounts]) -> Tally:
    """Return the tally of one condition's cells, with the effective number of answers if items repeat."""
    cell_list = list(cells)
    correct, total = sum(cell.correct for cell in cell_list), sum(cell.total for cell in cell_list)
    guesses = min(float(total), math.fsum(cell.guesses for cell in cell_list))
    items = sum(cell.items for cell in cell_list)
    effective = None
    if total > items > 0:
        sums = AnswerSums(
            float(total),
            items,
            math.fsum(cell.sizes_squared for cell in cell_list),
            float(correct),
            math.fsum(cell.right_squared for cell in cell_list),
            math.fsum(cell.sizes_by_right for cell in cell_list),
        )
        effective = min(float(total), float(estimate_effective_size(sums)))
    return Tally(correct, total, sum(cell.truncated for cell in cell_list), guesses, effective)


@dataclass(frozen=True, slots=True)
class PointQuery:
    """The counts of an experiment by one grader. state: its fingerprint, if the caller has it."""

    experiment: Experiment
    grader: int | None
    wave: Wave | None = None
    state: str = ""
    answers: int | None = None


def list_graders(experiments: Sequence[Experiment]) -> dict[int, list[GradeCondition]]:
    """Return the rules that read final answers, by experiment, the rule without a limit first. One query."""
    rules = GradeCondition.objects.filter(experiment__in=experiments, kind=GradeCondition.Kind.RULE, scorer=SCORER)
    rules_by_experiment: dict[int, list[GradeCondition]] = {experiment.pk: [] for experiment in experiments}
    for rule in sorted(rules, key=lambda rule: (bool(rule.parameters), rule.pk)):
        rules_by_experiment[rule.experiment_id].append(rule)
    return rules_by_experiment


def count_points(query: PointQuery) -> PointCounts:
    """Count the cells of an experiment in at most three statements."""
    experiment = query.experiment
    points = fetch_rows(POINTS, {"dataset": experiment.dataset_id})
    scope: Any = {"experiment": experiment.pk, "wave": query.wave.pk if query.wave else None}
    waves = 1 if query.wave else max(1, experiment.waves.filter(runs__condition__stage="generate").distinct().count())
    parameters: Any = scope | {
        "grader": query.grader,
        "items": [item for _, _, items, _ in points for item in items],
        "points": [number for number, (_, _, items, _) in enumerate(points) for _ in items],
        "guesses": [guess for *_, guesses in points for guess in guesses],
    }
    repeats = experiment.samples > 1 or waves > 1
    rows = fetch_rows(REPEATED_COUNTS if repeats else COUNTS, parameters)
    columns = _COLUMNS if repeats else _COLUMNS[: _COLUMNS.index("items")]
    return PointCounts(
        [task for task, *_ in points],
        [json.loads(params) for _, params, *_ in points],
        [len(items) for _, _, items, _ in points],
        {name: [row[index] for row in rows] for index, name in enumerate(columns)},
        expected=experiment.samples * waves,
        is_adaptive=not experiment.plans_every_case,
        unfinished=[(key, task) for key, task in fetch_rows(UNDECIDED, scope)] if experiment.adaptive else [],
    )


def _is_large(queries: Sequence[PointQuery]) -> bool:
    return any(
        query.answers > MAX_ANSWERS_PER_REQUEST
        if query.answers is not None
        else has_many_answers(query.experiment, query.wave)
        for query in queries
    )


POINT_COUNTS = make_answer_aggregate(
    "point_counts",
    PointCounts,
    count_points,
    dump=lambda query: [query.grader],
    load=lambda experiment, wave, values: PointQuery(experiment, values[0], wave),
    step="counting answers by point",
    is_large=_is_large,
    fingerprint=lambda query: query.state or fingerprint_results(query.experiment, query.wave),
    version=2,
)
