"""Readers of experiment files: from YAML to specifications. Pure functions."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from evalsite.lib.text.strict_yaml import YamlError, parse_yaml
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.experiment_files.model_draw import DrawSpec
from runs_app.experiment_files.spec_errors import SpecError, describe_problems
from runs_app.experiment_files.spec_types import Strict
from runs_app.experiment_files.specs import ExperimentSpec, ExtensionSpec

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
