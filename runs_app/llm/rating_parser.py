"""The parser of ratings in model replies.

The first of three steps that finds a rating decides, and the step is recorded. First, the reply is JSON, also inside a
fence. Second, the outermost {...} is JSON. Third, an integer of the scale stands alone in the text. If a JSON object
names a rating, only that counts. A value off the scale is then an error, and no number of the text replaces it.
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
# Not a part of a word, a decimal, a thousand ("1,000"), a date or range ("3-4"), nor of a fraction ("6/7").
STANDALONE_INTEGER = re.compile(
    r"(?<![\w./])(?<![0-9],)(?<![0-9][-–])([-−+]?[0-9]{1,9})(?![\w%])(?![.,][0-9])", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed rating.

    `rating` is None exactly when `error` is set. `step` is the step that matched, "" if none did.
    """

    rating: int | None
    reasoning: str | None
    step: Step
    error: RatingError | None


def strip_thinking(text: str) -> str:
    """Return the reply without its <think> blocks, stripped.

    A block that is never closed hides the rest of the reply, which was cut off while thinking. A lone closing tag hides
    everything before it, because some chat templates open the block in the prompt. The time is linear in the length.
    """
    kept: list[str] = []
    position, thinking = 0, False
    for tag in THINK_TAG.finditer(text):
        closes = bool(tag.group(1))
        if not closes and not thinking:
            kept.append(text[position : tag.start()])
        elif closes and not thinking:
            kept.clear()
        thinking, position = not closes, tag.end()
    if not thinking:
        kept.append(text[position:])
    return "".join(kept).strip()


def parse_rating(text: str | None, scale: RatingScale) -> Parsed:
    """Return the rating in a reply and the step that found it. This never raises, for any text.

    Errors: "empty" (nothing visible), "no_rating_found", "out_of_scale", "not_an_integer" (for example 3.5 in JSON).
    """
    visible = strip_thinking(text or "")
    if not visible:
        return Parsed(None, None, "", "empty")
    for step, found in find_json_objects(visible):
        lowered = {key.lower(): value for key, value in found.items()}
        if "rating" in lowered:
            return _from_object(lowered, step, scale)
    rating, error = _first_integer(visible, scale)
    return Parsed(rating, None, "digit" if rating is not None else "", error)


def find_json_objects(text: str) -> Iterator[tuple[Step, dict[str, Any]]]:
    """Yield the JSON objects of a reply, likeliest first: all of it, its fenced blocks (last first), its {...}."""
    for step, candidate in _json_candidates(text):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield step, found


def _json_candidates(text: str) -> Iterator[tuple[Step, str]]:
    yield "json", text
    for block in reversed(_fenced_blocks(text)):
        yield "json", block
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        yield "braces", text[start : end + 1]


def _fenced_blocks(text: str) -> list[str]:
    """Return the texts between pairs of fences, without the language name of the opening one."""
    return [re.sub(r"\A[A-Za-z]*\s", "", block) for block in text.split(FENCE)[1::2]]


def _from_object(found: dict[str, Any], step: Step, scale: RatingScale) -> Parsed:
    reasoning = found.get("reasoning")
    rating, error = _read_rating(found["rating"], scale)
    return Parsed(rating, reasoning if isinstance(reasoning, str) else None, step, error)


def _read_rating(value: Any, scale: RatingScale) -> tuple[int | None, RatingError | None]:
    if isinstance(value, str):
        return _first_integer(value, scale)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, "no_rating_found"
    if not math.isfinite(value) or value != int(value):
        return None, "not_an_integer"
    return (int(value), None) if int(value) in scale else (None, "out_of_scale")


def _first_integer(text: str, scale: RatingScale) -> tuple[int | None, RatingError | None]:
    """Return the first integer of the scale that stands alone. A mention of the scale ("from 1 to 7") is no answer."""
    mention = rf"(?<![\w.-]){scale.minimum}\s*(?:-|–|—|\.\.|to|through|and)\s*{scale.maximum}(?![\w])"
    values = [int(match.replace("−", "-")) for match in STANDALONE_INTEGER.findall(re.sub(mention, " ", text))]
    for value in values:
        if value in scale:
            return value, None
    return None, "out_of_scale" if values else "no_rating_found"
