"""The site's leaderboard over parametric experiments: a row per model, prompt and sampler, a column per task.

The counts come from `point_counts`; each experiment is one stored aggregate. The number of queries is constant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from django.core.cache import cache
from django.db.models import Q, Sum

from datasets_app.models import Dataset
from evalsite.lib.text.hashing import hash_content
from grading_app.models import GradeCondition
from grading_app.results.cached_aggregates import Cached, fingerprint_many_results, get_aggregates_across
from grading_app.results.parametric.point_counts import (
    POINT_COUNTS,
    CellCounts,
    PointCounts,
    PointQuery,
    list_graders,
    sum_cells,
)
from grading_app.statistics.reason_score import (
    Counts,
    PointTallies,
    ReasonScore,
    TaskScore,
    chance_score,
    reason_score,
    score_task,
)
from grading_app.statistics.stratified_shares import RankRange, rank_rows
from runs_app.llm.model_families import find_family
from runs_app.models import Condition, Experiment, Preregistration

VERSION = 3  # Increase it when the same counts give a different board.
CACHE_SECONDS = 3600
UNRANKED = RankRange(1, 1)
Weights = Literal["points", "answers"]
"""What has equal weight in the score of a task: its points, or all of its answers, pooled."""


@dataclass(frozen=True, slots=True)
class BoardScope:
    """The datasets that a leaderboard compares: of equal content, or of the same space definition."""

    key: str
    label: str
    datasets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One condition. tasks: its cell in each task with answers. others: other experiments with this condition.

    points: the task's points with scored answers, and all of its points. first, second: the two versions of
    ReasonScore. family: of the model. groups: the model's tags.
    """

    experiment: str
    condition: int
    condition_id: str
    model: str
    prompt: str
    sampler: str
    family: str
    groups: tuple[str, ...]
    tasks: dict[str, TaskScore]
    points: dict[str, tuple[int, int]]
    tokens: int
    answers: int
    incomplete: bool
    first: ReasonScore | None
    second: ReasonScore | None
    rank: RankRange = UNRANKED
    others: tuple[str, ...] = ()

    @property
    def mean_tokens(self) -> float | None:
        return self.tokens / self.answers if self.answers else None

    @property
    def per_token(self) -> float | None:
        return self.first.per_token(self.tokens, self.answers) if self.first else None


@dataclass(frozen=True, slots=True)
class ModelBoard:
    """The rows over these tasks. weights: of the cells and of both scores."""

    tasks: list[str]
    rows: list[ModelRow]
    weights: Weights = "answers"


@dataclass(frozen=True, slots=True)
class BoardState:
    """The board with its gaps: experiments whose answers a worker still counts, and ungraded experiments.

    default_weights: points if any experiment is adaptive, because the number of answers then depends on the answers.
    """

    board: ModelBoard
    default_weights: Weights
    waiting: list[str]
    ungraded: list[str]
    caches: list[Cached[PointCounts]]

    @property
    def is_under_way(self) -> bool:
        return any(cached.is_under_way for cached in self.caches)


def list_scopes(experiments: Sequence[Experiment]) -> list[BoardScope]:
    """Return the scopes of these experiments, which include their datasets, newest first. No query."""
    by_content: dict[str, list[Any]] = {}
    for experiment in experiments:
        dataset = experiment.dataset
        by_content.setdefault(f"dataset-{dataset.content_hash[:16]}", [str(dataset), set()])[1].add(dataset.pk)
    spaces: dict[str, list[Any]] = {}
    for experiment in experiments:
        if digest := experiment.dataset.recipe.get("definition_hash"):
            label = f"all datasets of the space {experiment.dataset.recipe.get('space') or experiment.dataset.slug}"
            spaces.setdefault(f"space-{digest[:16]}", [label, set()])[1].add(experiment.dataset_id)
    equal = {frozenset(keys) for _, keys in by_content.values()}
    multiple = {key: space for key, space in spaces.items() if len(space[1]) > 1 and frozenset(space[1]) not in equal}
    return [BoardScope(key, label, tuple(sorted(keys))) for key, (label, keys) in (by_content | multiple).items()]


