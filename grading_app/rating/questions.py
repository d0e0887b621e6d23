"""The questions that raters answer: dimensions, or the aspects of a rubric, in numbers and in words.

By a rubric, people answer like a judge: one score, whether each criterion is met, one label, or the better answer.
`build_verdict_object` converts their numbers to the form of a judge's verdict, so that one function reads both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grading_app.models import Rating, RatingQueue, Rubric
from grading_app.models.rating import FIRST, NEITHER, SECOND
from runs_app.models import Dimension

MOST_BUTTONS = 21
Key = tuple[int | None, str]
"""A dimension's key or the name of a criterion; both are empty for a rubric with one question."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a scale as a button. `key` is its keyboard key as browsers name it, or empty."""

    value: float
    face: str
    label: str = ""
    key: str = ""

    @property
    def sent(self) -> str:
        return f"{self.value:g}"

    @property
    def shown_key(self) -> str:
        return ARROWS.get(self.key, self.key)

    @property
    def is_word(self) -> bool:
        """Return True if the button must show its key, because the face does not."""
        return bool(self.key) and self.face != self.key


ARROWS = {"ArrowLeft": "←", "ArrowRight": "→"}
PASS_OR_FAIL = (Point(1, "Pass", "", "p"), Point(0, "Fail", "", "f"))
BETTER = (
    Point(FIRST, "A", "is better", "ArrowLeft"),
    Point(NEITHER, "Neither", "is better", "n"),
    Point(SECOND, "B", "is better", "ArrowRight"),
)
WINNERS = {FIRST: "A", SECOND: "B", NEITHER: "tie"}


@dataclass(frozen=True, slots=True)
class Aspect:
    """One question with its scale.

    `points` are the buttons; without points, the rater types a number. `whole` allows only whole numbers.
    """

    name: str
    question: str
    instructions: str
    low: float
    high: float
    points: tuple[Point, ...]
    key: Key = (None, "")
    whole: bool = True

    def takes(self, value: float) -> bool:
        return self.low <= value <= self.high and (not self.whole or float(value).is_integer())


def list_aspects(queue: RatingQueue) -> list[Aspect]:
    """Return the aspects in question order: dimensions by name, criteria in the rubric's order."""
    return build_aspects(list(queue.dimensions.order_by("name", "version")), queue.rubric)


def build_aspects(dimensions: Iterable[Dimension], rubric: Rubric | None) -> list[Aspect]:
    return rubric_aspects(rubric) if rubric else [dimension_aspect(dimension) for dimension in dimensions]


def find_aspect(rating: Rating, queue: RatingQueue) -> Aspect:
    if rating.dimension is not None:
        return dimension_aspect(rating.dimension)
    (found,) = [aspect for aspect in list_aspects(queue) if aspect.key == (None, rating.criterion)]
    return found


def dimension_aspect(dimension: Dimension) -> Aspect:
    title, (low, high) = dimension.title or dimension.name, (dimension.scale_min, dimension.scale_max)
    points = _whole_points(low, high, dimension.labels)
    return Aspect(dimension.name, title, dimension.instructions, low, high, points, (dimension.pk, ""))


def _whole_points(low: float, high: float, labels: Mapping[str, Any]) -> tuple[Point, ...]:
    """Return the whole points of a scale, or none if it is so long that the rater types a number."""
    if high - low >= MOST_BUTTONS:
        return ()
    return tuple(
        Point(value, str(value), str(labels.get(str(value), "")), str(value) if 0 <= value < 10 else "")
        for value in range(int(low), int(high) + 1)
    )


def rubric_aspects(rubric: Rubric) -> list[Aspect]:
    asking = {
        Rubric.Kind.SCORE: _score,
        Rubric.Kind.CRITERIA: _criteria,
        Rubric.Kind.LABEL: _label,
        Rubric.Kind.PAIRWISE: _better,
    }
    return asking[Rubric.Kind(rubric.kind)](rubric)


def _score(rubric: Rubric) -> list[Aspect]:
    """Return buttons for a scale of several whole numbers. Otherwise the rater types any number, as a judge may."""
    low, high = rubric.scale_min, rubric.scale_max
    has_points = float(low).is_integer() and float(high).is_integer() and high - low > 1
    points = _whole_points(low, high, {}) if has_points else ()
    return [Aspect("score", "Which score does this answer get?", "", low, high, points,
                   whole=bool(points))]  # fmt: skip


def _criteria(rubric: Rubric) -> list[Aspect]:
    return [
        Aspect(one["name"], one["name"], one.get("description", ""), 0, 1, PASS_OR_FAIL, (None, one["name"]))
        for one in rubric.criteria
    ]


def _label(rubric: Rubric) -> list[Aspect]:
    points = tuple(
        Point(number, one["name"], one.get("description", ""), str(number) if number < 10 else "")
        for number, one in enumerate(rubric.labels, start=1)
    )
    return [Aspect("label", "Which label fits this answer best?", "", 1, len(points), points)]


def _better(rubric: Rubric) -> list[Aspect]:
    return [Aspect("better", "Which answer is better?", "", NEITHER, SECOND, BETTER)]


def build_verdict_object(rubric: Rubric, values: Mapping[str, float]) -> dict[str, Any]:
    """Return the object that a judge would write for the same verdict: {"criteria": {"clear": true}}, {"winner": "A"},
    ...

    `values` maps criteria to numbers, or "" to the only number.
    """
    if rubric.kind == Rubric.Kind.CRITERIA:
        return {"criteria": {name: bool(value) for name, value in values.items()}}
    value = values[""]
    if rubric.kind == Rubric.Kind.LABEL:
        return {"label": rubric.labels[int(value) - 1]["name"]}
    return {"winner": WINNERS[int(value)]} if rubric.kind == Rubric.Kind.PAIRWISE else {"score": value}


def end_keys(points: Sequence[Point]) -> list[str]:
    """Return the first and the last key of a number scale, or an empty list if the buttons show their keys."""
    keys = [point.key for point in points if point.key and not point.is_word]
    return [keys[0], keys[-1]] if len(keys) > 1 else []
