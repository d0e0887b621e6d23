"""The form of one parametric task: each parameter as a value, a list, a range or a manifold. It writes YAML."""

from __future__ import annotations

import re
from typing import Any

import yaml
from django import forms
from pydantic import ValidationError

from datasets_app.generators.base import Generator, ParamInfo
from datasets_app.parametric.manifolds import MOST_VALUES, Axis

RANGE = re.compile(r"\s*(-?[0-9.]{1,20})\s*(?:\.\.|to)\s*(-?[0-9.]{1,20})(?:\s*step\s*([0-9.]{1,20}))?\s*\Z")
CORNERS = 2  # A manifold with more values keeps its first and its last at the density "corner".
WORDS = {"true": True, "false": False}


class TaskValuesForm(forms.Form):
    """Two fields for each parameter: its values, and how many of them a degree shows. Empty values are the default."""

    def __init__(self, generator: Generator, data: Any = None) -> None:
        super().__init__(data, prefix="task")
        self.generator = generator
        self.infos = {info.name: info for info in generator.describe_params()}
        for name, info in self.infos.items():
            self.fields[name] = forms.CharField(
                required=False, max_length=2000, label=name, help_text=describe_param(info), strip=True
            )
            if info.kind in ("integer", "number"):
                self.fields[f"{name}-body"] = forms.IntegerField(
                    required=False, min_value=1, max_value=MOST_VALUES, label=f"{name}: values per degree"
                )

    @property
    def parameter_fields(self) -> list[tuple[forms.BoundField, forms.BoundField | None]]:
        """Return the fields of each parameter: its values, and its values per degree if it is a number."""
        return [(self[name], self[f"{name}-body"] if f"{name}-body" in self.fields else None) for name in self.infos]

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        for name, info in self.infos.items():
            text = given.get(name, "")
            if not text:
                if given.get(f"{name}-body"):
                    self.add_error(name, "Give the values that the degrees choose from.")
                continue
            try:
                given[name] = read_values(info, text)
            except ValueError as problem:
                self.add_error(name, str(problem))
        return given

    def write(self, text: str) -> str:
        """Return the text of a space with this task at its end. A repeated task gets a name of its own."""
        axes = {name: self.cleaned_data[name] for name in self.infos if self.cleaned_data[name] not in ("", None)}
        bodies = {name: body for name in axes if (body := self.cleaned_data.get(f"{name}-body"))}
        task: dict[str, Any] = _name(self.generator.name, text)
        if bodies:
            task |= {"mode": "manifold", "manifold": {name: _manifold(axes[name], bodies.get(name)) for name in axes}}
        else:
            task["params"] = axes
        written = yaml.dump([task], Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120)
        return "".join(f"  {line}\n" for line in written.splitlines())


class _Dumper(yaml.SafeDumper):
    """A dumper without aliases, which the reader of spaces refuses."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


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


def _manifold(values: Any, body: int | None) -> Any:
    axis = dict(values) if isinstance(values, dict) else {"range": values if isinstance(values, list) else [values]}
    if body:
        axis |= {"window": {"skip": "degree", "body": body}}
        if body > CORNERS:
            axis["resample:corner"] = {"first": 1, "last": 1}
    return axis
