"""The values of one parameter: a value, a list, a range, or a manifold that degree and density resolve to a list.

A manifold selects a window of its range, and then a sample of the window by density:

    {"range": [8, 16, 24, 32, 40, 48],
     "window": {"skip": "degree", "body": 4},
     "resample:corner": {"first": 1, "last": 1}}

Window: the first `head` values, then `body` values after a gap of `skip` values: range[:head] + range[head+skip :
head+skip+body]. Each of the three is a whole number or "degree". Without `body`, the window runs to the end.
Sample: the first `first` and the last `last` values, each once. A density without a sample changes nothing.
Degree 1 of the example gives 16, 24, 32, 40, and its corner 16, 40.

ReasonScape publishes the names, and the order of window and sample. The formulas are our choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Density = Literal["normal", "medium", "lowdef", "corner"]
DENSITIES: tuple[Density, ...] = ("normal", "medium", "lowdef", "corner")
MAX_VALUES = 1000
RESAMPLE = "resample:"
DEGREE = "degree"
MAX_DEGREE = 99


class StrictModel(BaseModel):
    """The base class of every part of a file: unknown fields are errors, and the text "3" is not the number 3."""

    model_config = ConfigDict(
        defer_build=True, extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True
    )


def _check_scalar(value: Any) -> Any:
    if not isinstance(value, int | float | str):
        raise ValueError("a value is a number, a text, or true or false")
    return value


def _check_step(value: Any) -> Any:
    if value != DEGREE and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_VALUES):
        raise ValueError(f'a whole number from 0 to {MAX_VALUES}, or "{DEGREE}"')
    return value


Scalar = Annotated[Any, AfterValidator(_check_scalar)]
Step = Annotated[Any, AfterValidator(_check_step)]
Values = Annotated[list[Scalar], Field(min_length=1, max_length=MAX_VALUES)]


class Window(StrictModel):
    head: Step = 0
    skip: Step = 0
    body: Step = None

    @model_validator(mode="before")
    @classmethod
    def _require_size(cls, content: Any) -> Any:
        if isinstance(content, dict) and not content:
            raise ValueError("a window has at least one of head, skip and body")
        return content

    def take(self, values: list[Any], degree: int) -> list[Any]:
        """Return the part of the values that the window selects at a degree."""
        head, skip = (degree if step == DEGREE else step for step in (self.head, self.skip))
        body = degree if self.body == DEGREE else self.body
        start = head + skip
        return values[:head] + values[start : None if body is None else start + body]


class Resample(StrictModel):
    first: int = Field(default=0, ge=0, le=MAX_VALUES)
    last: int = Field(default=0, ge=0, le=MAX_VALUES)

    @model_validator(mode="after")
    def _require_size(self) -> Resample:
        if not self.first + self.last:
            raise ValueError("first or last must be above 0")
        return self

    def take(self, values: list[Any]) -> list[Any]:
        """Return the first and the last values, each once."""
        return [value for i, value in enumerate(values) if i < self.first or i >= len(values) - self.last]


class GridAxis(StrictModel):
    """One parameter of a grid: a value, a list of values, or {"from": 8, "to": 48, "step": 8} with both ends."""

    range: Values

    @model_validator(mode="before")
    @classmethod
    def _wrap_values(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return {"range": content if isinstance(content, list) else [content]}
        if "from" in content or "to" in content:
            other_fields = {key: value for key, value in content.items() if key not in ("from", "to", "step")}
            # The numbers of {"from": 8, "to": 48, "step": 8}. Numbers with decimals are rounded to nine digits.
            missing = [key for key in ("from", "to") if key not in content]
            if missing:
                raise ValueError(f"a range with from and to lacks {missing[0]}")
            start, stop, step = content["from"], content["to"], content.get("step", 1)
            if any(isinstance(value, bool) or not isinstance(value, int | float) for value in (start, stop, step)):
                raise ValueError("from, to and step are numbers")
            if not step > 0 or not start <= stop:
                raise ValueError("a range runs upwards: from is at most to, and step is above 0")
            if not (stop - start) / step < MAX_VALUES:
                raise ValueError(f"a range has at most {MAX_VALUES} values")
            count = int((stop - start) / step + 1e-9) + 1
            is_integer = all(isinstance(value, int) for value in (start, step))
            return other_fields | {
                "range": ([start + i * step if is_integer else round(start + i * step, 9) for i in range(count)])
            }
        return content

    def resolve(self, degree: int, density: str) -> list[Any]:
        """Return the values. In a grid they do not depend on degree and density."""
        return _drop_duplicates(self.range)


class ManifoldAxis(GridAxis):
    """One parameter of a manifold."""

    window: Window | None = None
    resample: dict[Density, Resample] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather_samples(cls, content: Any) -> Any:
        """Collect the fields "resample:DENSITY" in one mapping by density."""
        if not isinstance(content, dict) or not any(str(key).startswith("resample") for key in content):
            return content
        fields: dict[Any, Any] = {}
        samples: dict[str, Any] = {}
        for key, value in content.items():
            density = str(key).removeprefix(RESAMPLE)
            if density == str(key):
                fields[f"{key} " if key == "resample" else key] = value  # Only "resample:DENSITY" is a field of a file.
            else:
                samples[density] = value
        return fields | ({"resample": samples} if samples else {})

    def resolve(self, degree: int, density: str) -> list[Any]:
        """Return the values at a degree and a density. The list may be empty."""
        values = self.range if self.window is None else self.window.take(self.range, degree)
        sample: Mapping[Any, Resample] = self.resample
        return _drop_duplicates(sample[density].take(values) if density in sample else values)


def _drop_duplicates(values: list[Any]) -> list[Any]:
    """Return the values in order without duplicates. True, 1 and 1.0 are different values here."""
    return list({(type(value), value): value for value in values}.values())
