"""The points of a space: the settings that a file defines at a degree, a density and a precision.

The random stream of a point is seeded exactly as in ReasonScape. The seed and the parameters in the file determine the
stream; the count, defaults and the task's name do not. So more cases at a point continue its stream, and the same
parameters give the same cases in every file. Numbers are compared as text: 1 and 1.0 are different parameters here. A
definition must therefore be stored as text, or in another form that preserves the difference.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from random import Random
from typing import Any

from datasets_app.generators.generator import COUNT, ParamError
from datasets_app.generators.registry import get_generator
from datasets_app.parametric.manifolds import DENSITIES, GridAxis
from datasets_app.parametric.spec import (
    MAX_COUNT,
    MAX_PROBLEMS,
    GridTask,
    ListTask,
    ManifoldTask,
    Precision,
    SpaceError,
    SpaceSpec,
    TaskSpec,
)

SEED = 42


def compute_seed_base(params: Mapping[str, Any]) -> int:
    """Return the number that the parameters add to the seed: the last eight hexadecimal digits of a SHA-256."""
    text = json.dumps({name: value for name, value in params.items() if name != COUNT}, sort_keys=True)
    return int(hashlib.sha256(text.encode()).hexdigest()[-8:], 16)


def make_point_rng(params: Mapping[str, Any], seed: int = SEED) -> Random:
    """Return a new random stream at the start of a point's cases."""
    return Random(seed + compute_seed_base(params))  # noqa: S311 - cases must be reproducible, not secret.


MAX_POINTS = 20_000
MAX_CASES = 5_000_000


@dataclass(frozen=True)
class DifficultyPoint:
    """One setting of a task's parameters, with its number of cases.

    index: the position in the space, from 0. task: the name in the file. base_task: the generator. count: the number of
    cases per round. params: the parameters in the file, without the count; absent ones have the generator's defaults.
    stopping: the fields of the stopping rule that have a value. version: of the generator; None for the newest.
    """

    index: int
    task: str
    base_task: str
    params: dict[str, Any]
    count: int
    degree: int
    density: str
    stopping: dict[str, Any] = field(default_factory=dict)
    version: int | None = None

    @property
    def max_cases(self) -> int:
        """Return the largest number of generated cases: the maximum of the stopping rule, or else the count.

        A point with fewer different cases gets fewer (`items.count_cases`).
        """
        return int(self.stopping.get("maximum", self.count))

    @property
    def slug(self) -> str:
        """Return a name such as `movies_choice_count-3_reference_count-4`. It is the same in every space."""
        return "_".join([self.base_task, *(f"{name}-{self.params[name]}" for name in sorted(self.params))])

    @property
    def identity(self) -> tuple[str, str]:
        """Return a key that is equal for points with the same cases."""
        return self.base_task, json.dumps(self.params, sort_keys=True)


@dataclass(frozen=True)
class Space:
    """A resolved space. `duplicates` counts the omitted points: those that equal an earlier point."""

    spec: SpaceSpec
    precision: str
    degree: int
    density: str
    seed: int
    points: tuple[DifficultyPoint, ...]
    duplicates: int = 0

    @cached_property
    def cases(self) -> int:
        """Return the number of cases of the first round, over all points."""
        return sum(point.count for point in self.points)

    @cached_property
    def max_cases(self) -> int:
        """Return the largest number of generated cases, over all points."""
        return sum(point.max_cases for point in self.points)

    @cached_property
    def points_by_task(self) -> dict[str, int]:
        """Return the number of points of each task of the file."""
        counts = {task.name: 0 for task in self.spec.tasks}
        for point in self.points:
            counts[point.task] += 1
        return counts

    def definition(self) -> dict[str, Any]:
        """Return the content from which `items.read_points` gives points with the same cases.

        It contains the resolved points, so neither the file's layout nor a later change to the resolver changes a
        dataset.
        """
        versions = {point.base_task: point.version for point in self.points}
        return {
            "name": self.spec.name,
            "precision": self.precision,
            "degree": self.degree,
            "density": self.density,
            "seed": self.seed,
            "generators": [get_generator(name).definition(version) for name, version in sorted(versions.items())],
            "points": [
                {
                    part.name: getattr(point, part.name)
                    for part in fields(DifficultyPoint)
                    if part.name not in ("index", "version")
                }
                for point in self.points
            ],
        }

    def definition_hash(self) -> str:
        """Return the SHA-256 of the definition. Unlike `content_hash`, it distinguishes 1 from 1.0, as seeds do."""
        return hashlib.sha256(json.dumps(self.definition(), sort_keys=True).encode()).hexdigest()


