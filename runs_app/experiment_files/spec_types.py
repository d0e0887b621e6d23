"""The types of values in an experiment file: strict, and with names. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from evalsite.lib.text.hashing import canonical_json
from runs_app.bounds import BUDGET, Bound

POINT = re.compile(r"-?[0-9]{1,9}\Z")
NAMED, INLINE, DRAWN = "named", "inline", "by-draw"  # Tags of the possible forms. Error messages leave them out.


def tag_of_form(value: Any) -> str:
    """Return whether a value is a name or the thing itself, so that an error describes the intended form."""
    return NAMED if isinstance(value, str) else INLINE


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character, which the database cannot keep")
    return text


def _decimal(value: Any) -> Any:
    """Convert a number as it was written: 0.1 becomes exactly one tenth."""
    return Decimal(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _points(labels: Any) -> Any:
    """Return labels with integer points. JSON keys are always strings, so they are converted."""
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
    """Return a validator that refuses numbers outside the bound, also NaN and infinities, and states the range."""
    return BeforeValidator(bound.check)


Text = Annotated[str, AfterValidator(_without_nul)]
# In the engine that reads these patterns, $ matches only the end of the text, never the end of a line.
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=80)]
Reference = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*(@[0-9]+)?$", max_length=100)]
Money = Annotated[Decimal, BeforeValidator(_decimal), within(BUDGET), Field(max_digits=12, decimal_places=4)]
Settings = Annotated[dict[str, Any], AfterValidator(_storable)]
Labels = Annotated[dict[int, Text], BeforeValidator(_points)]


class Strict(BaseModel):
    """The base of all specs: unknown keys are errors, and the string "3" is not the number 3."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