def list_parametric_experiments(user: Any) -> list[Experiment]:
    """Return the experiments on parametric datasets that the user may see and that have answers, newest first.

    Archived experiments are excluded, and those whose preregistered plan has not run.
    """
    visible = Experiment.objects.visible_to(user).filter(
        Q(dataset__recipe__strategy="parametric") | Q(dataset__recipe__parametric=True)
    )
    visible = visible.filter(dataset__status__in=FROZEN_STATUSES).exclude(status__in=Experiment.ENDED)
    visible = visible.exclude(preregistration__in=Preregistration.objects.unfinished())
    with_answers = visible.annotate(answers=Sum("runs__n_done", filter=Q(runs__condition__stage="generate")))
    return list(with_answers.filter(answers__gt=0).select_related("dataset").order_by("-created_at", "-pk"))


FROZEN_STATUSES = (Dataset.Status.APPROVED, Dataset.Status.ARCHIVED)


def load_board(experiments: Sequence[Any], limit: str = "", weights: Weights | None = None) -> BoardState:
    """Return the board of these experiments, which have `answers`. limit: of the rule `final_answer:LIMIT`.

    weights: None for the default of these experiments.
    """
    default: Weights = "points" if any(experiment.adaptive for experiment in experiments) else "answers"
    weights = weights or default
    graders = {key: choose_grader(rules, limit) for key, rules in list_graders(experiments).items()}
    graded = [experiment for experiment in experiments if graders[experiment.pk] is not None]
    states = fingerprint_many_results(graded)
    queries = [
        PointQuery(
            experiment, _get_key(graders[experiment.pk]), state=states[experiment.pk], answers=experiment.answers
        )
        for experiment in graded
    ]
    caches = get_aggregates_across(POINT_COUNTS, [(query.experiment.pk, query) for query in queries])
    pairs = list(zip(graded, caches, strict=True))
    loaded = [(experiment, cached.value) for experiment, cached in pairs if cached.value is not None]
    waiting = [experiment.slug for experiment, cached in pairs if cached.value is None]
    identity = [
        VERSION,
        weights,
        [[experiment.pk, _get_key(graders[experiment.pk]), cached.fingerprint] for experiment, cached in pairs],
    ]
    key = f"model_board:{hash_content(identity)}:{len(loaded)}"
    board: ModelBoard | None = cache.get(key)
    if board is None:
        board = build_board(loaded, weights)
        cache.set(key, board, CACHE_SECONDS)
    ungraded = [experiment.slug for experiment in experiments if graders[experiment.pk] is None]
    return BoardState(board, default, waiting, ungraded, caches)


def choose_grader(rules: Sequence[GradeCondition], limit: str = "") -> GradeCondition | None:
    """Return the rule with this token limit, or the first rule if `limit` is empty."""
    if limit:
        return next((rule for rule in rules if str(rule.parameters.get("limit", "")) == limit), None)
    return rules[0] if rules else None


def _get_key(grader: GradeCondition | None) -> int | None:
    return grader.pk if grader else None


