"""The shapes of JSON columns, as pages and commands read them. Pure.

The keys of SHAPES are columns, `table.column`, or tables for shapes that several columns of a row share. Keys that no
page reads are not checked. A column without a shape may hold any JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from datasets_app.parametric.spec import MAX_COUNT
from evalsite.lib.text.strict_yaml import join_path
from runs_app.bounds import BOUNDS
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.experiment_files.specs import DrawsSpec
from runs_app.llm import parameters, prompts, rubric_checks
from runs_app.scorers.scorers import find_parameter_problems, read_scorer

LARGEST = 1_000_000_000
Number = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Scalar = Text | Flag | int | Number | None
Json = dict[str, Any]


class Shape(BaseModel):
    """A mapping of which these keys are read. Others may be there."""

    model_config = ConfigDict(defer_build=True, extra="allow", strict=True, allow_inf_nan=False)


def find_mismatch(shape: type[Shape] | TypeAdapter[Any], value: Any) -> tuple[str, str] | None:
    """Return the path of the first part of a value that has not its shape, and why; None if every part has it."""
    try:
        shape.validate_python(value) if isinstance(shape, TypeAdapter) else shape.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return join_path(first["loc"])[:120], first["msg"]
    return None


# --- datasets ---------------------------------------------------------------------------------------------------------


class Recipe(Shape):
    strategy: Text = ""
    n: Count | None = None
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    definition_hash: Text = ""
    parametric: Flag = False


class Metadata(Shape):
    task: Text = ""
    point: Text | None = None
    params: dict[str, Scalar | list[Scalar]] | None = None
    guess_chance: Annotated[float, Field(ge=0, le=1)] | None = None


class SpacePoint(Shape):
    task: Text
    base_task: Text
    params: dict[str, Any]
    count: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    degree: int
    density: Text
    stopping: dict[str, Number | None] = {}


class SpaceGenerator(Shape):
    task: Text


class SpaceDefinition(Shape):
    seed: int
    points: list[SpacePoint]
    generators: list[SpaceGenerator]


def _parse_definition(text: Any) -> Any:
    if not isinstance(text, str):
        raise ValueError("is not a text")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


# --- designs ----------------------------------------------------------------------------------------------------------


def _check_scorer(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise ValueError("is not the name of a scorer, or a mapping with its name")
    read_scorer(value)
    return value


def _check_adaptive(value: Any) -> Any:
    return AdaptiveSpec.model_validate(value) if value else value


class TurnShape(Shape):
    role: Text
    content: Text


class ConditionPrompt(Shape):
    messages: list[TurnShape]
    answer_format: Literal["text", "rating", "rating_with_reasoning"]


class ConditionModel(Shape):
    provider: Text
    model: Text


def _check_settings(settings: Any) -> Any:
    if not isinstance(settings, dict):
        raise ValueError("is not a mapping of parameters")
    own = {name: value for name, value in settings.items() if name in parameters.FIELDS}
    for name, value in own.items():
        bound = BOUNDS["sampler"].get(name)
        if not parameters.FIELDS[name].accepts(value) or (bound is not None and not bound.contains(value)):
            raise ValueError(f"{name} must be {bound or parameters.FIELDS[name].expected}")
    if problems := parameters.find_extra_problems({name: settings[name] for name in settings.keys() - own.keys()}):
        raise ValueError(" ".join(problems))
    return settings


class ConditionRubric(Shape):
    kind: Literal["score", "criteria", "label", "pairwise", "writer"] = "score"


class ConditionContent(Shape):
    model: ConditionModel
    prompt: ConditionPrompt
    sampler: Annotated[dict[str, Any], AfterValidator(_check_settings)]
    rubric: ConditionRubric = ConditionRubric()


class ConditionRow(Shape):
    """The prompt of the design itself obeys its rules. A judge's obeys those of its rubric. Programs have their own."""

    stage: Literal["generate", "judge", "rubric", "external"] = "generate"
    prompt_id: int | None = None
    content: ConditionContent

    @model_validator(mode="after")
    def _check_prompt(self) -> ConditionRow:
        if (self.stage == "generate") != (self.prompt_id is not None):
            raise ValueError("a condition of the design has a prompt, and no other has one")
        messages = [turn.model_dump() for turn in self.content.prompt.messages]
        if self.stage == "generate":
            problems = prompts.validate(messages) or ([] if messages else ["A prompt needs a turn."])
        elif self.stage in ("judge", "external") and not messages:
            problems = []  # A judge of another tool, whose prompt its study does not have. It never judges again.
        else:
            kind = "writer" if self.stage == "rubric" else self.content.rubric.kind
            problems = rubric_checks.find_template_problems(kind, messages)
        if problems:
            raise ValueError(" ".join(problems))
        return self


class Launch(Shape):
    pilot: Count | None = None
    policy: Text | None = None
    wave: Text | None = None
    by: Text | None = None
    conditions: list[Text] | None = None


class ManifestContent(Shape):
    launch: Launch = Launch()
    evalsite: dict[str, Any] | None = None
    packages: dict[str, Any] | None = None


# --- runs -------------------------------------------------------------------------------------------------------------


def _check_moment(value: Any) -> Any:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    if moment is None or moment.tzinfo is None or not 1970 < moment.year < 9999:
        raise ValueError("is not a time between 1970 and 9998 with its offset")
    return value


Moment = Annotated[str, BeforeValidator(_check_moment)]


