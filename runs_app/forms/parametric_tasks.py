"""The form of one parametric task, which writes YAML. A parameter is a value, a list, a range or a manifold.

The form is filled from the task in the text of a space, and replaces it there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml
from django import forms
from pydantic import ValidationError

from datasets_app.generators.generator import Generator, ParamInfo
from datasets_app.parametric.manifolds import DEGREE, MAX_VALUES, RESAMPLE, GridAxis, Window
from datasets_app.parametric.spec import SpaceError, read_space
from evalsite.lib.text.strict_yaml import parse_yaml

WINDOW = ("head", "skip", "body")
DESIGN = ("params", "mode", "manifold")
"""The fields of a task that the form of its parameters writes. It keeps all other fields."""


def find_task(text: str, generator: str) -> dict[str, Any] | None:
    """Return the last task of this generator whose parameters the form can show, or None. The text may be invalid."""
    try:
        spec = read_space(text)
    except SpaceError:
        return None
    tasks: list[dict[str, Any]] = parse_yaml(text)["tasks"]
    names = [task.generator_name for task in spec.tasks]
    matches = [
        task
        for task, name in zip(tasks, names, strict=True)
        if name == generator and ("file" not in task and (task.get("mode", "grid") == "grid" or "manifold" in task))
    ]
    return matches[-1] if matches else None


def list_entries(task: dict[str, Any]) -> dict[str, str]:
    """Return the form entries for the task's parameters: `length`, `length-head` and so on."""
    axes = task.get("manifold") or task.get("params") or {}
    entries: dict[str, str] = {}
    for name, axis in axes.items():
        entries[name] = _format_axis(axis)
        window: dict[str, Any] = (axis.get("window") if isinstance(axis, dict) else None) or {}
        for field in WINDOW:
            if field in window:
                entries[f"{name}-{field}"] = str(window[field])
        if window and "skip" not in window:
            entries[f"{name}-skip"] = "0"  # Without it, the form would skip as many values as the degree.
    return entries


