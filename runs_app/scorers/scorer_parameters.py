"""The declared parameters of scorers: their types, bounds, and messages for wrong values. Pure.

A design stores a parameter as the text that its author wrote, which is part of the id of the grade condition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_PATTERN_LENGTH = 500
MAX_REPEATS = 1000  # Nested counted repeats multiply, and fill memory when a pattern is compiled.
NUMBER = re.compile(r"-?[0-9]{0,15}\.?[0-9]{1,15}")  # Without an exponent, as people write it.
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a scorer.

    `accepts` completes "must be ...". `convert` returns the value of a text. For a wrong text it raises ValueError,
    with a sentence if `accepts` does not say enough. `default` is the value without a text.
    """

    name: str
    accepts: str
    convert: Callable[[str], Any]
    required: bool = False
    default: Any = None

    def find_problem(self, scorer: str, text: str) -> str | None:
        """Return why this text is wrong, as a sentence for its author, or None."""
        try:
            self.convert(text)
        except ValueError as error:
            return str(error) or f"The {self.name} of the scorer {scorer} must be {self.accepts}, not {text[:100]!r}."
        return None


def declare_number(
    name: str, *, ge: float, le: float, default: float | None = None, required: bool = False
) -> Parameter:
    """Return a parameter whose value is a number within these bounds."""

    def convert(text: str) -> float:
        if not NUMBER.fullmatch(text) or not ge <= float(text) <= le:
            raise ValueError
        return float(text)

    return Parameter(name, f"a number from {ge:,} to {le:,}", convert, required, default)


def declare_whole_number(
    name: str, *, ge: int, le: int, default: int | None = None, required: bool = False
) -> Parameter:
    """Return a parameter whose value is a whole number within these bounds."""

    def convert(text: str) -> int:
        if not WHOLE_NUMBER.fullmatch(text) or not ge <= int(text) <= le:
            raise ValueError
        return int(text)

    return Parameter(name, f"a whole number from {ge:,} to {le:,}", convert, required, default)


def declare_text(name: str, *, max_length: int, default: str | None = None, required: bool = False) -> Parameter:
    """Return a parameter whose value is a text that is not empty."""

    def convert(text: str) -> str:
        if not 1 <= len(text) <= max_length:
            raise ValueError
        return text

    return Parameter(name, f"a text of 1 to {max_length:,} characters", convert, required, default)


def declare_pattern(name: str, *, default: str | None = None, required: bool = False) -> Parameter:
    """Return a parameter whose value is a regular expression."""

    def convert(text: str) -> str:
        if problem := find_pattern_problem(text):
            raise ValueError(problem)
        return text

    return Parameter(name, "a regular expression", convert, required, default)


def find_pattern_problem(pattern: str) -> str | None:
    """Return the problem of a regular expression, for its author, or None if it is valid."""
    import regex as timed_re

    if len(pattern) > MAX_PATTERN_LENGTH:
        return f"The pattern is longer than {MAX_PATTERN_LENGTH} characters."
    counts = [int(high or low or 1) for low, high in re.findall(r"\{([0-9]{0,6}),?([0-9]{0,6})\}", pattern)]
    if math.prod(max(1, count) for count in counts) > MAX_REPEATS:
        return f"The pattern's counted repeats multiply to more than {MAX_REPEATS}."
    try:
        timed_re.compile(pattern)
    except timed_re.error as error:
        return f"The pattern is not a valid regular expression: {error}."
    return None
