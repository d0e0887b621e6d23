"""The experiment file: its shape, and errors that name the key. Pure: other modules look up the names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from evalsite.lib.hints import did_you_mean
from evalsite.lib.text.strict_yaml import FileError, join_path, parse_yaml
from runs_app.bounds import BOUNDS
from runs_app.planning.adaptive_spec import AdaptiveSpec
from runs_app.planning.model_draw import Draw, DrawSpec
from runs_app.planning.spec_types import (
    DRAWN,
    INLINE,
    NAMED,
    Labels,
    Money,
    Name,
    Reference,
    Settings,
    Strict,
    Text,
    tag_of_form,
    within,
)

PROVIDER_DEFAULT = "provider-default"
MOST_PROBLEMS = 20
MOST_PLACES = 3  # Places named in a hint about a misplaced key.


class SpecError(ValueError):
    """An experiment file that cannot be used. Each of `problems` is a sentence that names the key."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(self.problems))


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
    def _one_form(self) -> PromptSpec:
        if (self.user is None) == (self.messages is None):
            raise ValueError("give either user (and system) or messages")
        if self.messages is not None and self.system:
            raise ValueError("system belongs into messages here, as a turn of role system")
        return self

    @property
    def turns(self) -> list[dict[str, str]]:
        """Return the messages. Line ends around a text are removed, because YAML's block form adds them."""
        if self.messages is not None:
            return [turn.model_dump() for turn in self.messages]
        said = [("system", self.system.strip("\n")), ("user", (self.user or "").strip("\n"))]
        return [{"role": role, "content": text} for role, text in said if text or role == "user"]


SAMPLER, DIMENSION, EXPERIMENT = BOUNDS["sampler"], BOUNDS["dimension"], BOUNDS["experiment"]


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


class BudgetSpec(Strict):
    max_usd: Money | None = None
    confirm_above_usd: Money | None = None
    policy: Literal["dev", "full"] | None = None
    dev_items: Annotated[int | None, within(EXPERIMENT["dev_items"])] = None
    dev_samples: Annotated[int | None, within(EXPERIMENT["dev_samples"])] = None


DATASET = "dataset"  # As the value of `adaptive`: the stopping rules of the dataset's space.


def _is_draw(value: Any) -> bool:
    return isinstance(value, DrawSpec) or (isinstance(value, dict) and "draw" in value)


# A name, or the thing itself as a mapping. The form is decided first, so that an error describes the intended form.
Inline = TypeVar("Inline")
Part = TypeVar("Part", bound=Strict)
Either = Annotated[Annotated[Reference, Tag(NAMED)] | Annotated[Inline, Tag(INLINE)], Discriminator(tag_of_form)]


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
    """A rubric in a file of its own. It may also be a template for item rubrics."""

    kind: Literal["score", "criteria", "label", "pairwise", "writer"] = "score"  # type: ignore[assignment]


JUDGING_SAMPLER = SamplerSpec(name="judging", temperature=0, max_tokens=1024)


class GraderSpec(Strict):
    """A judge model with a rubric.

    Without a sampler it uses temperature 0. A draw of models makes one judge for each.
    """

    name: Name
    model: Annotated[
        Annotated[Reference, Tag(NAMED)] | Annotated[ModelSpec, Tag(INLINE)] | Annotated[DrawSpec, Tag(DRAWN)],
        Discriminator(lambda value: DRAWN if _is_draw(value) else tag_of_form(value)),
    ]
    rubric: Either[RubricSpec]
    sampler: Either[SamplerSpec] = JUDGING_SAMPLER
    texts: Reference | None = None
    on_empty: Literal["skip", "grade", "zero"] = "skip"
    longest_answer: int | None = Field(default=None, ge=1)


