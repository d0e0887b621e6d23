"""The cases of a space as items, the texts that prompts need besides them, and counts of different cases. Pure.

Cases are generated one at a time. Each item stores the texts as metadata, so that prompts can use them:
`{{meta.instruction}}`, `{{meta.example_1_input}}`. The examples have the point's formats and the task's default
numbers, so that their difficulty is the same at all points. They come from another seed and differ from all cases of
the point. More cases at a point do not change the examples, unless a new case equals an example. Another example then
replaces it.

Before a build, `survey_point` counts the different cases of a point and lists its most frequent answers. A point with
fewer different cases than its maximum gets each of them once. Repeated cases would not be independent, so intervals
that count them would be too narrow.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from datasets_app.generators.generator import Case, format_final_line
from datasets_app.generators.registry import get_generator
from datasets_app.parametric.spaces import SEED, DifficultyPoint, Space, make_point_rng
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
    version: int | None = None,
) -> list[Case]:
    """Return worked examples for a prompt, with inputs that differ from each other and from those in `avoid`.

    avoid: the inputs of all cases that may appear with the examples.
    The list is shorter than `count` if the parameters allow too few different cases.
    """
    examples: dict[str, Case] = {}
    for case in islice(
        draw_cases(base_task, params, seed=EXAMPLES_SEED, version=version), MAX_DRAWS_PER_EXAMPLE * count
    ):
        if case.input not in avoid:
            examples.setdefault(case.input, case)
        if len(examples) == count:
            break
    return list(examples.values())


EXAMPLE_COUNT = 3
INSTRUCTION_KEYS = ("instruction", "instruction_stepwise", "instruction_worked")


class InputDigests:
    """A set of inputs, stored as 16-byte digests, because a point may have 100,000 cases."""

    def __init__(self, inputs: Iterable[str]) -> None:
        self._digests = {_hash_input(text) for text in inputs}

    def __contains__(self, text: object) -> bool:
        return _hash_input(str(text)) in self._digests


def make_prompt_parts(point: DifficultyPoint, *, seed: int, inputs: Container[str] | None = None) -> dict[str, str]:
    """Return the metadata for prompts, shared by all cases of a point.

    The EXAMPLE_COUNT examples are in the point's formats, or in the task's default formats if too few are new.
    inputs: the inputs of all cases of the point; without them, the cases are drawn again.
    """
    generator = get_generator(point.base_task)
    instructions = generator.instructions_at(generator.read_params(point.params))
    parts = dict(zip(INSTRUCTION_KEYS, (instructions.direct, instructions.stepwise, instructions.worked), strict=True))
    if inputs is None:
        inputs = InputDigests(item.case.input for item in generate_point(point, seed=seed))
    examples: dict[str, Case] = {}
    # The point's parameters without numbers. Examples use the task's default numbers.
    kinds = {info.name: info.kind for info in generator.describe_params()}
    options = {name: value for name, value in point.params.items() if kinds[name] in ("choice", "switch")}
    for params in (options, {}):
        if len(examples) < EXAMPLE_COUNT:
            cases = draw_examples(point.base_task, params, 2 * EXAMPLE_COUNT, avoid=inputs, version=point.version)
            examples |= {case.input: case for case in cases if case.input not in examples}
    for number, case in enumerate(list(examples.values())[:EXAMPLE_COUNT], 1):
        parts[f"example_{number}_input"] = case.input
        parts[f"example_{number}_reasoning"] = generator.explain(case)
        parts[f"example_{number}_answer"] = format_final_line(case.target)
    return parts


def _hash_input(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


FREQUENT = 2 / 3  # A free answer that is right in more than this share of the cases is reported.
MIN_CASES = 20  # Below this number of cases, a frequent answer may be chance.
MAX_SURVEYED = 2_000  # Points. A survey of one takes a few milliseconds.
MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class PointSurvey:
    """The cases of a point. n: the number that a build gives. distinct: those with different texts.

    answer, share: the most frequent target and its share of the drawn cases; "" and 0 for questions with choices.
    """

    n: int
    distinct: int
    answer: str
    share: float


def survey_point(point: DifficultyPoint, seed: int) -> PointSurvey:
    """Return the survey of a point. It draws all cases only if there may be fewer than the maximum.

    Of n equally likely cases, 3 sqrt(n) draws are all different with a chance of about exp(-9 / 2), which is 1 %. So a
    point whose first 3 sqrt(n) draws differ has, almost always, more than n cases.
    """
    params = json.dumps(point.params, sort_keys=True)
    return _survey(point.base_task, params, point.version, seed, point.max_cases)


@lru_cache(maxsize=4 * MAX_SURVEYED)
def _survey(base_task: str, params_json: str, version: int | None, seed: int, most: int) -> PointSurvey:
    generator, params = get_generator(base_task), json.loads(params_json)
    values, rng = generator.read_params(params), make_point_rng(params, seed)
    edition = generator.get_edition(version)
    cases = [edition.draw(values, rng) for _ in range(min(most, 3 * math.isqrt(most) + 3))]
    n = distinct = most
    if len({case.input for case in cases}) < len(cases):
        cases = list(islice(draw_cases(base_task, params, seed=seed, version=version), most))
        n, distinct = len(cases), len({case.input for case in cases})
    targets = Counter(case.target for case in cases if case.choices is None)
    answer, count = max(targets.items(), key=lambda item: item[1], default=("", 0))
    return PointSurvey(n, distinct, answer, count / len(cases))


def count_cases(points: Sequence[DifficultyPoint], seed: int) -> list[int]:
    """Return the number of cases that a build gives at each point; the maximum if there are too many points."""
    if len(points) > MAX_SURVEYED:
        return [point.max_cases for point in points]
    return [survey_point(point, seed).n for point in points]


def describe_gaps(space: Space, most_points: int = MAX_SURVEYED) -> list[str]:
    """Return sentences on points with too few different cases, or with one answer for most of their cases.

    most_points: the number of points to look at, from the first.
    """
    surveys = [(point, survey_point(point, space.seed)) for point in space.points[:most_points]]
    seen = f" of the first {most_points:,}" if len(space.points) > most_points else ""
    few = [(point, survey) for point, survey in surveys if survey.n < point.max_cases]
    repeated = [(point, survey) for point, survey in surveys if survey.distinct < survey.n]
    frequent = [
        (point, survey) for point, survey in surveys if survey.share > FREQUENT and point.max_cases >= MIN_CASES
    ]
    lines = []
    if few:
        names = [f"{point.slug} ({survey.n:,} of {point.max_cases:,})" for point, survey in few]
        lines.append(f"{_count_points(few)}{seen} with fewer different cases than requested; each is built once: "
                     f"{_join(names)}")  # fmt: skip
    if repeated:
        names = [f"{point.slug} ({survey.distinct:,} of {survey.n:,} differ)" for point, survey in repeated]
        lines.append(
            f"{_count_points(repeated)}{seen} with repeated cases, as in the version of the task: {_join(names)}"
        )
    if frequent:
        names = [f"{point.slug} ({survey.answer[:20]!r}: {survey.share:.0%})" for point, survey in frequent]
        lines.append(f"{_count_points(frequent)}{seen} with one right answer for most cases: {_join(names)}")
    return lines


def _count_points(rows: Sequence[object]) -> str:
    return f"{len(rows):,} point{'' if len(rows) == 1 else 's'}"


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return f"{', '.join(names[:MAX_LISTED])}{more}"
