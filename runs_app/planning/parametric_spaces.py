"""Parametric spaces: a preview with points, maps, rendered cases and costs, and the stopping rules of datasets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from pydantic import ValidationError

from datasets_app.models import Dataset, ParametricSpace
from datasets_app.parametric.items import generate_point, make_prompt_parts
from datasets_app.parametric.manifolds import DENSITIES
from datasets_app.parametric.spaces import DifficultyPoint, Space, resolve_space
from datasets_app.parametric.spec import ManifoldTask, SpaceError, SpaceSpec
from runs_app.bounds import ADAPTIVE
from runs_app.experiment_files.adaptive_spec import POINT, AdaptiveSpec
from runs_app.llm.prompts import build_variables, render
from runs_app.models import LanguageModel
from runs_app.planning.shipped_designs import PROMPTS
from runs_app.pricing.costs import Usage, estimate_tokens

DEGREES = range(4)
SAMPLED_POINTS = 8  # Points of a task whose first case is rendered, to estimate its tokens.
SHOWN_CASES = 5
MAP_SIDE = 24
EXAMPLE_CASES = 20  # The examples of a previewed prompt differ from this many cases. A build compares all cases.


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of the file. `cases` counts the first round, `most` all cases that a build creates."""

    name: str
    points: int
    cases: int
    most: int
    input_tokens: int
    most_input_tokens: int


@dataclass(frozen=True, slots=True)
class DensityRow:
    """The number of a task's points at a degree, for each density; None if a parameter has no values."""

    task: str
    degree: str
    points: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class SpaceMap:
    """A map of a task's points over two parameters. A row has its value of `y`, and the cases at each value of `x`."""

    task: str
    x: str
    y: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The tokens and US dollars of a model's first round, and the US dollars of all cases."""

    model: LanguageModel
    input_tokens: int
    output_tokens: int
    usd: Decimal | None
    ceiling_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class ShownCase:
    target: str
    turns: list[dict[str, Any]]


