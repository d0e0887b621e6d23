"""The `adaptive` mapping of an experiment file, which defines points and when they stop. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from runs_app.bounds import ADAPTIVE
from runs_app.experiment_files.spec_types import INLINE, NAMED, Name, Strict, Text, choose_form_tag, within
from runs_app.stopping.rules import SHARE_FIELDS, WIDTH_FIELDS, Correction, StoppingRule

RATING = "rating"  # This scorer gives points of a scale; other scorers give right or wrong.
CATEGORY, POINT = "category", "point"
MAX_TASKS = 100
Parameters = Annotated[list[Annotated[Text, Field(min_length=1, max_length=80)]], Field(min_length=1, max_length=6)]
TaskName = Annotated[Text, Field(min_length=1, max_length=200)]


class TaskRule(Strict):
    """The settings of one task that differ from those of the design."""

    round: Annotated[int | None, within(ADAPTIVE["round"])] = None
    max: Annotated[int | None, within(ADAPTIVE["max"])] = None
    targetci: Annotated[float | None, within(ADAPTIVE["targetci"])] = None
    targetciht: Annotated[float | None, within(ADAPTIVE["targetciht"])] = None
    abortht: Annotated[float | None, within(ADAPTIVE["abortht"])] = None
    backoffht: Annotated[float | None, within(ADAPTIVE["backoffht"])] = None
    minci: Annotated[float | None, within(ADAPTIVE["minci"])] = None


class AdaptiveSpec(Strict):
    """The stopping rule of points, as for `StoppingRule`. A point gets `round` cases at a time, at most `max`.

    A point has the items of one category (`by: category`), or the cases of one point of a parametric space (`by:
    point`). With names of metadata, it has the items with the same values. With the scorer `rating`, the rule applies
    to the mean rating on one dimension, and half-widths are in points of its scale.

    tasks: settings that replace those of the design, by task. The task of a point is the category of its items.
    """

    by: Annotated[
        Annotated[Literal["category", "point"], Tag(NAMED)] | Annotated[Parameters, Tag(INLINE)],
        Discriminator(choose_form_tag),
    ]
    scorer: Name
    tasks: dict[TaskName, TaskRule] = Field(default={}, max_length=MAX_TASKS)
    round: Annotated[int, within(ADAPTIVE["round"])] = 32
    max: Annotated[int, within(ADAPTIVE["max"])] = 512
    targetci: Annotated[float | None, within(ADAPTIVE["targetci"])] = Field(default=None, validate_default=True)
    targetciht: Annotated[float | None, within(ADAPTIVE["targetciht"])] = None
    abortht: Annotated[float | None, within(ADAPTIVE["abortht"])] = None
    backoffht: Annotated[float | None, within(ADAPTIVE["backoffht"])] = None
    minci: Annotated[float, within(ADAPTIVE["minci"])] = 0.0
    confidence: Annotated[float, within(ADAPTIVE["confidence"])] = 0.95
    correction: Correction = "mapped"

    @field_validator("targetci")
    @classmethod
    def _require_target(cls, width: float | None, info: ValidationInfo) -> float | None:
        if width is None and not info.data.get("tasks"):
            raise PydanticCustomError("missing", "Field required")
        return width

    @field_validator("targetci", "targetciht", "minci")
    @classmethod
    def _check_width(cls, width: float | None, info: ValidationInfo) -> float | None:
        if width is not None and width > 1 and info.data.get("scorer") != RATING:
            raise ValueError(f"the half-width of an accuracy is a share between 0 and 1, not {width:g}")
        return width

    @model_validator(mode="after")
    def _check_rule(self) -> AdaptiveSpec:
        if self.round > self.max:
            raise ValueError(f"a round of {self.round} is above the maximum of {self.max} cases per point")
        if isinstance(self.by, list) and len(set(self.by)) < len(self.by):
            raise ValueError("by names a parameter twice")
        if self.is_rated and self.correction != "mapped":
            raise ValueError("correction corrects an accuracy for guessing; remove it for ratings")
        if self.tasks and isinstance(self.by, list):
            raise ValueError("tasks requires by: category or by: point")
        self.rule(self.max)
        for name in self.tasks:
            task = self.for_task(name)
            try:
                if task.round > task.max:
                    raise ValueError(f"a round of {task.round} is above the maximum of {task.max} cases per point")
                task.rule(task.max)
            except ValueError as error:
                raise ValueError(f"tasks.{name}: {error}") from None
        return self

    def for_task(self, task: str) -> AdaptiveSpec:
        """Return the rule of the points of one task, without settings by task."""
        changes = self.tasks[task].model_dump(exclude_none=True) if task in self.tasks else {}
        return self.model_copy(update={**changes, "tasks": {}})

    def for_point(self, key: Mapping[str, Any]) -> AdaptiveSpec:
        """Return the rule of a point, by its key."""
        return self.for_task(get_task_name(key)) if self.tasks else self

    def limits(self) -> dict[str, dict[str, int]]:
        """Return the maximum and the round of each task with its own settings."""
        rules = {name: self.for_task(name) for name in self.tasks}
        return {name: {"max": rule.max, "round": rule.round} for name, rule in rules.items()}

    def rule(self, maximum: int) -> StoppingRule:
        """Return the rule for a point with at most `maximum` cases."""
        names = (*SHARE_FIELDS, *WIDTH_FIELDS, "confidence", "correction")
        settings = {name: getattr(self, name) for name in names}
        return StoppingRule(maximum=min(self.max, maximum), widest=math.inf if self.is_rated else 1.0, **settings)

    @property
    def is_rated(self) -> bool:
        """Return whether points have a mean rating instead of an accuracy."""
        return self.scorer == RATING

    @property
    def names(self) -> list[str]:
        """Return the names of the values that define a point: `category`, `point`, or the parameters."""
        return self.by if isinstance(self.by, list) else [self.by]

    @property
    def content(self) -> dict[str, Any]:
        """Return the content in the format of a file, including default values."""
        content = self.model_dump(exclude_none=True)
        return content if self.tasks else {name: value for name, value in content.items() if name != "tasks"}


def get_task_name(key: Mapping[str, Any]) -> str:
    """Return the task of a point's key, which is the category of its items; "" for points by parameters."""
    return str(key.get("task") or key.get(CATEGORY) or "")