class ScorerSpec(Strict):
    """A scoring rule with at most one parameter."""

    name: Name
    pattern: Text | None = None
    field: Text | None = None
    tolerance: float | None = None

    @property
    def content(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class GradeSpec(Strict):
    scorers: list[
        Annotated[
            Annotated[Text, Tag(NAMED)] | Annotated[ScorerSpec, Tag(INLINE)],
            Discriminator(tag_of_form),
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
        judges = {name: made.content for name, made in self.judges.items()}
        return ({"models": self.models.content} if self.models else {}) | ({"judges": judges} if judges else {})


class ExperimentSpec(Strict):
    """An experiment file. None is an unset value, which takes the site's default."""

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
    samples: Annotated[int | None, within(EXPERIMENT["samples"])] = None
    cache: bool | None = None
    cache_buster: bool | None = None
    batch: bool | None = None
    sequential: bool | None = None
    max_concurrency: Annotated[int | None, within(EXPERIMENT["max_concurrency"])] = None
    priority: Annotated[int | None, within(EXPERIMENT["priority"])] = None
    request_timeout_s: Annotated[float | None, within(EXPERIMENT["request_timeout_s"])] = None
    max_attempts: Annotated[int | None, within(EXPERIMENT["max_attempts"])] = None
    backoff_s: Annotated[float | None, within(EXPERIMENT["backoff_s"])] = None
    max_backoff_s: Annotated[float | None, within(EXPERIMENT["max_backoff_s"])] = None
    on_empty: Literal["keep", "rerun", "skip"] | None = None
    on_unreadable: Literal["keep", "rerun"] | None = None
    lease_s: Annotated[float | None, within(EXPERIMENT["lease_s"])] = None
    stop_failure_rate: Annotated[float | None, within(EXPERIMENT["stop_failure_rate"])] = None
    stop_after_attempts: Annotated[int | None, within(EXPERIMENT["stop_after_attempts"])] = None
    adaptive: (
        Annotated[
            Annotated[Literal["dataset"], Tag(NAMED)] | Annotated[AdaptiveSpec, Tag(INLINE)],
            Discriminator(tag_of_form),
        ]
        | None
    ) = None
    budget: BudgetSpec = BudgetSpec()
    grade: GradeSpec = GradeSpec()
    drawn: DrawsSpec = DrawsSpec()


class ExtensionSpec(Strict):
    """An extension of a launched design: some keys of an experiment file.

    `settings` are all other keys of a full file.
    """

    dataset: Reference | None = None
    models: list[Either[ModelSpec]] = []
    prompts: list[Either[PromptSpec]] = []
    samplers: list[Either[SamplerSpec]] = []
    dimensions: list[Either[DimensionSpec]] = []
    samples: Annotated[int | None, within(EXPERIMENT["samples"])] = None
    settings: Settings = Field(default={}, exclude=True)


def read_extension_yaml(text: str) -> ExtensionSpec:
    """Return the extension from a file: a whole edited experiment file, or only the keys of an ExtensionSpec."""
    content = _parsed(text)
    if isinstance(content, dict) and "experiment" in content:
        return _extension_of(read_spec(content))
    if not isinstance(content, dict) or "settings" in content:
        raise SpecError(["an extension is a mapping with models, prompts, samplers, dimensions or samples"])
    return _validated(ExtensionSpec, content)


def _extension_of(spec: ExperimentSpec) -> ExtensionSpec:
    if isinstance(spec.models, DrawSpec):
        raise SpecError(["models: a draw is made when an experiment is created; name the models that join"])
    axes = {name: getattr(spec, name) for name in ("models", "prompts", "samplers", "dimensions")}
    others = spec.model_dump(exclude_none=True, exclude={*axes, "experiment", "dataset", "samples"})
    settings = {
        **{key: value for key, value in others.items() if not isinstance(value, dict)},
        **{f"budget.{key}": value for key, value in others["budget"].items()},
        **({"adaptive": spec.adaptive.content} if isinstance(spec.adaptive, AdaptiveSpec) else {}),
        **({"grade.scorers": spec.grade.written} if spec.grade.scorers else {}),
    }
    return ExtensionSpec.model_construct(dataset=spec.dataset, samples=spec.samples, settings=settings, **axes)


def read_yaml(text: str) -> ExperimentSpec:
    """Return the specification from an experiment file or a manifest. Raise SpecError for anything else."""
    return read_spec(_parsed(text))


def read_section(text: str, spec: type[Part], what: str) -> Part:
    """Return a part of an experiment file, such as a prompt, from a file of its own.

    Raise SpecError; each path in it starts with `what`.
    """
    content = _parsed(text)
    if not isinstance(content, dict):
        raise SpecError([f"{what}: the file is a mapping that starts with name: NAME"])
    try:
        return spec.model_validate(content)
    except ValidationError as error:
        raise SpecError([f"{what}.{sentence}" for sentence in _sentences(error, spec)]) from None


def _parsed(text: str) -> Any:
    """Return the content of a file, or the design in a manifest. Raise SpecError if it is not YAML."""
    try:
        content = parse_yaml(text)
    except FileError as error:
        raise SpecError([str(error)]) from None
    return content["design"] if isinstance(content, dict) and "design" in content else content


def read_spec(content: Any) -> ExperimentSpec:
    """Return the specification from a mapping, as `read_yaml` does from text."""
    if not isinstance(content, dict):
        raise SpecError(["an experiment file is a mapping that starts with experiment: NAME"])
    return _validated(ExperimentSpec, content)


Spec = TypeVar("Spec", bound=Strict)


def _validated(kind: type[Spec], content: Any) -> Spec:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise SpecError(_sentences(error, kind)) from None


def _sentences(error: ValidationError, root: type[Strict]) -> list[str]:
    """Return the first problems as sentences. Each needs a search for a hint, so thousands would take too long."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    more = [f"and {len(found) - MOST_PROBLEMS:,} more problems"] if len(found) > MOST_PROBLEMS else []
    return [_sentence(problem, root) for problem in found[:MOST_PROBLEMS]] + more


TAGS = (NAMED, INLINE, DRAWN)


def _sentence(problem: Any, root: type[Strict]) -> str:
    """Return a sentence such as `prompts[1].usr: unknown key; did you mean user?`."""
    path = join_path([step for step in problem["loc"] if step not in TAGS])
    if problem["type"] == "extra_forbidden":
        *place, key = problem["loc"]
        hint = _hint_for(str(key)[:80], _specs_at(place, root))
        return f"{path}: unknown key" + (f"; {hint}" if hint else "")
    message = problem["msg"].removeprefix("Value error, ")
    return f"{path}: {message[:1].lower()}{message[1:]}"


def _hint_for(key: str, specs: Collection[type[Strict]]) -> str:
    """Return a hint: a similar key that is allowed here, or the inner mapping that takes this key."""
    known = [name for spec in specs for name in _fields_of(spec)]
    if hint := did_you_mean(key, known):
        return hint
    inner = [
        name for spec in specs for name, annotation in _fields_of(spec).items()
        if any(key in _fields_of(one) for one in _specs_in(annotation))
    ]  # fmt: skip
    return f"it belongs under {' or '.join(dict.fromkeys(inner))}" if 0 < len(inner) <= MOST_PLACES else ""


def _specs_at(place: Sequence[str | int], root: type[Strict]) -> list[type[Strict]]:
    """Return the specifications that are allowed at this place of a file of type `root`."""
    specs: list[type[Strict]] = [root]
    for step in place:
        found = [_specs_in(fields[str(step)]) for spec in specs if str(step) in (fields := _fields_of(spec))]
        if found:
            specs = list(dict.fromkeys(chain.from_iterable(found)))
        elif step in TAGS:
            specs = [spec for spec in specs if (spec is DrawSpec) == (step == DRAWN)]
    return specs


def _fields_of(spec: type[Strict]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in spec.model_fields.items()}


def _specs_in(annotation: Any) -> list[type[Strict]]:
    """Return the specifications within an annotation such as `list[Either[PromptSpec]]`."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return [annotation]
    return [spec for part in get_args(annotation) for spec in _specs_in(part)]
