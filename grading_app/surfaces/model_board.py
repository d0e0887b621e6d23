"""The site's leaderboard over parametric experiments: rows of model, prompt and sampler, columns of tasks.

The counts come from `point_counts`; each experiment is one stored aggregate. The number of queries is constant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.cache import cache
from django.db.models import Q, Sum

from datasets_app.models import Dataset
from evalsite.lib.text.hashing import content_hash
from grading_app.models import GradeCondition
from grading_app.reports.cached_aggregates import Cached, get_aggregates_across
from grading_app.reports.frame_cache import fingerprint_many_results
from grading_app.statistics.reason_score import ReasonScore, TaskScore, bootstrap_score, reason_score, score_task
from grading_app.statistics.stratified_shares import RankRange, rank_rows
from grading_app.surfaces.point_counts import (
    POINT_COUNTS,
    CellCounts,
    PointCounts,
    PointQuery,
    list_graders,
    sum_cells,
)
from runs_app.llm.model_families import find_family
from runs_app.models import Condition, Experiment
from runs_app.stopping.rules import Tally

VERSION = 1  # Increase it when the same counts give another board.
SECONDS = 3600
UNRANKED = RankRange(1, 1)


@dataclass(frozen=True, slots=True)
class BoardScope:
    """The datasets that a leaderboard compares: equal content, or built from one definition of a space."""

    key: str
    label: str
    datasets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One condition. tasks: its cell in each task with answers. others: further experiments with this condition.

    first, second: the two versions of ReasonScore. family: of the model. groups: the model's tags.
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
    tallies: dict[str, Tally]
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
    tasks: list[str]
    rows: list[ModelRow]


@dataclass(frozen=True, slots=True)
class BoardState:
    """The board with its gaps: experiments whose counts a worker still adds up, and experiments not graded."""

    board: ModelBoard
    waiting: list[str]
    ungraded: list[str]
    caches: list[Cached[PointCounts]]

    @property
    def is_under_way(self) -> bool:
        return any(one.is_under_way for one in self.caches)


def list_scopes(experiments: Sequence[Experiment]) -> list[BoardScope]:
    """Return the scopes of these experiments (with their datasets), the newest experiment's first. No query."""
    found: dict[str, list[Any]] = {}
    for experiment in experiments:
        dataset = experiment.dataset
        found.setdefault(f"dataset-{dataset.content_hash[:16]}", [str(dataset), set()])[1].add(dataset.pk)
    spaces: dict[str, list[Any]] = {}
    for experiment in experiments:
        if digest := experiment.dataset.recipe.get("definition_hash"):
            label = f"all datasets of the space {experiment.dataset.recipe.get('space') or experiment.dataset.slug}"
            spaces.setdefault(f"space-{digest[:16]}", [label, set()])[1].add(experiment.dataset_id)
    equal = {frozenset(keys) for _, keys in found.values()}
    several = {key: one for key, one in spaces.items() if len(one[1]) > 1 and frozenset(one[1]) not in equal}
    return [BoardScope(key, label, tuple(sorted(keys))) for key, (label, keys) in (found | several).items()]


def list_parametric_experiments(user: Any) -> list[Experiment]:
    """Return the experiments on parametric datasets that the user may see and that have answers, newest first.

    Archived experiments are left out.
    """
    seen = Experiment.objects.visible_to(user).filter(
        Q(dataset__recipe__strategy="parametric") | Q(dataset__recipe__parametric=True)
    )
    seen = seen.filter(dataset__status__in=_FROZEN).exclude(status=Experiment.Status.ARCHIVED)
    counted = seen.annotate(answers=Sum("runs__n_done", filter=Q(runs__condition__stage="generate")))
    return list(counted.filter(answers__gt=0).select_related("dataset").order_by("-created_at", "-pk"))


_FROZEN = (Dataset.Status.APPROVED, Dataset.Status.ARCHIVED)