def resolve_space(
    spec: SpaceSpec, *, precision: str | None = None, degree: int = 0, density: str = "normal", seed: int = SEED
) -> Space:
    """Return the space of a file. Degree and density apply to tasks that do not set their own.

    precision: the name of a block; None selects the first.
    Raise SpaceError, which names the field, for unknown parameters of a task, an axis without values, and more than
    MAX_POINTS points or MAX_CASES cases.
    """
    if density not in DENSITIES:
        raise SpaceError([f"density: choose {', '.join(DENSITIES)}, not {density[:40]!r}"])
    name, block = spec.choose_precision(precision)
    points_by_identity: dict[tuple[str, str], DifficultyPoint] = {}
    problems = check_versions(spec.tasks)
    total = 0
    for number, task in enumerate(spec.tasks):
        resolver = _Resolver(number, task, block, degree, density)
        for point in resolver.points():
            total += 1
            points_by_identity.setdefault(point.identity, point)
        problems += resolver.problems
    if problems:
        unique = list(dict.fromkeys(problems))
        more = [f"and {len(unique) - MAX_PROBLEMS:,} more problems"] if len(unique) > MAX_PROBLEMS else []
        raise SpaceError(unique[:MAX_PROBLEMS] + more)
    points = tuple(replace(point, index=index) for index, point in enumerate(points_by_identity.values()))
    space = Space(spec, name, degree, density, seed, points, total - len(points))
    _check_size(len(points), space.max_cases)
    return space


def check_versions(tasks: Sequence[TaskSpec]) -> list[str]:
    """Return the problems of the tasks' versions: unknown ones, and two versions of one generator."""
    problems = []
    chosen: dict[str, int] = {}
    for number, task in enumerate(tasks):
        generator = get_generator(task.generator_name)
        version = task.version or generator.version
        if task.version is not None and task.version not in generator.versions:
            known = ", ".join(map(str, generator.versions))
            problems.append(f"tasks[{number}].version: {generator.name} has {known}, not {task.version}")
        elif chosen.setdefault(generator.name, version) != version:
            problems.append(
                f"tasks[{number}].version: an earlier task of {generator.name} has version {chosen[generator.name]}; "
                "a space has one version of each generator"
            )
    return problems


def count_points(
    spec: SpaceSpec, degrees: Sequence[int] = (0, 1, 2), densities: Sequence[str] = ("normal", "lowdef", "corner")
) -> dict[str, dict[tuple[int, str], int | None]]:
    """Return the number of points of each task by degree and density, without drawing a case.

    None means that the task has no point there, because a window leaves an axis without values. A point of two tasks
    counts for both.
    """
    return {
        task.name: {
            (degree, density): _count_task(task, degree, density) for degree in degrees for density in densities
        }
        for task in spec.tasks
    }


def _count_task(task: TaskSpec, degree: int, density: str) -> int | None:
    if isinstance(task, ListTask):
        return len({json.dumps(_drop_count(params), sort_keys=True) for params in task.params})
    own_degree = degree if task.degree is None else task.degree
    own_density = task.density or density
    sizes = [
        math.prod(len(axis.resolve(own_degree, own_density)) for name, axis in axes.items() if name != COUNT)
        for _, axes in _list_grids(task)
    ]
    return sum(sizes) or None