def build_board(loaded: Sequence[tuple[Experiment, PointCounts]], weights: Weights = "answers") -> ModelBoard:
    """Return the ranked rows of these experiments. Equal conditions share the row with the most answers."""
    condition_keys = {cell.condition for _, counts in loaded for cell in counts.rows}
    condition_rows = Condition.objects.filter(pk__in=condition_keys).select_related(
        "model__endpoint", "prompt", "sampler"
    )
    conditions = {condition.pk: condition for condition in condition_rows}
    tasks = list(dict.fromkeys(task for _, counts in loaded for task in counts.task_names))
    rows: dict[str, tuple[ModelRow, dict[str, CellCounts]]] = {}
    for experiment, counts in loaded:
        for row, cells in _list_rows(experiment, counts, conditions, weights):
            previous = rows.get(row.condition_id)
            if previous is None or row.answers > previous[0].answers:
                others = (*previous[0].others, previous[0].experiment) if previous else ()
                rows[row.condition_id] = (replace(row, others=others), cells)
            else:
                rows[row.condition_id] = (
                    replace(previous[0], others=(*previous[0].others, row.experiment)),
                    previous[1],
                )
    ranks = rank_rows(*_make_strata([cells for _, cells in rows.values()])) if rows else []
    ranked = [replace(row, rank=rank) for (row, _), rank in zip(rows.values(), ranks, strict=True)]
    return ModelBoard(tasks, sorted(ranked, key=lambda row: -(row.first.score if row.first else -1.0)), weights)


def _list_rows(
    experiment: Experiment, counts: PointCounts, conditions: Mapping[int, Condition], weights: Weights
) -> list[tuple[ModelRow, dict[str, CellCounts]]]:
    points = zip(counts.tasks, counts.params, strict=True)
    names = [f"{task} {json.dumps(params, sort_keys=True)}" for task, params in points]
    return [
        (_make_row(experiment, counts, conditions[key], cells, weights), {names[cell.point]: cell for cell in cells})
        for key, cells in counts.by_condition.items()
        if key in conditions and any(cell.done for cell in cells)
    ]


def _make_row(
    experiment: Experiment, counts: PointCounts, condition: Condition, cells: Sequence[CellCounts], weights: Weights
) -> ModelRow:
    by_task: dict[str, list[CellCounts]] = {task: [] for task in counts.task_names}
    for cell in cells:
        by_task[counts.tasks[cell.point]].append(cell)
    by_point = {
        task: PointTallies(tuple(sum_cells([cell]) for cell in task_cells)) for task, task_cells in by_task.items()
    }
    pooled = {task: sum_cells(task_cells) for task, task_cells in by_task.items()}
    tallies: Mapping[str, Counts] = by_point if weights == "points" else pooled
    answered = {task: sum(cell.total + cell.truncated for cell in task_cells) for task, task_cells in by_task.items()}
    gaps = {task for task, n in answered.items() if counts.is_incomplete(condition.pk, task, n)}
    first = reason_score(tallies, incomplete=gaps)
    return ModelRow(
        experiment=experiment.slug,
        condition=condition.pk,
        condition_id=condition.condition_id,
        model=condition.model.name,
        prompt=condition.prompt_label,
        sampler=condition.sampler.name,
        family=find_family(condition.model.endpoint.provider, condition.model.model),
        groups=tuple(condition.model.groups.split()),
        tasks={task: score_task(tally, complete=task not in gaps) for task, tally in tallies.items()},
        points={
            task: (len(counts_of_task.answered), counts.tasks.count(task)) for task, counts_of_task in by_point.items()
        },
        tokens=sum(cell.output_tokens for cell in cells),
        answers=sum(cell.done for cell in cells),
        incomplete=bool(gaps),
        first=first,
        second=chance_score(tallies, incomplete=gaps),
    )


def _make_strata(rows: Sequence[Mapping[str, CellCounts]]) -> tuple[Any, Any]:
    """Return right answers and answers as arrays (rows, points). A truncated answer counts as not right.

    Repetitions of an item count as their effective number of answers.
    """
    import numpy as np

    names = {name: index for index, name in enumerate(dict.fromkeys(name for row in rows for name in row))}
    right, sizes = np.zeros((len(rows), len(names))), np.zeros((len(rows), len(names)))
    for index, row in enumerate(rows):
        for name, cell in row.items():
            weight = 1.0
            if cell.total > cell.items > 0:
                tally = sum_cells([cell])
                weight = (tally.effective or tally.total) / tally.total
            right[index, names[name]] = cell.correct * weight
            sizes[index, names[name]] = (cell.total + cell.truncated) * weight
    return right, sizes