def _format_axis(axis: Any) -> str:
    if isinstance(axis, dict) and "from" in axis:
        step = f" step {axis['step']}" if "step" in axis else ""
        return f"{axis['from']}..{axis['to']}{step}"
    values = axis["range"] if isinstance(axis, dict) else axis
    return ", ".join(map(_format_value, values if isinstance(values, list) else [values]))


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def list_samples(task: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the samples by density of each parameter with a window. The form has no fields for them."""
    axes: dict[str, Any] = task.get("manifold") or {}
    return {
        name: {key: value for key, value in axis.items() if key.startswith(RESAMPLE)}
        for name, axis in axes.items()
        if isinstance(axis, dict) and ("window" in axis or any(key.startswith(RESAMPLE) for key in axis))
    }


def dump_task(task: dict[str, Any], indent: int = 2) -> str:
    """Return a task as an item of a list in YAML, with its lines indented."""
    text = yaml.dump([task], Dumper=_TaskTextDumper, sort_keys=False, default_flow_style=None, width=120)
    return "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())


class _TaskTextDumper(yaml.SafeDumper):
    """A dumper that writes no aliases, because the reader of spaces refuses them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def replace_task(text: str, task: dict[str, Any]) -> str | None:
    """Return the text with this task in place of the task with the same name. Other lines keep their comments.

    Return None if the existing task is missing or shares its lines with other tasks.
    """
    item = _find_item(text, task["name"])
    if item is None:
        return None
    lines = text.splitlines(keepends=True)
    start, end = item.start_mark.line, item.end_mark.line + (1 if item.flow_style else 0)
    end = min(end, len(lines))
    while end > start + 1 and (not (line := lines[end - 1].strip()) or line.startswith("#")):
        end -= 1  # Comments in front of the next task are not part of this one.
    if lines[start][: item.start_mark.column].strip() != "-":
        return None
    return "".join([*lines[:start], dump_task(task, lines[start].index("-")), *lines[end:]])


def _find_item(text: str, name: str) -> Any:
    """Return the node of the task in a list with one item on each line, or None."""
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    tasks = next((value for key, value in root.value if key.value == "tasks"), None)
    if tasks is None or tasks.flow_style:
        return None
    for item in tasks.value:
        if any(key.value == "name" and value.value == name for key, value in item.value):
            return item
    return None


RANGE = re.compile(r"\s*(-?[0-9.]{1,20})\s*(?:\.\.|to)\s*(-?[0-9.]{1,20})(?:\s*step\s*([0-9.]{1,20}))?\s*\Z")
CORNERS = 2  # At density "corner", a manifold with more values keeps only its first and its last.
BOOLEANS = {"true": True, "false": False}


class StepField(forms.CharField):
    """A whole number of values, or "degree"."""

    def clean(self, value: Any) -> int | str | None:
        text = str(super().clean(value)).strip().lower()
        if text in ("", DEGREE):
            return text or None
        if not (text.isascii() and text.isdecimal() and int(text[:9]) <= MAX_VALUES):
            raise forms.ValidationError(f'Enter a whole number from 0 to {MAX_VALUES:,}, or "{DEGREE}".')
        return int(text)


STEPS = {
    "body": ("values per degree", 'Number of values in the window, or "degree". Empty: all that follow'),
    "head": ("first values", 'Number of values that always stay, or "degree". Empty: none'),
    "skip": ("skipped values", 'Number of values before the window, or "degree". Empty: "degree"; the window moves'),
}


@dataclass(frozen=True)
class ParameterFields:
    """The fields of a parameter: its values and, for a number, the fields of its window."""

    values: forms.BoundField
    body: forms.BoundField | None
    window: tuple[forms.BoundField, ...]

    @property
    def has_window(self) -> bool:
        return any(field.value() or field.errors for field in self.window)


class TaskValuesForm(forms.Form):
    """The fields of each parameter: its values and the window of them that a degree shows. Empty means the default.

    task: the task in the text whose parameters the form shows. replaces: its name; empty for a new task.
    """

    def __init__(self, generator: Generator, data: Any = None, *, task: Any = None, replaces: str = "") -> None:
        super().__init__(data, prefix="task", initial=list_entries(task) if task else None)
        self.generator, self.replaces = generator, task["name"] if task else replaces
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
        cleaned = super().clean() or {}
        for name, info in self.infos.items():
            text = cleaned.get(name, "")
            if not text:
                if any(cleaned.get(f"{name}-{step}") is not None for step in WINDOW):
                    self.add_error(name, "Enter the values from which the window selects.")
                continue
            try:
                cleaned[name] = read_values(info, text)
            except ValueError as problem:
                self.add_error(name, str(problem))
            else:
                self._check_window(name, cleaned)
        return cleaned

    def _check_window(self, name: str, cleaned: dict[str, Any]) -> None:
        """Refuse a window that shows no value at degree 1."""
        window = _build_window(cleaned, name)
        if window is None:
            return
        values = GridAxis.model_validate(cleaned[name]).range
        if not Window.model_validate(window).take(values, 1):
            self.add_error(name, f"The window leaves none of these {len(values)} values at degree 1.")

    def format_task(self, text: str) -> str:
        """Return the YAML of a new task for the space in `text`. A repeated task gets a unique name."""
        return dump_task(_choose_name(self.generator.name, text) | self._build_design({}))

    def update_task(self, task: dict[str, Any]) -> dict[str, Any]:
        """Return a task of a space with the parameters of this form. Its samples and other fields stay."""
        rest = {field: value for field, value in task.items() if field not in DESIGN}
        return rest | self._build_design(list_samples(task))

    def _build_design(self, samples: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return mode and parameters. samples: the samples by density of each parameter, from the text."""
        axes = {name: self.cleaned_data[name] for name in self.infos if self.cleaned_data[name] not in ("", None)}
        windows = {name: window for name in axes if (window := _build_window(self.cleaned_data, name))}
        if not windows and not any(samples.values()):
            return {"params": axes}
        manifold = {name: _build_axis(axes[name], windows.get(name), samples.get(name)) for name in axes}
        return {"mode": "manifold", "manifold": manifold}


def _build_window(cleaned: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the window of a parameter, or None without one. It moves with the degree unless `skip` is fixed."""
    head, skip, body = (cleaned.get(f"{name}-{step}") for step in WINDOW)
    if head is None and skip is None and body is None:
        return None
    if skip is None and body is None:
        return {"head": head, "body": 0}
    window = {"head": head, "skip": DEGREE if skip is None else skip, "body": body}
    return {step: value for step, value in window.items() if value is not None}


def read_values(info: ParamInfo, text: str) -> Any:
    """Return the value, list or range of a text: "8", "8, 16, 24" or "8..48 step 8".

    Raise ValueError for another form or a value outside the parameter's bounds. The message says what is allowed.
    """
    if info.kind in ("integer", "number") and (match := RANGE.match(text)):
        start, stop, step = (_read_number(info, part) if part else 1 for part in match.groups())
        axis = {"from": start, "to": stop} | ({"step": step} if match[3] else {})
        for value in _count_up(axis):
            _check_bounds(info, value)
        return axis
    values = [_read_value(info, part.strip()) for part in text.split(",") if part.strip()]
    if not 1 <= len(values) <= MAX_VALUES:
        raise ValueError(f"Enter 1 to {MAX_VALUES:,} values.")
    return values[0] if len(values) == 1 else values


def _count_up(axis: dict[str, Any]) -> list[Any]:
    try:
        values: list[Any] = GridAxis.model_validate(axis).range
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ValueError(f"{message[:1].upper()}{message[1:]}.") from None
    return values


def _read_value(info: ParamInfo, text: str) -> Any:
    if info.options:
        if text not in info.options:
            raise ValueError(f"Enter one of {', '.join(info.options)}, not {text[:40]!r}.")
        return text
    if info.kind == "switch":
        if text.lower() not in BOOLEANS:
            raise ValueError(f"Enter true or false, not {text[:40]!r}.")
        return BOOLEANS[text.lower()]
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
    raise ValueError(f"Enter {kind}, a comma-separated list or a range such as 8..48 step 8, not {text[:40]!r}.")


def _check_bounds(info: ParamInfo, value: float) -> None:
    low, high = info.minimum, info.maximum
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        raise ValueError(f"{value:g} is outside {low:g} to {high:g}.")


def describe_param(info: ParamInfo, *, default: bool = True) -> str:
    """Return the help of a parameter: its values, its default unless excluded, and which values are harder."""
    if info.options:
        values = ", ".join(info.options)
    elif info.kind == "switch":
        values = "true or false"
    else:
        values = f"{info.minimum:g} to {info.maximum:g}" if info.minimum is not None else "a number"
    default_value = str(info.default).lower() if isinstance(info.default, bool) else info.default
    harder = {"higher": "; higher is harder", "lower": "; lower is harder"}.get(info.harder, "")
    return f"{info.help} {values}{f'; default {default_value}' if default else ''}{harder}"


def _choose_name(name: str, text: str) -> dict[str, Any]:
    """Return the name of the task in the file: the generator's name, with a number if it is taken."""
    used = set(re.findall(r"^\s*-\s+name:\s*(\S+)", text, re.MULTILINE))
    if name not in used:
        return {"name": name}
    number = next(number for number in range(2, len(used) + 3) if f"{name}-{number}" not in used)
    return {"name": f"{name}-{number}", "task": name}


def _build_axis(values: Any, window: dict[str, Any] | None, samples: dict[str, Any] | None) -> Any:
    axis = dict(values) if isinstance(values, dict) else {"range": values if isinstance(values, list) else [values]}
    if window:
        axis["window"] = window
    if samples is not None:
        return axis | samples
    sizes = [window.get(step, 0) for step in ("head", "body")] if window else []
    if window and sum(size for size in sizes if isinstance(size, int)) > CORNERS:
        axis["resample:corner"] = {"first": 1, "last": 1}
    return axis
