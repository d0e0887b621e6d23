"""The cases of a space as items, and examples that equal none of them. Flat in memory: one case at a time."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from datasets_app.generators.base import Case
from datasets_app.generators.registry import get_generator
from datasets_app.parametric.seeds import SEED, make_point_rng
from datasets_app.parametric.spaces import Point, Space
from datasets_app.parametric.spec import SpaceError

EXAMPLES_SEED = 1042  # Not the default of cases. A user may choose it for cases too, so equal examples are skipped.
MAX_TRIES = 200  # Draws for each example, before a space counts as too small for it.


@dataclass(frozen=True, slots=True)
class GeneratedItem:
    """One case with its place. `number` counts the cases of the point from 0."""

    point: Point
    number: int
    case: Case

    @property
    def key(self) -> str:
        """Return the key of the dataset's item. It stays the same when the space is extended."""
        return f"{self.point.slug}-{self.number}"

    @property
    def record_key(self) -> str:
        """Return the key in ReasonScape's records, which starts with the place of the point in its space."""
        return f"{self.point.record_name}-{self.number}"

    def metadata(self) -> dict[str, Any]:
        """Return the facts that the item stores: all that its identity needs, and nothing about the space."""
        return {
            "task": self.point.base_task,
            "point": self.point.slug,
            "params": self.point.params,
            "number": self.number,
            "guess_chance": float(self.case.guess_chance),
            "genresult": self.case.genresult,
        }


def generate_items(space: Space) -> Iterator[GeneratedItem]:
    """Yield every case up to the maximum of each point: point by point, in the order of each point's stream."""
    for point in space.points:
        yield from generate_point(point, seed=space.seed)


def generate_from_definition(definition: Mapping[str, Any]) -> Iterator[GeneratedItem]:
    """Yield the cases of a stored definition (`Space.definition`). Raise SpaceError as `read_points` does."""
    for point in read_points(definition):
        yield from generate_point(point, seed=definition["seed"])


def read_points(definition: Mapping[str, Any]) -> list[Point]:
    """Return the points of a stored definition.

    Raise SpaceError if a task has another version or other facts by now, because its cases would differ.
    """
    for stored in definition["generators"]:
        present = get_generator(stored["task"]).definition()
        if present != stored:
            raise SpaceError([f"{stored['task']}: was built as {stored}, and the installed task is {present}"])
    return [Point(index=index, **stored) for index, stored in enumerate(definition["points"])]


def generate_point(
    point: Point, *, start: int = 0, stop: int | None = None, seed: int = SEED
) -> Iterator[GeneratedItem]:
    """Yield the cases `start` to `stop` - 1 of a point; by default all up to its maximum.

    The stream is drawn from its beginning, so any part of it is the same whatever was drawn before.
    """
    stop = point.most if stop is None else stop
    cases = draw_cases(point.base_task, point.params, seed=seed)
    for number, case in enumerate(islice(cases, start, stop), start):
        yield GeneratedItem(point, number, case)


def draw_cases(base_task: str, params: Mapping[str, Any], *, seed: int = SEED) -> Iterator[Case]:
    """Yield the cases at these parameters without end. Raise ParamError for wrong parameters."""
    generator = get_generator(base_task)
    return generator.cases(generator.read_params(params), make_point_rng(params, seed))


def draw_examples(
    base_task: str, params: Mapping[str, Any], count: int, *, avoid: Container[str], seed: int = EXAMPLES_SEED
) -> list[Case]:
    """Return worked examples for a prompt: different from each other, and from every input in `avoid`.

    avoid: the inputs of all cases that the examples may be shown with.
    Fewer examples come back if the parameters allow too few different cases.
    """
    examples: dict[str, Case] = {}
    for case in islice(draw_cases(base_task, params, seed=seed), MAX_TRIES * count):
        if case.input not in avoid:
            examples.setdefault(case.input, case)
        if len(examples) == count:
            break
    return list(examples.values())