def summarise_tasks(space: Space, prompt: str) -> list[TaskRow]:
    """Return points, cases and estimated input tokens of each task of the file."""
    rows = []
    for task in space.points_by_task:
        points = [point for point in space.points if point.task == task]
        cases = sum(point.count for point in points)
        most = sum(point.max_cases for point in points)
        # The mean input tokens of a call, estimated from points across the space.
        step = max(1, len(points) // SAMPLED_POINTS)
        counts = [
            sum(estimate_tokens(turn["content"]) for turn in case.turns)
            for point in points[::step]
            for case in show_cases(point, space.seed, prompt, most=1)
        ]
        tokens = -(-sum(counts) // len(counts)) if counts else 0
        rows.append(TaskRow(task, len(points), cases, most, cases * tokens, most * tokens))
    return rows


def count_by_density(spec: SpaceSpec, *, precision: str | None, seed: int) -> list[DensityRow]:
    """Return the points of each task at each degree and density. A task that depends on neither has one row."""
    rows = []
    for task in spec.tasks:
        varies = isinstance(task, ManifoldTask) and task.degree is None
        task_spec = spec.model_copy(update={"tasks": [task]})
        for degree in DEGREES if varies else [0]:
            points = tuple(_count_points(task_spec, precision, degree, density, seed) for density in DENSITIES)
            rows.append(DensityRow(task.name, str(degree) if varies else "any", points))
    return rows


def _count_points(spec: SpaceSpec, precision: str | None, degree: int, density: str, seed: int) -> int | None:
    try:
        return len(resolve_space(spec, precision=precision, degree=degree, density=density, seed=seed).points)
    except SpaceError:
        return None


def draw_maps(space: Space, x: str = "", y: str = "") -> list[SpaceMap]:
    """Return a map of each task with two varying parameters: `x` and `y` if it has them, else its first two."""
    maps = (_draw_map(task, space, x, y) for task in space.points_by_task)
    return [space_map for space_map in maps if space_map]


def _draw_map(task: str, space: Space, x: str, y: str) -> SpaceMap | None:
    points = [point for point in space.points if point.task == task]
    values: dict[str, dict[str, Any]] = {}
    for point in points:
        for name, value in point.params.items():
            values.setdefault(name, {})[str(value)] = value
    varying = [name for name, by_text in values.items() if len(by_text) > 1]
    preferred = [name for name in (x, y) if name in varying] + varying
    axes = list(dict.fromkeys(preferred))[:2]
    if len(axes) < 2:
        return None
    cases: Counter[tuple[str, str]] = Counter()
    for point in points:
        position = (str(point.params.get(axes[0], "")), str(point.params.get(axes[1], "")))
        cases[position] += point.max_cases
    columns, lines = (list(values[axis])[:MAP_SIDE] for axis in axes)
    return SpaceMap(
        task=task,
        x=axes[0],
        y=axes[1],
        columns=tuple(columns),
        rows=tuple((line, tuple(cases[column, line] for column in columns)) for line in lines),
        is_cut=max(len(values[axis]) for axis in axes) > MAP_SIDE,
    )


def estimate_costs(rows: Iterable[TaskRow], models: Iterable[LanguageModel], answer_tokens: int) -> list[ModelCost]:
    """Return tokens and US dollars of one call per case, for each model. An unknown price gives None."""
    rows = list(rows)
    usage = Usage(sum(row.input_tokens for row in rows), answer_tokens * sum(row.cases for row in rows))
    most = Usage(sum(row.most_input_tokens for row in rows), answer_tokens * sum(row.most for row in rows))
    return [
        ModelCost(
            model,
            usage.input_tokens,
            usage.output_tokens,
            usage.compute_cost(model.prices),
            most.compute_cost(model.prices),
        )
        for model in models
    ]


def show_cases(point: DifficultyPoint, seed: int, prompt: str, most: int = SHOWN_CASES) -> list[ShownCase]:
    """Return the first cases of a point, rendered with a shipped prompt."""
    parts = make_prompt_parts(replace(point, count=min(point.count, EXAMPLE_CASES), stopping={}), seed=seed)
    cases = []
    for item in generate_point(point, stop=min(point.max_cases, most), seed=seed):
        variables = build_variables(
            key=item.key,
            input=item.case.input,
            choices=item.case.choices or (),
            category=point.task,
            metadata=item.metadata() | parts,
        )
        cases.append(ShownCase(item.case.target, render(PROMPTS[prompt], variables)))
    return cases


SCORER = "final_answer"
STOP_PARAMETERS = ("targetci", "abortht")  # A task that has one of them has a stopping rule.


class NoSpaceRules(ValueError):
    """Raised for a dataset without its own stopping rules. The message states the reason."""


def read_space_rules(dataset: Dataset) -> dict[str, Any]:
    """Return the content of `adaptive` for a dataset: its points, with the rule of each task of its space.

    A task's round is the largest `count` of its points, and its maximum is `maximum`, or else that count. Raise
    NoSpaceRules if the dataset has no space, or if no task of the space names `targetci` or `abortht`.
    """
    space = ParametricSpace.objects.filter(dataset=dataset).first()
    if space is None:
        raise NoSpaceRules(f"{dataset} was not generated from a parametric space")
    tasks: dict[str, dict[str, Any]] = {}
    for point in space.read_definition()["points"]:
        most = int(ADAPTIVE["round"].high)
        stops = dict(point["stopping"])
        maximum = stops.pop("maximum", point["count"])
        rule = tasks.setdefault(point["task"], {"round": 1, "max": 1, **stops})
        rule["round"] = min(most, max(rule["round"], point["count"]))
        rule["max"] = max(rule["max"], maximum)
    if not any(name in rule for rule in tasks.values() for name in STOP_PARAMETERS):
        raise NoSpaceRules(f"the space of {dataset} has no stopping rules: no task names targetci or abortht")
    try:
        rules = list(tasks.values())
        is_shared = "targetci" in rules[0] and all(rule == rules[0] for rule in rules)
        equal_rules = rules[0] if is_shared else {"tasks": dict(tasks)}
        return AdaptiveSpec.model_validate({"by": POINT, "scorer": SCORER, **equal_rules}).content
    except ValidationError as error:
        problem = error.errors()[0]
        path = ".".join(str(step) for step in problem["loc"])
        raise NoSpaceRules(f"the space of {dataset} has a rule that cannot be used: {path} {problem['msg']}") from None
