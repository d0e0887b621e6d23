"""The strict types of values in an experiment file."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from evalsite.lib.bound import Bound
from evalsite.lib.text.hashing import canonical_json
from runs_app.experiment_options import USD

POINT = re.compile(r"-?[0-9]{1,9}\Z")
NAMED, INLINE, DRAWN = "named", "inline", "by-draw"  # Tags of the possible forms. Error messages omit them.


def choose_form_tag(value: Any) -> str:
    """Return the tag of a name or of an inline definition, so that errors describe the intended form."""
    return NAMED if isinstance(value, str) else INLINE


def _check_no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which the database cannot store")
    return text


def _parse_decimal(value: Any) -> Any:
    """Convert a number to the decimal that its text shows: 0.1 becomes exactly one tenth."""
    return Decimal(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _parse_points(labels: Any) -> Any:
    """Return labels with integer points, converted from the strings that JSON keys always are."""
    if not isinstance(labels, dict):
        return labels
    return {int(key) if isinstance(key, str) and POINT.match(key) else key: label for key, label in labels.items()}


def _check_storable(extra: dict[str, Any]) -> dict[str, Any]:
    try:
        _check_no_nul(canonical_json(extra).replace("\\u0000", "\0"))
    except TypeError as error:
        raise ValueError(str(error)) from None
    return extra


def _check_scalar(value: Any) -> str | int | float:
    if isinstance(value, str):
        return _check_no_nul(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        raise ValueError("write a text or a number")
    return value


def within(bound: Bound) -> BeforeValidator:
    """Return a validator that refuses numbers outside the bound, including NaN and infinities."""
    return BeforeValidator(bound.check)


Text = Annotated[str, AfterValidator(_check_no_nul)]
Scalar = Annotated[str | int | float, PlainValidator(_check_scalar)]
# In pydantic's regex engine, $ matches only the end of the text, not the end of a line.
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=80)]
Reference = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*(@[0-9]+)?$", max_length=100)]
Money = Annotated[Decimal, BeforeValidator(_parse_decimal), within(USD), Field(max_digits=12, decimal_places=4)]
Settings = Annotated[dict[str, Any], AfterValidator(_check_storable)]
Labels = Annotated[dict[int, Text], BeforeValidator(_parse_points)]


class Strict(BaseModel):
    """The base of all specs: unknown keys are errors, and the string "3" is not the number 3."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
