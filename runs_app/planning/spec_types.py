"""What the values of an experiment file are: strict types with names. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from evalsite.lib.text.hashing import canonical_json
from runs_app.bounds import BUDGET, Bound

POINT = re.compile(r"-?[0-9]{1,9}\Z")
NAMED, INLINE, DRAWN = "named", "inline", "by-draw"  # Tags of the ways to say a thing; no part of what a message shows.


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character, which the database cannot keep")
    return text


def _decimal(value: Any) -> Any:
    """As it was written: 0.1 is a tenth, not the binary number next to it."""
    return Decimal(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _points(labels: Any) -> Any:
    """The points of a scale as numbers, also from JSON, whose keys are always texts."""
    if not isinstance(labels, dict):
        return labels
    return {int(at) if isinstance(at, str) and POINT.match(at) else at: label for at, label in labels.items()}


def _storable(extra: dict[str, Any]) -> dict[str, Any]:
    try:
        _without_nul(canonical_json(extra).replace("\\u0000", "\0"))
    except TypeError as error:
        raise ValueError(str(error)) from None
    return extra


def within(bound: Bound) -> BeforeValidator:
    """Return a validator that refuses numbers outside the bound, NaN and infinities too, and states the range."""
    return BeforeValidator(bound.check)


Text = Annotated[str, AfterValidator(_without_nul)]
# In the engine that reads these, $ is the end of the text, never the end of a line.
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=80)]
Reference = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*(@[0-9]+)?$", max_length=100)]
Money = Annotated[Decimal, BeforeValidator(_decimal), within(BUDGET), Field(max_digits=12, decimal_places=4)]
Settings = Annotated[dict[str, Any], AfterValidator(_storable)]
Labels = Annotated[dict[int, Text], BeforeValidator(_points)]


class Strict(BaseModel):
    """Unknown keys are errors, and a "3" is not a 3."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
