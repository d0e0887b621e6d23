"""The form of one parametric task: each parameter as a value, a list, a range or a manifold. It writes YAML."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from django import forms
from pydantic import ValidationError

from datasets_app.generators.base import Generator, ParamInfo
from datasets_app.parametric.manifolds import DEGREE, MOST_VALUES, Axis, Window
from runs_app.forms.task_text import DESIGN, WINDOW, dump_task, list_entries, list_samples

RANGE = re.compile(r"\s*(-?[0-9.]{1,20})\s*(?:\.\.|to)\s*(-?[0-9.]{1,20})(?:\s*step\s*([0-9.]{1,20}))?\s*\Z")
CORNERS = 2  # A manifold with more values keeps its first and its last at the density "corner".
WORDS = {"true": True, "false": False}


class StepField(forms.CharField):
    """A whole number of values, or "degree"."""

    def clean(self, value: Any) -> int | str | None:
        text = str(super().clean(value)).strip().lower()
        if text in ("", DEGREE):
            return text or None
        if not (text.isascii() and text.isdecimal() and int(text[:9]) <= MOST_VALUES):
            raise forms.ValidationError(f'Write a whole number from 0 to {MOST_VALUES:,}, or "{DEGREE}".')
        return int(text)


STEPS = {
    "body": ("values per degree", 'How many the window shows, or "degree". Empty: all that follow'),
    "head": ("first values", 'How many always stay, or "degree". Empty: none'),
    "skip": ("skipped values", 'How many are left out before the others. Empty: "degree", so the window moves'),
}


@dataclass(frozen=True)
class ParameterFields:
    """The fields of a parameter: its values, and for a number its values per degree and the rest of its window."""

    values: forms.BoundField
    body: forms.BoundField | None
    window: tuple[forms.BoundField, ...]

    @property
    def has_window(self) -> bool:
        return any(field.value() or field.errors for field in self.window)


class TaskValuesForm(forms.Form):
    """Fields for each parameter: its values, and the window of them that a degree shows. Empty values are the default.

    replaces: the name of the task in the text whose parameters the form shows; empty for a new task.
    """

    def __init__(self, generator: Generator, data: Any = None, *, former: Any = None, replaces: str = "") -> None:
        super().__init__(data, prefix="task", initial=list_entries(former) if former else None)
        self.generator, self.replaces = generator, former["name"] if former else replaces
        self.infos = {info.name: info for info in generator.describe_params()}
        for name, info in self.infos.items():
            self.fields[name] = forms.CharField(
                required=False, max_length=2000, label=name, help_text=describe_param(info), strip=True
            )
            if info.kind in ("integer", "number"):
                for step, (label, help_text) in STEPS.items():
                    self.fields[f"{name}-{step}"] = StepField(
                        required=False, max_length=20, label=f"{name}: {label}", help_text=help_text
                    )

    @property
    def parameter_fields(self) -> list[ParameterFields]:
        return [
            ParameterFields(self[name], self[f"{name}-body"], (self[f"{name}-head"], self[f"{name}-skip"]))
            if f"{name}-body" in self.fields
            else ParameterFields(self[name], None, ())
            for name in self.infos
        ]

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        for name, info in self.infos.items():
            text = given.get(name, "")
            if not text:
                if any(given.get(f"{name}-{step}") is not None for step in WINDOW):
                    self.add_error(name, "Give the values that the degrees choose from.")
                continue
            try:
                given[name] = read_values(info, text)
            except ValueError as problem:
                self.add_error(name, str(problem))
            else:
                self._check_window(name, given)
        return given

    def _check_window(self, name: str, given: dict[str, Any]) -> None:
        """Refuse a window that shows no value at degree 1, or shows more than there are without the degree."""
        window = _window(given, name)
        if window is None:
            return
        values = Axis.model_validate(given[name]).range
        if not Window.model_validate(window).take(values, 1):
            self.add_error(name, f"The window leaves none of these {len(values)} values at degree 1.")

    def write(self, text: str) -> str:
        """Return the text of a space with this task at its end. A repeated task gets a name of its own."""
        return dump_task(_name(self.generator.name, text) | self._design({}))

    def change(self, former: dict[str, Any]) -> dict[str, Any]:
        """Return a task of a space with these parameters in place of its own. Its samples and other fields stay."""
        rest = {field: value for field, value in former.items() if field not in DESIGN}
        return rest | self._design(list_samples(former))

    def _design(self, samples: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return mode and parameters. samples: by density, of parameters that had some in the text."""
        axes = {name: self.cleaned_data[name] for name in self.infos if self.cleaned_data[name] not in ("", None)}
        windows = {name: window for name in axes if (window := _window(self.cleaned_data, name))}
        if not windows and not any(samples.values()):
            return {"params": axes}
        manifold = {name: _manifold(axes[name], windows.get(name), samples.get(name)) for name in axes}
        return {"mode": "manifold", "manifold": manifold}


