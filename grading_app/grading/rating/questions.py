"""The questions that raters answer, dimensions or those of a rubric, with the instructions and parts of an item.

By a rubric, people answer as a judge does: a score, a pass or fail per criterion, a label, or the better answer.
`Rubric.build_verdict_object` converts the numbers to the format of a judge's verdict, so that one parser reads both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets_app.models import Item
from grading_app.models import Rating, RatingQueue, Rubric
from grading_app.models.rubrics import FIRST, NEITHER, SECOND
from runs_app.llm import judge_prompt, prompts
from runs_app.models import Dimension

PLACEHOLDERS = {
    "input": "the question",
    "target": "the reference answer",
    "grading_scheme": "the grading scheme",
    "choices": "the choices",
    "category": "the category",
    "key": "the key",
    "image": "the image",
    judge_prompt.ITEM_RUBRIC: "the rubric of this question",
    "answer": "the answer",
    "answer_a": "answer A",
    "answer_b": "answer B",
}
"""Placeholders in a turn for parts of the item or the answer, which a rater sees beside the text."""
BLANK_LINES = re.compile(r"\n\s*\n\s*\n+")


MAX_BUTTONS = 21
Key = tuple[int | None, str]
"""A dimension's key or the name of a criterion; both are empty for a rubric with one question."""


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """A point of a scale as a button. `key` is its keyboard key as browsers name it, or empty."""

    value: float
    face: str
    label: str = ""
    key: str = ""

    @property
    def form_value(self) -> str:
        return f"{self.value:g}"

    @property
    def key_label(self) -> str:
        return ARROWS.get(self.key, self.key)

    @property
    def shows_key(self) -> bool:
        """True if the button must show its key, because the face does not."""
        return bool(self.key) and self.face != self.key


ARROWS = {"ArrowLeft": "←", "ArrowRight": "→"}
PASS_OR_FAIL = (ScalePoint(1, "Pass", "", "p"), ScalePoint(0, "Fail", "", "f"))
BETTER = (
    ScalePoint(FIRST, "A", "is better", "ArrowLeft"),
    ScalePoint(NEITHER, "Neither", "is better", "n"),
    ScalePoint(SECOND, "B", "is better", "ArrowRight"),
)


@dataclass(frozen=True, slots=True)
class RaterQuestion:
    """One question with its scale.

    `points` are the buttons; without points, the rater types a number. `whole` allows only whole numbers.
    """

    name: str
    text: str
    instructions: str
    low: float
    high: float
    points: tuple[ScalePoint, ...]
    key: Key = (None, "")
    whole: bool = True

    def accepts(self, value: float) -> bool:
        return self.low <= value <= self.high and (not self.whole or float(value).is_integer())


def list_questions(queue: RatingQueue) -> list[RaterQuestion]:
    """Return the questions in order: dimensions by name, criteria in the rubric's order."""
    return build_questions(list(queue.dimensions.order_by("name", "version")), queue.rubric)


def build_questions(dimensions: Iterable[Dimension], rubric: Rubric | None) -> list[RaterQuestion]:
    return (
        build_rubric_questions(rubric) if rubric else [build_dimension_question(dimension) for dimension in dimensions]
    )


def find_question(rating: Rating, queue: RatingQueue) -> RaterQuestion:
    if rating.dimension is not None:
        return build_dimension_question(rating.dimension)
    (match,) = [question for question in list_questions(queue) if question.key == (None, rating.criterion)]
    return match


def build_dimension_question(dimension: Dimension) -> RaterQuestion:
    title, (low, high) = dimension.title or dimension.name, (dimension.scale_min, dimension.scale_max)
    points = _list_whole_points(low, high, dimension.labels)
    return RaterQuestion(dimension.name, title, dimension.instructions, low, high, points, (dimension.pk, ""))


def _list_whole_points(low: float, high: float, labels: Mapping[str, Any]) -> tuple[ScalePoint, ...]:
    """Return the whole points of a scale. A scale too long for buttons has none, and the rater types a number."""
    if high - low >= MAX_BUTTONS:
        return ()
    return tuple(
        ScalePoint(value, str(value), str(labels.get(str(value), "")), str(value) if 0 <= value < 10 else "")
        for value in range(int(low), int(high) + 1)
    )