def _list_grids(task: TaskSpec) -> list[tuple[str, Mapping[str, GridAxis]]]:
    """Return pairs of path and axes: the task's grid, or each of its manifolds."""
    if isinstance(task, GridTask):
        return [("params", task.params)]
    if not isinstance(task, ManifoldTask):
        raise TypeError(f"{type(task).__name__} has no axes")
    single: list[tuple[str, Mapping[str, GridAxis]]] = (
        [("manifold", task.manifold)] if task.manifold is not None else []
    )
    return single + [(f"manifolds[{index}]", manifold) for index, manifold in enumerate(task.manifolds)]


class _Resolver:
    """The points of one task of the file, and the problems found while resolving them."""

    def __init__(self, number: int, task: TaskSpec, block: Precision | None, degree: int, density: str) -> None:
        self.task, self.path, self.block = task, f"tasks[{number}]", block
        self.degree = degree if task.degree is None else task.degree
        self.density = task.density or density
        self.stopping = (block.stopping() if block else {}) | task.stopping()
        self.problems: list[str] = []
        if ("targetciht" in self.stopping) != ("backoffht" in self.stopping):
            self.problems.append(f"{self.path}: targetciht and backoffht come together")

    def points(self) -> Iterator[DifficultyPoint]:
        """Yield the points of this task in the order of the file; the last axis of a grid changes fastest."""
        generator = get_generator(self.task.generator_name)
        for path, params in self._iterate_settings():
            count = self._count_cases(path, params)
            try:
                generator.read_params(params)
            except ParamError as error:
                self.problems += [f"{path}.{problem}" for problem in error.problems]
                continue
            if count is None or len(self.problems) > MAX_PROBLEMS:
                continue
            yield DifficultyPoint(
                index=0,
                task=self.task.name,
                base_task=generator.name,
                params=_drop_count(params),
                count=count,
                degree=self.degree,
                density=self.density,
                stopping=self.stopping,
                version=self.task.version or generator.version,
            )

    def _iterate_settings(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every set of parameters with its path."""
        if isinstance(self.task, ListTask):
            for index, params in enumerate(self.task.params):
                yield f"{self.path}.params[{index}]", params
            return
        for grid_path, axes in _list_grids(self.task):
            path = f"{self.path}.{grid_path}"
            values = {name: axis.resolve(self.degree, self.density) for name, axis in axes.items()}
            for name, axis_values in values.items():
                if not axis_values:
                    self.problems.append(f"{path}.{name}: no value is left at degree {self.degree}, {self.density}")
            _check_size(math.prod(len(axis_values) for axis_values in values.values()), 0)
            for combination in product(*values.values()):
                yield path, dict(zip(values, combination, strict=True))

    def _count_cases(self, path: str, params: Mapping[str, Any]) -> int | None:
        """Return the number of cases of a point: its own, else the precision block's. Return None if it is invalid."""
        count = params.get(COUNT, self.block.count if self.block else None)
        if count is None:
            self.problems.append(f"{path}.{COUNT}: is required, because the file has no precision block")
        elif isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_COUNT:
            self.problems.append(f"{path}.{COUNT}: a whole number from 1 to {MAX_COUNT:,}, not {count!r}")
        elif self.stopping.get("maximum", count) < count:
            self.problems.append(f"{self.path}.maximum: {self.stopping['maximum']:,} is below the count of {count:,}")
        else:
            return count
        return None


def _drop_count(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != COUNT}


def _check_size(points: int, cases: int) -> None:
    if points > MAX_POINTS:
        raise SpaceError([f"tasks: {points:,} points; the limit is {MAX_POINTS:,}"])
    if cases > MAX_CASES:
        raise SpaceError([f"precision: {cases:,} cases; the limit is {MAX_CASES:,}"])
