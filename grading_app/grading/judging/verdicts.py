"""The parser of a judge's reply, and the format of verdicts. Pure functions.

A reply ends in a fenced block of JSON. Fenced blocks are tried from last to first, then bare {...} in the same order.
The first object with the verdict's key decides; no other object overrules it.
An unreadable reply gives a result with a code, never a zero score and never an exception.

A judge may quote the answer, including its think tags. So only think blocks at the start of the reply are skipped.
A tag elsewhere hides nothing, so an answer gains nothing if the judge repeats its tags. An object that stands in the
answer, too, is taken for a quotation: it is a verdict only if the reply has no other and ends with it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs_app.llm.failures import replace_unstorable
from runs_app.llm.rating_parser import THINK_TAG

FENCE = "```"
LANGUAGE = re.compile(r"[^\S\n]*[\w-]*[^\S\n]*\n?")  # Follows an opening fence. Each part may be empty.
STRAY_BACKSLASH = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
MAX_READ_LENGTH = 50_000  # Characters from the end, where the verdict is.
MAX_OBJECTS = 200  # Bare braces to try.
MAX_RAW_LENGTH = 2_000
MAX_REASONING_LENGTH = 20_000
TRUTH_WORDS = {
    "pass": True,
    "passed": True,
    "true": True,
    "yes": True,
    "fail": False,
    "failed": False,
    "false": False,
    "no": False,
}
WINNERS = {"a": "a", "b": "b", "tie": "tie"}
KEYS: Mapping[str, str] = {"score": "score", "criteria": "criteria", "label": "label", "pairwise": "winner"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A score, or a winner for a comparison of two answers. An error replaces both.

    `raw` is the original value. `detail` holds the verdict on each criterion, or the label.
    """

    score: float | None = None
    winner: str = ""
    raw: str = ""
    error: str = ""
    reasoning: str = ""
    detail: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if bool(self.error) == (self.score is not None or bool(self.winner)):
            raise ValueError(f"a verdict has either a value or an error: {self!r}")


def read_verdict(
    reply: str, rubric: Mapping[str, Any], answers: Sequence[str] = (), *, is_truncated: bool = False
) -> Verdict:
    """Return the verdict in a judge's reply. `rubric` is its content: kind, and scale, criteria or labels.

    `answers` are the judged answers, whose objects the judge may quote. Error codes: no_json_object,
    no_<key>_in_json, quoted_verdict, and the codes of the kind.
    """
    key = KEYS[rubric["kind"]]
    has_object = False
    quoted: tuple[str, dict[str, Any]] | None = None
    text = _strip_leading_thoughts(_double_stray_backslashes(reply))[-MAX_READ_LENGTH:]
    judged = [_squeeze(_double_stray_backslashes(answer)) for answer in answers if "{" in answer]
    for source, candidate in _iterate_objects(text):
        has_object = True
        lower_keys = {name.lower(): value for name, value in candidate.items()}
        if key not in lower_keys:
            continue
        if not any(_squeeze(source) in answer for answer in judged):
            return parse_verdict(lower_keys, rubric)
        quoted = quoted or (source, lower_keys)
    if quoted is None:
        return Verdict(error=f"no_{key}_in_json" if has_object else "no_json_object")
    source, lower_keys = quoted
    if is_truncated or not text.rstrip().removesuffix(FENCE).rstrip().endswith(source.rstrip()):
        return Verdict(error="quoted_verdict")
    return parse_verdict(lower_keys, rubric)


def _squeeze(text: str) -> str:
    return "".join(text.split())


def parse_verdict(reply: Mapping[str, Any], rubric: Mapping[str, Any]) -> Verdict:
    """Return the verdict in an object with the verdict's key: a judge's, or one built from a person's ratings."""
    key = KEYS[rubric["kind"]]
    verdict = READERS[rubric["kind"]](reply[key], rubric)
    reasoning = reply.get("reasoning")
    raw = json.dumps(reply[key], ensure_ascii=False)[:MAX_RAW_LENGTH]
    return Verdict(
        score=verdict.score,
        winner=verdict.winner,
        error=verdict.error,
        detail=verdict.detail,
        raw=replace_unstorable(raw),
        reasoning=replace_unstorable(reasoning[:MAX_REASONING_LENGTH]) if isinstance(reasoning, str) else "",
    )


# --- the kinds of verdicts -------------------------------------------------------------------------------------------


