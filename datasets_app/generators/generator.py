"""The parts of a task: parameters, cases, instructions and answer rule. Pure.

A task is one module of this package that ends with `GENERATOR = Generator(...)`. `registry` finds it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticUndefined

from datasets_app.generators.answer_rules import AnswerRule
from evalsite.lib.text.names import did_you_mean

COUNT = "count"  # The number of cases to draw. It belongs to the point and never changes the cases.
MAX_REPEATS = 1000  # After so many repeated draws in a row, a point has hardly another case.
Harder = Literal["higher", "lower", "other", "neutral"]


class ParamError(ValueError):
    """Unknown or invalid parameters. Each of `problems` is a sentence that starts with the parameter's name."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class Params(BaseModel):
    """The base of every task's parameters: unknown names are errors, and the text "3" is not the number 3."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def declare_param(default: Any, description: str, *, harder: Harder, **bounds: Any) -> Any:
    """Return a parameter: its default, one line of help, and the values that make a case harder.

    harder: "higher" or "lower" values; "other" if some options are harder, as the help says; "neutral" if the effect
    differs between models.
    """
    return Field(default, description=description, json_schema_extra={"harder": harder}, **bounds)


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """One parameter, described for a form. `options` is empty unless `kind` is "choice"."""

    name: str
    kind: Literal["integer", "number", "choice", "switch"]
    default: int | float | str | bool
    help: str
    harder: Harder
    minimum: float | None = None
    maximum: float | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One question with its only correct answer.

    choices: the allowed answers, with the target exactly once; None for free text.
    genresult: the generator's own facts about the case, as JSON.
    """

    input: str
    target: str
    choices: tuple[str, ...] | None = None
    genresult: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.choices is not None and (self.choices.count(self.target) != 1 or len(set(self.choices)) < 2):
            raise ValueError(f"the target {self.target!r} must occur exactly once in the choices {self.choices!r}")

    @property
    def guess_chance(self) -> Fraction:
        """Return the chance that a uniform draw from the choices is correct; 0 for free text.

        Free text has no finite set of answers to guess from. ReasonScape's records use the same convention.
        """
        return Fraction(1, len(self.choices)) if self.choices else Fraction(0)


@dataclass(frozen=True, slots=True)
class Instructions:
    """The text before a case. `task` says what to do; `form` describes the final answer."""

    task: str
    form: str

    @property
    def direct(self) -> str:
        """Return the instruction to answer immediately."""
        return f"{self.task} Respond with only Final Answer: {self.form}"

    @property
    def stepwise(self) -> str:
        """Return the instruction to reason first. ReasonScape's record of the task movies has this sentence."""
        return f"{self.task} Think step by step, then respond with Final Answer: {self.form}"

    @property
    def worked(self) -> str:
        """Return the instruction that precedes worked examples."""
        return f"{self.task} Reason as in the examples, then respond with Final Answer: {self.form}"


def format_final_line(target: str) -> str:
    """Return the line in which an example states its answer."""
    return f"Final Answer: {target}"


@dataclass(frozen=True, slots=True)
class Edition:
    """The way in which one version of a task draws its cases. is_distinct: repeated cases are left out."""

    draw: Callable[[Any, Random], Case]
    is_distinct: bool = True


@dataclass(frozen=True, slots=True)
class Generator:
    """A task: it draws cases from a random stream, and describes itself for pages and prompts.

    version: part of every dataset's definition. Raise it whenever the same parameters and seed give other cases, and
    add the previous version to `earlier`. A space that names it still gets its cases.
    draw: returns the next case. All its randomness comes from the given stream.
    explain: returns the reasoning that leads to a case's target, for examples in prompts.
    data_hash: the hash of the shipped facts that the cases depend on, or "".
    vary_instructions: returns the instructions at these parameters, if they differ from `instructions`.
    """

    name: str
    title: str
    version: int
    params: type[Params]
    draw: Callable[[Any, Random], Case]
    explain: Callable[[Case], str]
    instructions: Instructions
    answer: AnswerRule
    data_hash: Callable[[], str] = lambda: ""
    earlier: Mapping[int, Edition] = field(default_factory=dict)
    vary_instructions: Callable[[Any], Instructions] | None = None

    @property
    def versions(self) -> tuple[int, ...]:
        """Return the versions whose cases can be drawn, in ascending order."""
        return (*sorted(self.earlier), self.version)

    def read_params(self, values: Mapping[str, Any]) -> Any:
        """Return the validated parameters, with defaults for absent ones. `count` is ignored.

        Raise ParamError, which names each invalid parameter.
        """
        try:
            return self.params.model_validate({name: value for name, value in values.items() if name != COUNT})
        except ValidationError as error:
            raise ParamError([self._describe_problem(problem) for problem in error.errors()]) from None

    def get_edition(self, version: int | None) -> Edition:
        """Return how this version draws its cases; the newest without a version."""
        return Edition(self.draw) if version in (None, self.version) else self.earlier[version]

    def cases(self, params: Params, rng: Random, version: int | None = None) -> Iterator[Case]:
        """Yield different cases, until MAX_REPEATS draws in a row repeat earlier ones.

        Cases are equal if their texts are. They share one stream, so the first n cases are always the same.
        version: of `versions`; None for the newest. Earlier versions may yield repeated cases, without end.
        """
        edition = self.get_edition(version)
        seen: set[bytes] = set()  # Digests, because a point may have 100,000 long texts.
        repeats = 0
        while repeats < MAX_REPEATS:
            case = edition.draw(params, rng)
            if edition.is_distinct:
                digest = hashlib.blake2b(case.input.encode(), digest_size=16).digest()
                if digest in seen:
                    repeats += 1
                    continue
                seen.add(digest)
                repeats = 0
            yield case

    def instructions_at(self, params: Params) -> Instructions:
        """Return the instructions for cases at these parameters."""
        return self.vary_instructions(params) if self.vary_instructions else self.instructions

    def describe_params(self) -> list[ParamInfo]:
        """Return a description of each parameter for a form, in the order of declaration."""
        return [_describe_param(name, model_field) for name, model_field in self.params.model_fields.items()]

    def definition(self, version: int | None = None) -> dict[str, Any]:
        """Return the task's version and data, which datasets store and hash as part of their definition."""
        data = self.data_hash()
        return {"task": self.name, "version": version or self.version} | ({"data": data} if data else {})

    def _describe_problem(self, problem: Any) -> str:
        name = ".".join(str(step) for step in problem["loc"]) or self.name
        if problem["type"] == "extra_forbidden":
            hint = did_you_mean(name[:80], self.params.model_fields)
            return f"{name}: {self.name} has no such parameter" + (f"; {hint}" if hint else "")
        message = problem["msg"].removeprefix("Value error, ")
        return f"{name}: {message[:1].lower()}{message[1:]}, not {json.dumps(problem['input'], default=str)[:60]}"


def _describe_param(name: str, model_field: Any) -> ParamInfo:
    bounds = {key: getattr(item, key) for item in model_field.metadata for key in ("ge", "le") if hasattr(item, key)}
    if model_field.default is PydanticUndefined:
        raise TypeError(f"{name}: every parameter needs a default")
    literal = get_origin(model_field.annotation) is Literal
    kinds: dict[Any, Any] = {bool: "switch", int: "integer", float: "number"}
    return ParamInfo(
        name=name,
        kind="choice" if literal else kinds[model_field.annotation],
        default=model_field.default,
        help=model_field.description,
        harder=model_field.json_schema_extra["harder"],
        minimum=bounds.get("ge"),
        maximum=bounds.get("le"),
        options=get_args(model_field.annotation) if literal else (),
    )
