"""The specification of an experiment file. Pure: other modules look up the names."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Discriminator, Field, Tag, create_model, model_validator

from runs_app.bounds import BOUNDS
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.experiment_files.model_draw import Draw, DrawSpec
from runs_app.experiment_files.spec_types import (
    DRAWN,
    INLINE,
    NAMED,
    Labels,
    Money,
    Name,
    Reference,
    Scalar,
    Settings,
    Strict,
    Text,
    choose_form_tag,
    within,
)
from runs_app.experiment_options import BUDGET, ExperimentOption, list_options

PROVIDER_DEFAULT = "provider-default"


class ModelSpec(Strict):
    name: Name
    endpoint: Name
    model: Text = Field(min_length=1, max_length=200)


class TurnSpec(Strict):
    role: Literal["system", "user", "assistant"]
    content: Text


class PromptSpec(Strict):
    """A prompt: either `user` with an optional `system`, or all turns as `messages`."""

    name: Name
    system: Text = ""
    user: Text | None = None
    messages: list[TurnSpec] | None = None
    answer_format: Literal["text", "rating", "rating_with_reasoning"] = "text"

    @model_validator(mode="after")
    def _check_one_form(self) -> PromptSpec:
        if (self.user is None) == (self.messages is None):
            raise ValueError("use either user (and system) or messages")
        if self.messages is not None and self.system:
            raise ValueError("with messages, write system as a turn of role system")
        return self

    @property
    def turns(self) -> list[dict[str, str]]:
        """Return the messages. Strip line ends around texts, because YAML's block style adds them."""
        if self.messages is not None:
            return [turn.model_dump() for turn in self.messages]
        texts = [("system", self.system.strip("\n")), ("user", (self.user or "").strip("\n"))]
        return [{"role": role, "content": text} for role, text in texts if text or role == "user"]


SAMPLER, DIMENSION = BOUNDS["sampler"], BOUNDS["dimension"]


class SamplerSpec(Strict):
    name: Name
    temperature: Annotated[float | None, within(SAMPLER["temperature"])] = None
    top_p: Annotated[float | None, within(SAMPLER["top_p"])] = None
    max_tokens: Annotated[int | None, within(SAMPLER["max_tokens"])] = None
    seed: Annotated[int | None, within(SAMPLER["seed"])] = None
    reasoning_effort: Text = ""
    extra: Settings = {}


class DimensionSpec(Strict):
    name: Name
    title: Text = Field(default="", max_length=120)
    instructions: Text
    min: Annotated[int, within(DIMENSION["scale_min"])] = 1
    max: Annotated[int, within(DIMENSION["scale_max"])] = 7
    labels: Labels = {}


def _build_options_spec(group: str | None) -> Any:
    """Return the base of a spec with a key for each option of this group, by default of those at the top of a file."""
    keys: dict[str, Any] = {}
    for option in list_options(group=group):
        kind: Any = Money if option.kind is Decimal else option.kind
        if option.choices:
            kind = Literal[tuple(value for value, _ in option.choices)]
        elif option.longest:
            kind = Annotated[Text, Field(max_length=option.longest)]
        elif option.bound and kind is not Money:
            kind = Annotated[kind, within(option.bound)]
        keys[option.key.rpartition(".")[2]] = (kind | None, None)
    return create_model("Options", __base__=Strict, **keys)


class BudgetSpec(_build_options_spec(BUDGET)):  # type: ignore[misc]
    """The budget of a design, with its policy."""


DATASET = "dataset"  # As the value of `adaptive`: the stopping rules of the dataset's space.


def _is_draw(value: Any) -> bool:
    return isinstance(value, DrawSpec) or (isinstance(value, dict) and "draw" in value)


# A name or an inline definition. The tag is chosen first, so that an error describes the intended form.
Inline = TypeVar("Inline")
Either = Annotated[Annotated[Reference, Tag(NAMED)] | Annotated[Inline, Tag(INLINE)], Discriminator(choose_form_tag)]


class CriterionSpec(Strict):
    name: Text = Field(min_length=1, max_length=120)
    description: Text = ""
    weight: float = Field(default=1, gt=0)


class LabelSpec(Strict):
    name: Text = Field(min_length=1, max_length=120)
    description: Text = ""
    score: float