def load_board(experiments: Sequence[Any], limit: str = "") -> BoardState:
    """Return the board of these experiments, which have `answers`. limit: of the rule `final_answer:LIMIT`."""
    graders = {key: choose_grader(rules, limit) for key, rules in list_graders(experiments).items()}
    graded = [one for one in experiments if graders[one.pk] is not None]
    states = fingerprint_many_results(graded)
    queries = [PointQuery(one, _get_key(graders[one.pk]), state=states[one.pk], answers=one.answers) for one in graded]
    caches = get_aggregates_across(POINT_COUNTS, [(one.experiment.pk, one) for one in queries])
    found = list(zip(graded, caches, strict=True))
    ready = [(one, cached.value) for one, cached in found if cached.value is not None]
    waiting = [one.slug for one, cached in found if cached.value is None]
    identity = [VERSION, [[one.pk, _get_key(graders[one.pk]), cached.fingerprint] for one, cached in found]]
    key = f"model_board:{content_hash(identity)}:{len(ready)}"
    board: ModelBoard | None = cache.get(key)
    if board is None:
        board = build_board(ready)
        cache.set(key, board, SECONDS)
    return BoardState(board, waiting, [one.slug for one in experiments if graders[one.pk] is None], caches)


def choose_grader(rules: Sequence[GradeCondition], limit: str = "") -> GradeCondition | None:
    """Return the rule with this limit of tokens; without one, the first rule."""
    if limit:
        return next((rule for rule in rules if str(rule.parameters.get("limit", "")) == limit), None)
    return rules[0] if rules else None


def _get_key(grader: GradeCondition | None) -> int | None:
    return grader.pk if grader else None


def build_board(found: Sequence[tuple[Experiment, PointCounts]]) -> ModelBoard:
    """Return the rows of these experiments, ranked. Of equal conditions the one with most answers has the row."""
    condition_keys = {cell.condition for _, counts in found for cell in counts.rows}
    described = Condition.objects.filter(pk__in=condition_keys).select_related("model__endpoint", "prompt", "sampler")
    conditions = {condition.pk: condition for condition in described}
    tasks = list(dict.fromkeys(task for _, counts in found for task in counts.task_names))
    rows: dict[str, tuple[ModelRow, dict[str, CellCounts]]] = {}
    for experiment, counts in found:
        for row, cells in _list_rows(experiment, counts, conditions):
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
    return ModelBoard(tasks, sorted(ranked, key=lambda row: -(row.first.score if row.first else -1.0)))


def _list_rows(
    experiment: Experiment, counts: PointCounts, conditions: Mapping[int, Condition]
) -> list[tuple[ModelRow, dict[str, CellCounts]]]:
    points = zip(counts.tasks, counts.params, strict=True)
    names = [f"{task} {json.dumps(params, sort_keys=True)}" for task, params in points]
    return [
        (_make_row(experiment, counts, conditions[key], cells), {names[cell.point]: cell for cell in cells})
        for key, cells in counts.by_condition.items()
        if key in conditions and any(cell.done for cell in cells)
    ]


def _make_row(
    experiment: Experiment, counts: PointCounts, condition: Condition, cells: Sequence[CellCounts]
) -> ModelRow:
    by_task: dict[str, list[CellCounts]] = {task: [] for task in counts.task_names}
    for cell in cells:
        by_task[counts.tasks[cell.point]].append(cell)
    tallies = {task: sum_cells(found) for task, found in by_task.items()}
    answered = {task: sum(cell.total + cell.truncated for cell in found) for task, found in by_task.items()}
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
        tasks={task: score_task(one, complete=task not in gaps) for task, one in tallies.items()},
        tallies=tallies,
        tokens=sum(cell.output_tokens for cell in cells),
        answers=sum(cell.done for cell in cells),
        incomplete=bool(gaps),
        first=first,
        second=bootstrap_score(tallies, incomplete=gaps),
    )


def _make_strata(rows: Sequence[Mapping[str, CellCounts]]) -> tuple[Any, Any]:
    """Return right answers and answers as arrays (rows, points). A truncated answer is an answer that is not right.

    Repetitions of an item count as their effective number of answers.
    """
    import numpy as np

    names = {name: at for at, name in enumerate(dict.fromkeys(name for row in rows for name in row))}
    right, sizes = np.zeros((len(rows), len(names))), np.zeros((len(rows), len(names)))
    for at, row in enumerate(rows):
        for name, cell in row.items():
            worth = 1.0
            if cell.total > cell.items > 0:
                tally = sum_cells([cell])
                worth = (tally.effective or tally.total) / tally.total
            right[at, names[name]] = cell.correct * worth
            sizes[at, names[name]] = (cell.total + cell.truncated) * worth
    return right, sizes
