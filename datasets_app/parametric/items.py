"""The cases of a space as items, and examples that differ from all of them. Cases are generated one at a time."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from datasets_app.generators.generator import Case
from datasets_app.generators.registry import get_generator
from datasets_app.parametric.seeds import SEED, make_point_rng
from datasets_app.parametric.spaces import DifficultyPoint, Space
from datasets_app.parametric.spec import SpaceError

EXAMPLES_SEED = 1042  # Not the default for cases. If a user chooses it for cases, equal examples are skipped.
MAX_DRAWS_PER_EXAMPLE = 200  # After this many draws, the parameters are assumed to allow no further example.


@dataclass(frozen=True, slots=True)
class GeneratedItem:
    """One case with its point. `number` counts the cases of the point from 0."""

    point: DifficultyPoint
    number: int
    case: Case

    @property
    def key(self) -> str:
        """Return the key of the dataset's item. It stays the same when the space is extended."""
        return f"{self.point.slug}-{self.number}"

    @property
    def record_key(self) -> str:
        """Return the key in ReasonScape's records, which starts with the index of the point in its space."""
        return f"{self.point.record_name}-{self.number}"

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the item: everything that identifies it, and nothing about the space."""
        return {
            "task": self.point.base_task,
            "point": self.point.slug,
            "params": self.point.params,
            "number": self.number,
            "guess_chance": float(self.case.guess_chance),
            "genresult": self.case.genresult,
        }


def generate_items(space: Space) -> Iterator[GeneratedItem]:
    """Yield every case up to the maximum of each point, point by point."""
    for point in space.points:
        yield from generate_point(point, seed=space.seed)


def generate_from_definition(definition: Mapping[str, Any]) -> Iterator[GeneratedItem]:
    """Yield the cases of a stored definition (`Space.definition`). Raise SpaceError as `read_points` does."""
    for point in read_points(definition):
        yield from generate_point(point, seed=definition["seed"])


def read_points(definition: Mapping[str, Any]) -> list[DifficultyPoint]:
    """Return the points of a stored definition, with the versions of its tasks.

    Raise SpaceError if the cases would differ, because a version or the data of a task is not installed.
    """
    versions: dict[str, int] = {}
    for stored in definition["generators"]:
        generator = get_generator(stored["task"])
        version = stored["version"] if stored["version"] in generator.versions else None
        if generator.definition(version) != stored:
            raise SpaceError([
                f"{stored['task']}: was built as {stored}, but the installed task is {generator.definition()}"
            ])  # fmt: skip
        versions[generator.name] = stored["version"]
    return [
        DifficultyPoint(index=index, version=versions[stored["base_task"]], **stored)
        for index, stored in enumerate(definition["points"])
    ]


def generate_point(
    point: DifficultyPoint, *, start: int = 0, stop: int | None = None, seed: int = SEED
) -> Iterator[GeneratedItem]:
    """Yield the cases `start` to `stop` - 1 of a point; by default, all cases up to its maximum.

    A point with fewer different cases ends earlier.

    The stream is always drawn from its beginning, so a case depends only on its number.
    """
    stop = point.max_cases if stop is None else stop
    cases = draw_cases(point.base_task, point.params, seed=seed, version=point.version)
    for number, case in enumerate(islice(cases, start, stop), start):
        yield GeneratedItem(point, number, case)


def draw_cases(
    base_task: str, params: Mapping[str, Any], *, seed: int = SEED, version: int | None = None
) -> Iterator[Case]:
    """Yield the different cases at these parameters. Raise ParamError for invalid parameters."""
    generator = get_generator(base_task)
    return generator.cases(generator.read_params(params), make_point_rng(params, seed), version)


def draw_examples(
    base_task: str,
    params: Mapping[str, Any],
    count: int,
    *,
    avoid: Container[str],
    seed: int = EXAMPLES_SEED,
    version: int | None = None,
) -> list[Case]:
    """Return worked examples for a prompt, with inputs that differ from each other and from those in `avoid`.

    avoid: the inputs of all cases that may appear with the examples.
    The list is shorter than `count` if the parameters allow too few different cases.
    """
    examples: dict[str, Case] = {}
    for case in islice(draw_cases(base_task, params, seed=seed, version=version), MAX_DRAWS_PER_EXAMPLE * count):
        if case.input not in avoid:
            examples.setdefault(case.input, case)
        if len(examples) == count:
            break
    return list(examples.values())