class RubricSpec(PromptSpec):
    """A prompt for a judge, with the kind of its verdict and the settings of that kind."""

    answer_format: Literal["text"] = "text"
    kind: Literal["score", "criteria", "label", "pairwise"] = "score"
    min: float = 0
    max: float = 1
    criteria: list[CriterionSpec] = []
    labels: list[LabelSpec] = []


class WrittenRubricSpec(RubricSpec):
    """A rubric in its own file. It can also be a template for item rubrics."""

    kind: Literal["score", "criteria", "label", "pairwise", "writer"] = "score"  # type: ignore[assignment]


JUDGING_SAMPLER = SamplerSpec(name="judging", temperature=0, max_tokens=1024)


class GraderSpec(Strict):
    """A judge model with a rubric. The default sampler has temperature 0. A draw of models creates one judge each."""

    name: Name
    model: Annotated[
        Annotated[Reference, Tag(NAMED)] | Annotated[ModelSpec, Tag(INLINE)] | Annotated[DrawSpec, Tag(DRAWN)],
        Discriminator(lambda value: DRAWN if _is_draw(value) else choose_form_tag(value)),
    ]
    rubric: Either[RubricSpec]
    sampler: Either[SamplerSpec] = JUDGING_SAMPLER
    texts: Reference | None = None
    on_empty: Literal["skip", "grade", "zero"] = "skip"
    longest_answer: int | None = Field(default=None, ge=1)


class ScorerSpec(Strict):
    """A scoring rule with its parameters. The scorer declares their names, types and bounds, and checks them."""

    model_config = ConfigDict(defer_build=True, extra="allow")
    __pydantic_extra__: dict[str, Scalar]

    name: Name

    @property
    def content(self) -> dict[str, Any]:
        return self.model_dump()


class GradeSpec(Strict):
    scorers: list[
        Annotated[
            Annotated[Text, Tag(NAMED)] | Annotated[ScorerSpec, Tag(INLINE)],
            Discriminator(choose_form_tag),
        ]
    ] = []
    graders: list[Either[GraderSpec]] = []

    @property
    def written(self) -> list[str | dict[str, Any]]:
        """Return the scorers as texts and mappings."""
        return [scorer if isinstance(scorer, str) else scorer.content for scorer in self.scorers]


class DrawsSpec(Strict):
    """Finished draws: of the models, and of judges' models by grader name."""

    models: Draw | None = None
    judges: dict[str, Draw] = {}

    @property
    def content(self) -> dict[str, Any]:
        judges = {name: draw.content for name, draw in self.judges.items()}
        return ({"models": self.models.content} if self.models else {}) | ({"judges": judges} if judges else {})


class ExperimentSpec(_build_options_spec(None)):  # type: ignore[misc]
    """An experiment file. None means the site's default."""

    experiment: Name
    title: Text = Field(default="", max_length=200)
    description: Text = ""
    dataset: Reference
    dataset_hash: Text = ""
    models: Annotated[
        Annotated[list[Either[ModelSpec]], Field(min_length=1), Tag(NAMED)] | Annotated[DrawSpec, Tag(DRAWN)],
        Discriminator(lambda value: DRAWN if isinstance(value, dict | DrawSpec) else NAMED),
    ]
    prompts: list[Either[PromptSpec]] = Field(min_length=1)
    samplers: list[Either[SamplerSpec]] = Field(default=[PROVIDER_DEFAULT], min_length=1)
    dimensions: list[Either[DimensionSpec]] = []
    adaptive: (
        Annotated[
            Annotated[Literal["dataset"], Tag(NAMED)] | Annotated[AdaptiveSpec, Tag(INLINE)],
            Discriminator(choose_form_tag),
        ]
        | None
    ) = None
    budget: BudgetSpec = BudgetSpec()
    grade: GradeSpec = GradeSpec()
    drawn: DrawsSpec = DrawsSpec()

    def get_option(self, option: ExperimentOption) -> Any:
        """Return the value of an option, or None if the file does not set it."""
        return getattr(self.budget if option.group == BUDGET else self, option.key.rpartition(".")[2])


class ExtensionSpec(Strict):
    """An extension of a launched design: some keys of an experiment file. `settings` are the other keys of the file."""

    dataset: Reference | None = None
    models: list[Either[ModelSpec]] = []
    prompts: list[Either[PromptSpec]] = []
    samplers: list[Either[SamplerSpec]] = []
    dimensions: list[Either[DimensionSpec]] = []
    samples: Annotated[int | None, within(BOUNDS["experiment"]["samples"])] = None
    settings: Settings = Field(default={}, exclude=True)
