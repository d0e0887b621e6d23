"""Errors in an experiment file, as sentences that name the key, with hints for unknown or misplaced keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, get_args

from pydantic import ValidationError

from evalsite.lib.hints import did_you_mean
from evalsite.lib.text.strict_yaml import join_path
from runs_app.experiment_files.model_draw import DrawSpec
from runs_app.experiment_files.spec_types import DRAWN, INLINE, NAMED, Strict

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