def build_rubric_questions(rubric: Rubric) -> list[RaterQuestion]:
    builders = {
        Rubric.Kind.SCORE: _build_score_question,
        Rubric.Kind.CRITERIA: _build_criterion_questions,
        Rubric.Kind.LABEL: _build_label_question,
        Rubric.Kind.PAIRWISE: _build_preference_question,
    }
    return builders[Rubric.Kind(rubric.kind)](rubric)


def _build_score_question(rubric: Rubric) -> list[RaterQuestion]:
    """Return buttons for a scale of several whole numbers. Otherwise the rater types any number, as a judge may."""
    low, high = rubric.scale_min, rubric.scale_max
    has_points = float(low).is_integer() and float(high).is_integer() and high - low > 1
    points = _list_whole_points(low, high, {}) if has_points else ()
    return [RaterQuestion("score", "Which score does this answer get?", "", low, high, points,
                   whole=bool(points))]  # fmt: skip


def _build_criterion_questions(rubric: Rubric) -> list[RaterQuestion]:
    return [
        RaterQuestion(name, name, criterion.get("description", ""), 0, 1, PASS_OR_FAIL, (None, name))
        for name, criterion in ((criterion["name"], criterion) for criterion in rubric.criteria)
    ]


def _build_label_question(rubric: Rubric) -> list[RaterQuestion]:
    points = tuple(
        ScalePoint(number, label["name"], label.get("description", ""), str(number) if number < 10 else "")
        for number, label in enumerate(rubric.labels, start=1)
    )
    return [RaterQuestion("label", "Which label fits this answer best?", "", 1, len(points), points)]


def _build_preference_question(rubric: Rubric) -> list[RaterQuestion]:
    return [RaterQuestion("better", "Which answer is better?", "", NEITHER, SECOND, BETTER)]


def find_end_keys(points: Sequence[ScalePoint]) -> list[str]:
    """Return the first and the last key of a number scale, or an empty list if the buttons show their keys."""
    keys = [point.key for point in points if point.key and not point.shows_key]
    return [keys[0], keys[-1]] if len(keys) > 1 else []


def render_rubric(queue: RatingQueue) -> str:
    """Return the rubric's turns in order, or "" if the queue rates dimensions."""
    if queue.rubric is None:
        return ""
    variables = {**judge_prompt.build_rubric_variables(queue.rubric.content), judge_prompt.VERDICT_FORM: ""}

    def substitute(match: re.Match[str]) -> str:
        name = match.group(1)
        return variables[name] if name in variables else f"[{PLACEHOLDERS.get(name, 'a detail of the question')}]"

    turns = [prompts.VARIABLE.sub(substitute, turn["content"]).strip() for turn in queue.rubric.messages]
    return BLANK_LINES.sub("\n\n", "\n\n".join(turn for turn in turns if turn))


def list_context_parts(item: Item, queue: RatingQueue) -> list[tuple[str, str]]:
    """Return the parts of an item that the rubric shows beside its question, as (heading, text) pairs.

    As for a judge, a part is included only if a turn of the rubric uses it.
    """
    if queue.rubric is None:
        return []
    parts = [("Reference answer", "target", item.target), ("Grading scheme", "grading_scheme", item.grading_scheme)]
    if queue.text_set is not None:
        text = queue.text_set.texts.filter(item=item).values_list("text", flat=True).first()
        parts.append(("Rubric of this question", judge_prompt.ITEM_RUBRIC, text or ""))
    variables = {name for turn in queue.rubric.messages for name in prompts.find_variables(turn["content"])}
    metadata = [(name.removeprefix(prompts.META), name) for name in sorted(variables) if name.startswith(prompts.META)]
    parts += [(title, name, str(item.metadata.get(title, ""))) for title, name in metadata]
    return [(title, text) for title, name, text in parts if name in variables and text]
