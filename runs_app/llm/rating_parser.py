"""The parser of ratings in model replies.

Three steps look for a rating, and the first that finds one is recorded:

1. the reply is JSON, or contains JSON inside a fence;
2. the outermost {...} is JSON;
3. an integer of the scale stands alone in the text.

If a JSON object names a rating, only that rating counts. If it is off the scale, the result is an error, even if the
text contains another number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from evalsite.lib.rating_scale import RatingScale

Step = Literal["json", "braces", "digit", ""]
RatingError = Literal["empty", "no_rating_found", "out_of_scale", "not_an_integer"]

THINK_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
FENCE = "```"
# Not part of a word, a decimal, a thousand ("1,000"), a date or range ("3-4"), or a fraction ("6/7").
STANDALONE_INTEGER = re.compile(
    r"(?<![\w./])(?<![0-9],)(?<![0-9][-–])([-−+]?[0-9]{1,9})(?![\w%])(?![.,][0-9])", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed rating. `rating` is None exactly if `error` is set. `step` is the step that matched, or ""."""

    rating: int | None
    reasoning: str | None
    step: Step
    error: RatingError | None


def strip_thinking(text: str) -> str:
    """Return the reply without its <think> blocks, stripped.

    An unclosed block hides the rest of the reply, because the answer was truncated while thinking. A lone closing tag
    hides everything before it, because some chat templates open the block in the prompt. The time is linear in the
    length.
    """
    visible: list[str] = []
    position, thinking = 0, False
    for tag in THINK_TAG.finditer(text):
        closes = bool(tag.group(1))
        if not closes and not thinking:
            visible.append(text[position : tag.start()])
        elif closes and not thinking:
            visible.clear()
        thinking, position = not closes, tag.end()
    if not thinking:
        visible.append(text[position:])
    return "".join(visible).strip()


def parse_rating(text: str | None, scale: RatingScale) -> Parsed:
    """Return the rating in a reply and the step that found it. No text raises an exception.

    Errors: "empty" (nothing visible), "no_rating_found", "out_of_scale", "not_an_integer" (for example 3.5 in JSON).
    """
    visible = strip_thinking(text or "")
    if not visible:
        return Parsed(None, None, "", "empty")
    for step, parsed in find_json_objects(visible):
        by_key = {key.lower(): value for key, value in parsed.items()}
        if "rating" in by_key:
            rating, error = _read_rating(by_key["rating"], scale)
            reasoning = by_key.get("reasoning")
            return Parsed(rating, reasoning if isinstance(reasoning, str) else None, step, error)
    rating, error = _find_first_integer(visible, scale)
    return Parsed(rating, None, "digit" if rating is not None else "", error)


def find_json_objects(text: str) -> Iterator[tuple[Step, dict[str, Any]]]:
    """Yield the JSON objects in a reply, likeliest first: the whole reply, fenced blocks (last first), the {...}."""
    for step, candidate in _iter_json_candidates(text):
        try:
            parsed = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            yield step, parsed


def _iter_json_candidates(text: str) -> Iterator[tuple[Step, str]]:
    yield "json", text
    for block in reversed(_list_fenced_blocks(text)):
        yield "json", block
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        yield "braces", text[start : end + 1]


def _list_fenced_blocks(text: str) -> list[str]:
    """Return the texts between pairs of fences, without the language name of the opening one."""
    return [re.sub(r"\A[A-Za-z]*\s", "", block) for block in text.split(FENCE)[1::2]]


def _read_rating(value: Any, scale: RatingScale) -> tuple[int | None, RatingError | None]:
    if isinstance(value, str):
        return _find_first_integer(value, scale)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, "no_rating_found"
    if not math.isfinite(value) or value != int(value):
        return None, "not_an_integer"
    return (int(value), None) if int(value) in scale else (None, "out_of_scale")


def _find_first_integer(text: str, scale: RatingScale) -> tuple[int | None, RatingError | None]:
    """Return the first integer of the scale that stands alone. Mentions of the scale ("from 1 to 7") do not count."""
    mention = rf"(?<![\w.-]){scale.minimum}\s*(?:-|–|—|\.\.|to|through|and)\s*{scale.maximum}(?![\w])"
    values = [int(match.replace("−", "-")) for match in STANDALONE_INTEGER.findall(re.sub(mention, " ", text))]
    for value in values:
        if value in scale:
            return value, None
    return None, "out_of_scale" if values else "no_rating_found"
