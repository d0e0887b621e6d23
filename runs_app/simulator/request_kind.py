"""The kind of answer that a request asks for: a rating, a judgement, a letter, a number, or an object of a schema."""

import re
from dataclasses import dataclass
from typing import Any

from runs_app.simulator.request_parser import ChatRequest

_RATING_OBJECT = re.compile(r"[{\"'`]\s*rating\s*[\"'`]", re.IGNORECASE)
_SCORE_OBJECT = re.compile(r"[{\"'`]\s*score\s*[\"'`]", re.IGNORECASE)
_REASONING_KEY = re.compile(r"[\"'`]reasoning[\"'`]", re.IGNORECASE)
_BARE_NUMBER = re.compile(r"\b(?:single|one|only)\b[^.\n]{0,30}\b(?:integer|number|digit)\b", re.IGNORECASE)
_FINAL_ANSWER = re.compile(r"\bfinal answer:", re.IGNORECASE)
_OPTION = re.compile(r"^[^\S\n]*\(?([A-Z])[).:][^\S\n]+(\S[^\n]*)", re.MULTILINE)
_LABEL_LINE = re.compile(r"^[^\S\n]*[-*]?[^\S\n]*(-?\d{1,3})[^\S\n]*[:=)–—-][^\S\n]*[^\W\d]", re.MULTILINE)
_SCALES = (
    re.compile(r"\bfrom\s+(-?\d{1,4})\b[^.\n]{0,60}?\bto\s+(-?\d{1,4})\b", re.IGNORECASE),
    re.compile(r"\bbetween\s+(-?\d{1,4})\s+and\s+(-?\d{1,4})\b", re.IGNORECASE),
    re.compile(r"(?<![\w.-])(-?\d{1,4})\s?(?:[-–—]|to)\s?(\d{1,4})(?![\w-]|\.\d)", re.IGNORECASE),
    re.compile(r"(?<![\w.-])(-?\d{1,4})\b[^.\n]{0,60}?\bto\s+(-?\d{1,4})\b", re.IGNORECASE),
)


@dataclass(frozen=True, slots=True)
class PromptScale:
    """A range of whole numbers, both ends included."""

    low: int
    high: int

    @property
    def width(self) -> int:
        return self.high - self.low

    def clip(self, value: float) -> int:
        """Return the nearest whole number on the scale."""
        return min(self.high, max(self.low, round(value)))


def find_schema(request: ChatRequest) -> dict[str, Any] | None:
    """Return the JSON schema that the answer must follow, or None."""
    if request.response_format.get("type") != "json_schema":
        return None
    schema = (request.response_format.get("json_schema") or {}).get("schema")
    return schema if isinstance(schema, dict) else {}


def read_schema_scale(schema: dict[str, Any]) -> PromptScale | None:
    """Return the bounds of a number in a JSON schema, from minimum and maximum or from an enumeration of numbers."""
    values = schema.get("enum") or [schema.get("minimum"), schema.get("maximum")]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    low, high = round(min(values)), round(max(values))
    return PromptScale(low, high) if low <= high else None


def find_scale(text: str, default: PromptScale) -> PromptScale:
    """Return the scale that a request describes: "from 1 to 7", "1-9", or a label for each point."""
    for pattern in _SCALES:
        for low, high in pattern.findall(text):
            if int(low) < int(high):
                return PromptScale(int(low), int(high))
    points = [int(point) for point in _LABEL_LINE.findall(text)]
    return PromptScale(min(points), max(points)) if len(set(points)) > 1 else default


def wants_rating_object(text: str) -> bool:
    return _RATING_OBJECT.search(text) is not None


def wants_score_object(text: str) -> bool:
    return _SCORE_OBJECT.search(text) is not None


def wants_reasoning(text: str) -> bool:
    return _REASONING_KEY.search(text) is not None


def wants_bare_number(text: str) -> bool:
    return _BARE_NUMBER.search(text) is not None


def wants_final_answer(text: str) -> bool:
    return _FINAL_ANSWER.search(text) is not None


def find_choices(text: str) -> dict[str, str]:
    """Return the options of a multiple choice question by letter, from lines such as `A) Paris`.

    Fewer than two options give an empty mapping.
    """
    options = dict(_OPTION.findall(text))
    return {letter: option.strip() for letter, option in options.items()} if len(options) > 1 else {}