class Round(Shape):
    at: Moment
    asked: Count | None = None
    graded_by: Text = ""
    effective: Number | None = None
    reason: Text = ""
    status: Text = ""


# --- grades -----------------------------------------------------------------------------------------------------------


class GradeConditionRow(Shape):
    """The parameters by which pages describe a way to grade, and the rows that its kind needs."""

    kind: Literal["rule", "judge", "panel", "adjudicated", "person"] = "rule"
    scorer: Text = ""
    parameters: Json = {}
    grader_id: int | None = None
    rubric_id: int | None = None
    panel_id: int | None = None
    assignment_id: int | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> GradeConditionRow:
        needed = {"judge": ("grader_id", "rubric_id"), "panel": ("panel_id",), "person": ("assignment_id", "rubric_id")}
        is_foreign_judge = self.kind == "judge" and "judge" in self.parameters and self.grader_id is None
        for name in () if is_foreign_judge else needed.get(self.kind, ()):
            if getattr(self, name) is None:
                raise ValueError(f"a {self.kind} needs {name}")
        if self.kind == "rule" and "imported" not in self.parameters:
            texts = TypeAdapter(dict[str, Text]).validate_python(self.parameters)
            if problems := find_parameter_problems(self.scorer, texts):
                raise ValueError(" ".join(problems))
        shapes: Mapping[str, type[Shape]] = {"panel": PanelRule, "adjudicated": ScaleEnds, "person": PersonNames}
        if self.kind in shapes:
            shapes[self.kind].model_validate(self.parameters)
        return self


class PanelRule(Shape):
    rule: Literal["mean", "median", "majority"] = "mean"
    members: list[Annotated[int, Field(ge=1)]] = []
    quorum: Count | None = None


class ScaleEnds(Shape):
    scale_min: Number
    scale_max: Number

    @model_validator(mode="after")
    def _check_order(self) -> ScaleEnds:
        if self.scale_min >= self.scale_max:
            raise ValueError("a scale ends above its start")
        return self


class PersonNames(Shape):
    rater: Text | int
    queue: Text


class Detail(Shape):
    """The parts of a verdict that the page of an answer shows."""

    criteria: dict[str, Flag | int] = {}
    members: dict[str, Number | None] = {}
    votes: Count | None = None
    seats: Count | None = None
    label: Text | None = None
    code: Text | None = None
    flags: list[Text] = []
    record: Json | None = None

    @model_validator(mode="after")
    def _check_votes(self) -> Detail:
        if self.votes is not None and self.seats is None:
            raise ValueError("votes need seats")
        return self


class FormerVerdict(Shape):
    score: Number | None = None
    winner: Literal["", "a", "b", "tie"] | None = None
    created_at: Moment
    reasoning: Text = ""
    parse_error: Text = ""
    detail: Detail | None = None


class QueueRow(Shape):
    """A queue over answers names its experiment; a queue over items does not."""

    subject: Literal["items", "answers"] = "items"
    only_items: list[Text] = []
    attention_checks: dict[str, list[Number]] = {}


class RubricLabel(Shape):
    name: Text
    description: Text = ""
    score: Number | None = None


class RubricCriterion(Shape):
    name: Text
    description: Text = ""
    weight: Number = 1


class PointRow(Shape):
    """The counts of a point: an interval needs no more right answers, and no more guesses, than scored answers."""

    n_correct: Count = 0
    n_total: Count = 0
    guess_chances: Number = 0

    @model_validator(mode="after")
    def _check_counts(self) -> PointRow:
        if not (self.n_correct <= self.n_total and 0 <= self.guess_chances <= self.n_total):
            raise ValueError("n_correct and guess_chances are at most n_total")
        return self


COLUMNS: Mapping[str, Any] = {
    "datasets_app_dataset.mapping": dict[str, Text | list[Text] | None],
    "datasets_app_dataset.recipe": Recipe,
    "datasets_app_item.choices": list[Text],
    "datasets_app_item.metadata": Metadata,
    "datasets_app_parametricspace.task_files": dict[str, Text],
    "datasets_app_parametricspace.definition": Annotated[SpaceDefinition, BeforeValidator(_parse_definition)],
    "runs_app_prompt.messages": list[TurnShape],
    "runs_app_dimension.labels": dict[str, Text],
    "runs_app_sampler.extra": Json,
    "runs_app_experiment.scorers": list[Annotated[Any, AfterValidator(_check_scorer)]],
    "runs_app_experiment.graders": list[Text],
    "runs_app_experiment.adaptive": Annotated[Json, AfterValidator(_check_adaptive)],
    "runs_app_experiment.draws": DrawsSpec,
    "runs_app_condition": ConditionRow,
    "runs_app_manifest.content": ManifestContent,
    "runs_app_run.errors": dict[str, Count],
    "runs_app_point": PointRow,
    "runs_app_point.key": dict[str, Scalar | list[Scalar]],
    "runs_app_point.rounds": list[Round],
    "grading_app_rubric.messages": list[TurnShape],
    "grading_app_rubric.criteria": list[RubricCriterion],
    "grading_app_rubric.labels": list[RubricLabel],
    "grading_app_gradecondition": GradeConditionRow,
    "grading_app_grading.detail": Detail,
    "grading_app_supersededverdict.content": FormerVerdict,
    "grading_app_ratingqueue": QueueRow,
}
SHAPES: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(shape) for name, shape in COLUMNS.items()}