def _window(given: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the window of a parameter; None without one. It moves with the degree unless `skip` is fixed."""
    head, skip, body = (given.get(f"{name}-{step}") for step in WINDOW)
    if head is None and skip is None and body is None:
        return None
    if skip is None and body is None:
        return {"head": head, "body": 0}
    window = {"head": head, "skip": DEGREE if skip is None else skip, "body": body}
    return {step: value for step, value in window.items() if value is not None}


def read_values(info: ParamInfo, text: str) -> Any:
    """Return the value, list or range of a text: "8", "8, 16, 24" or "8..48 step 8".

    Raise ValueError, which says what is allowed, for anything else or a value outside the parameter's bounds.
    """
    if info.kind in ("integer", "number") and (found := RANGE.match(text)):
        start, stop, step = (_read_number(info, part) if part else 1 for part in found.groups())
        axis = {"from": start, "to": stop} | ({"step": step} if found[3] else {})
        for value in _count_up(axis):
            _check_bounds(info, value)
        return axis
    values = [_read_one(info, part.strip()) for part in text.split(",") if part.strip()]
    if not 1 <= len(values) <= MOST_VALUES:
        raise ValueError(f"Give 1 to {MOST_VALUES:,} values.")
    return values[0] if len(values) == 1 else values


def _count_up(axis: dict[str, Any]) -> list[Any]:
    try:
        values: list[Any] = Axis.model_validate(axis).range
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ValueError(f"{message[:1].upper()}{message[1:]}.") from None
    return values


def _read_one(info: ParamInfo, text: str) -> Any:
    if info.options:
        if text not in info.options:
            raise ValueError(f"Choose among {', '.join(info.options)}, not {text[:40]!r}.")
        return text
    if info.kind == "switch":
        if text.lower() not in WORDS:
            raise ValueError(f"Write true or false, not {text[:40]!r}.")
        return WORDS[text.lower()]
    value = _read_number(info, text)
    _check_bounds(info, value)
    return value


def _read_number(info: ParamInfo, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        if info.kind == "number":
            return float(text)
    except ValueError:
        pass
    kind = "a whole number" if info.kind == "integer" else "a number"
    raise ValueError(f"Write {kind}, several with commas, or a range such as 8..48 step 8, not {text[:40]!r}.")


def _check_bounds(info: ParamInfo, value: float) -> None:
    low, high = info.minimum, info.maximum
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        raise ValueError(f"{value:g} is outside {low:g} to {high:g}.")


def describe_param(info: ParamInfo, *, default: bool = True) -> str:
    """Return the help of a parameter with its values, its default if wanted, and what makes it harder."""
    if info.options:
        values = ", ".join(info.options)
    elif info.kind == "switch":
        values = "true or false"
    else:
        values = f"{info.minimum:g} to {info.maximum:g}" if info.minimum is not None else "a number"
    usual = str(info.default).lower() if isinstance(info.default, bool) else info.default
    harder = {"higher": "; higher is harder", "lower": "; lower is harder"}.get(info.harder, "")
    return f"{info.help} {values}{f'; default {usual}' if default else ''}{harder}"


def _name(name: str, text: str) -> dict[str, Any]:
    """Return the name of the task in the file: the generator's, or one with a number if that is taken."""
    taken = set(re.findall(r"^\s*-\s+name:\s*(\S+)", text, re.MULTILINE))
    if name not in taken:
        return {"name": name}
    number = next(number for number in range(2, len(taken) + 3) if f"{name}-{number}" not in taken)
    return {"name": f"{name}-{number}", "task": name}


def _manifold(values: Any, window: dict[str, Any] | None, samples: dict[str, Any] | None) -> Any:
    axis = dict(values) if isinstance(values, dict) else {"range": values if isinstance(values, list) else [values]}
    if window:
        axis["window"] = window
    if samples is not None:
        return axis | samples
    shown = [window.get(step, 0) for step in ("head", "body")] if window else []
    if window and sum(step for step in shown if isinstance(step, int)) > CORNERS:
        axis["resample:corner"] = {"first": 1, "last": 1}
    return axis
