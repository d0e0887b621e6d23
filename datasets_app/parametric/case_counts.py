"""The numbers of different cases at the points of a space, and their most frequent answers, before a build. Pure.

A point with fewer different cases than its maximum gets each of them once. Repeated cases would not be independent, so
intervals that count them would be too narrow.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from datasets_app.generators.registry import get_generator
from datasets_app.parametric.items import draw_cases
from datasets_app.parametric.seeds import make_point_rng
from datasets_app.parametric.spaces import DifficultyPoint, Space

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
