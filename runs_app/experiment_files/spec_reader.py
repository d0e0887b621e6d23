"""Readers of experiment files: from YAML to specifications, or to errors. Pure functions.

An error is a sentence that names the key, with hints for unknown or misplaced keys.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from evalsite.lib.text.names import did_you_mean
from evalsite.lib.text.strict_yaml import YamlError, join_path, parse_yaml
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.experiment_files.model_draw import DrawSpec
from runs_app.experiment_files.spec_types import DRAWN, INLINE, NAMED, Strict
from runs_app.experiment_files.specs import ExperimentSpec, ExtensionSpec

MAX_PROBLEMS = 20
MAX_HINT_KEYS = 3  # Mappings named in a hint about a misplaced key.


class SpecError(ValueError):
    """An experiment file that cannot be used. Each of `problems` is a sentence that names the key."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(self.problems))


def describe_problems(error: ValidationError, root: type[Strict]) -> list[str]:
    """Return the first problems as sentences. The search for hints would take too long for thousands of problems."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    more = [f"and {len(problems) - MAX_PROBLEMS:,} more problems"] if len(problems) > MAX_PROBLEMS else []
    return [_describe_problem(problem, root) for problem in problems[:MAX_PROBLEMS]] + more


FILE_TAGS = (NAMED, INLINE, DRAWN)


def _describe_problem(problem: Any, root: type[Strict]) -> str:
    """Return a sentence such as `prompts[1].usr: unknown key; did you mean user?`."""
    path = join_path([step for step in problem["loc"] if step not in FILE_TAGS])
    if problem["type"] == "extra_forbidden":
        *path_steps, key = problem["loc"]
        # The specifications that are allowed at this path of a file of type `root`.
        specs: list[type[Strict]] = [root]
        for step in path_steps:
            inner = [_find_specs_in(fields[str(step)]) for spec in specs if str(step) in (fields := _list_fields(spec))]
            if inner:
                specs = list(dict.fromkeys(chain.from_iterable(inner)))
            elif step in FILE_TAGS:
                specs = [spec for spec in specs if (spec is DrawSpec) == (step == DRAWN)]
        hint = _find_hint(str(key)[:80], specs)
        return f"{path}: unknown key" + (f"; {hint}" if hint else "")
    message = problem["msg"].removeprefix("Value error, ")
    return f"{path}: {message[:1].lower()}{message[1:]}"


def _find_hint(key: str, specs: Collection[type[Strict]]) -> str:
    """Return a hint: a similar key that is allowed here, or the inner mapping that accepts this key."""
    allowed = [name for spec in specs for name in _list_fields(spec)]
    if hint := did_you_mean(key, allowed):
        return hint
    inner = [
        name for spec in specs for name, annotation in _list_fields(spec).items()
        if any(key in _list_fields(inner_spec) for inner_spec in _find_specs_in(annotation))
    ]  # fmt: skip
    return f"it belongs under {' or '.join(dict.fromkeys(inner))}" if 0 < len(inner) <= MAX_HINT_KEYS else ""


def _list_fields(spec: type[Strict]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in spec.model_fields.items()}


def _find_specs_in(annotation: Any) -> list[type[Strict]]:
    """Return the specifications within an annotation such as `list[Either[PromptSpec]]`."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return [annotation]
    return [spec for part in get_args(annotation) for spec in _find_specs_in(part)]


Spec = TypeVar("Spec", bound=Strict)
Part = TypeVar("Part", bound=Strict)


def read_extension_yaml(text: str) -> ExtensionSpec:
    """Return the extension from a file: a whole edited experiment file, or only the keys of an ExtensionSpec."""
    content = _parse(text)
    if isinstance(content, dict) and "experiment" in content:
        spec = read_spec(content)
        if isinstance(spec.models, DrawSpec):
            raise SpecError(["models: a draw is only made when an experiment is created; name the models to add"])
        axes = {name: getattr(spec, name) for name in ("models", "prompts", "samplers", "dimensions")}
        rest = spec.model_dump(exclude_none=True, exclude={*axes, "experiment", "dataset", "samples"})
        settings = {
            **{key: value for key, value in rest.items() if not isinstance(value, dict)},
            **{f"budget.{key}": value for key, value in rest["budget"].items()},
            **({"adaptive": spec.adaptive.content} if isinstance(spec.adaptive, AdaptiveSpec) else {}),
            **({"grade.scorers": spec.grade.written} if spec.grade.scorers else {}),
        }
        return ExtensionSpec.model_construct(dataset=spec.dataset, samples=spec.samples, settings=settings, **axes)
    if not isinstance(content, dict) or "settings" in content:
        raise SpecError(["an extension must be a mapping with models, prompts, samplers, dimensions or samples"])
    return _validate(ExtensionSpec, content)


def read_yaml(text: str) -> ExperimentSpec:
    """Return the specification from an experiment file or a manifest. Raise SpecError for anything else."""
    return read_spec(_parse(text))


def read_section(text: str, spec: type[Part], noun: str) -> Part:
    """Return a part of an experiment file, such as a prompt, from its own file.

    Raise SpecError, in which each path starts with `noun`.
    """
    content = _parse(text)
    if not isinstance(content, dict):
        raise SpecError([f"{noun}: the file must be a mapping that starts with name: NAME"])
    try:
        return spec.model_validate(content)
    except ValidationError as error:
        raise SpecError([f"{noun}.{problem}" for problem in describe_problems(error, spec)]) from None


def _parse(text: str) -> Any:
    """Return the content of a file, or the design in a manifest. Raise SpecError if it is not YAML."""
    try:
        content = parse_yaml(text)
    except YamlError as error:
        raise SpecError([str(error)]) from None
    return content["design"] if isinstance(content, dict) and "design" in content else content


def read_spec(content: Any) -> ExperimentSpec:
    """Return the specification from a mapping, as `read_yaml` does from text."""
    if not isinstance(content, dict):
        raise SpecError(["an experiment file must be a mapping that starts with experiment: NAME"])
    return _validate(ExperimentSpec, content)


def _validate(spec: type[Spec], content: Any) -> Spec:
    try:
        return spec.model_validate(content)
    except ValidationError as error:
        raise SpecError(describe_problems(error, spec)) from None