def _read_score(value: Any, rubric: Mapping[str, Any]) -> Verdict:
    """Return the score. Codes: score_not_numeric (also for booleans), score_not_finite, score_out_of_scale."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Verdict(error="score_not_numeric")
    number = _convert_to_float(value)
    if not math.isfinite(number):
        return Verdict(error="score_not_finite")
    if not rubric["min"] <= number <= rubric["max"]:
        return Verdict(error="score_out_of_scale")
    return Verdict(score=number)


def _read_criteria(value: Any, rubric: Mapping[str, Any]) -> Verdict:
    """Return the share of the total weight whose criteria are met.

    Codes: criteria_not_object, criterion_missing, criterion_not_binary.
    """
    if not isinstance(value, dict):
        return Verdict(error="criteria_not_object")
    truths = {_normalize_name(name): _read_truth(truth) for name, truth in value.items()}
    met = {
        criterion["name"]: truths.get(_normalize_name(criterion["name"]), "missing") for criterion in rubric["criteria"]
    }
    if "missing" in met.values():
        return Verdict(error="criterion_missing")
    if None in met.values():
        return Verdict(error="criterion_not_binary")
    weights = {criterion["name"]: float(criterion.get("weight", 1)) for criterion in rubric["criteria"]}
    share = math.fsum(weights[name] for name, is_met in met.items() if is_met is True) / math.fsum(weights.values())
    return Verdict(score=share, detail={"criteria": met})


def _read_label(value: Any, rubric: Mapping[str, Any]) -> Verdict:
    """Return the score of the label, by default its index in the list. Codes: label_not_text, label_unknown."""
    if not isinstance(value, str):
        return Verdict(error="label_not_text")
    for index, label in enumerate(rubric["labels"]):
        if _normalize_name(label["name"]) == _normalize_name(value):
            return Verdict(score=float(label.get("score", index)), detail={"label": label["name"]})
    return Verdict(error="label_unknown")


def _read_winner(value: Any, rubric: Mapping[str, Any]) -> Verdict:
    """Return the winner. Code: winner_unknown, if the value is not A, B or a tie."""
    winner = WINNERS.get(_normalize_name(value)) if isinstance(value, str) else None
    return Verdict(winner=winner) if winner else Verdict(error="winner_unknown")


READERS: Mapping[str, Callable[[Any, Mapping[str, Any]], Verdict]] = {
    "score": _read_score,
    "criteria": _read_criteria,
    "label": _read_label,
    "pairwise": _read_winner,
}


def _convert_to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _read_truth(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return TRUTH_WORDS.get(_normalize_name(value)) if isinstance(value, str) else None


def _normalize_name(text: str) -> str:
    return " ".join(text.split()).casefold()


# --- the thoughts before a verdict -----------------------------------------------------------------------------------


def _strip_leading_thoughts(text: str) -> str:
    """Return the text after its leading think blocks, or an empty text if the last block is not closed.

    A block ends at its first closing tag outside a JSON object; a tag within an object is a quotation.
    """
    start, thinking = 0, False
    spans = [(begin, end) for begin, end, _ in _iterate_bare_objects(text)]
    for tag in THINK_TAG.finditer(text):
        closes = bool(tag.group(1))
        if not thinking and (closes or text[start : tag.start()].strip()):
            break
        if not (closes and any(begin < tag.start() < end for begin, end in spans)):
            start, thinking = tag.end(), not closes
    return "" if thinking else text[start:]


# --- the objects in a text -------------------------------------------------------------------------------------------


def _iterate_objects(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON objects of a reply with their text: fenced blocks, last first, then bare {...}, last first."""
    # The content of each fenced block, without the language name. An unclosed fence has no content. It needs one pass,
    # so that a reply with endless blanks after a fence does not slow the reader down.
    contents = text.split(FENCE)[1:-1:2]
    fenced_blocks = [LANGUAGE.sub("", block, count=1) for block in contents]
    for block in reversed(fenced_blocks):
        if (parsed := _parse_object(block)) is not None:
            yield block, parsed
    yield from reversed([(text[start:end], parsed) for start, end, parsed in _iterate_bare_objects(text)])


def _double_stray_backslashes(text: str) -> str:
    """Double each backslash that starts no JSON escape, mostly from LaTeX. Valid JSON does not change."""
    return STRAY_BACKSLASH.sub(lambda match: match.group(0) if match.group(1) else "\\\\", text)


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        parsed = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _iterate_bare_objects(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the outermost objects among the text's last braces, in order, each with its start and end."""
    decoder = json.JSONDecoder(strict=False)
    end = 0
    for start in [match.start() for match in re.finditer(r"\{", text)][-MAX_OBJECTS:]:
        if start < end:
            continue
        try:
            parsed, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield start, end, parsed
