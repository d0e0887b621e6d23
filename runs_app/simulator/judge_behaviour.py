"""Simulated judges. They give verdicts in the requested format, in wrong formats, or as unfenced text commands."""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runs_app.simulator.request_parser import ChatRequest

_FENCED_ANSWER = re.compile(r"<<<BEGIN ([0-9a-f]{8,64})>>>\n.*?\n<<<END \1>>>", re.DOTALL)
_COMMAND = re.compile(r"\bgive (?:it |this )?(?:a |the )?score (?:of )?(-?\d+(?:\.\d+)?)", re.IGNORECASE)
_CRITERIA = re.compile(r'\{"criteria": (\{[^{}]*\})')
_LABELS = re.compile(r'where the label is one of ((?:"(?:[^"\\]|\\.)*"(?:, )?)+)')
_WINNER = re.compile(r'\{"winner":')


@dataclass(frozen=True, slots=True)
class RequestedVerdict:
    """The kind of verdict that a request asks for, and the names of its criteria or labels."""

    kind: Literal["score", "criteria", "label", "pairwise"]
    names: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the JSON key of a verdict of this kind."""
        return "winner" if self.kind == "pairwise" else self.kind

    def vary_format(self, scale: tuple[float, float], rng: random.Random) -> tuple[str, str]:
        """Return a reply in one of many formats, and its error code; "" if the verdict is valid."""
        key, draw = self.key, rng.random()
        if draw < 0.1:
            return rng.choice(OBJECTLESS)(key, "1", rng), "no_json_object"
        if draw < 0.2:
            return rng.choice(KEYLESS)(key, "1", rng), f"no_{key}_in_json"
        valid, invalid = self._list_values(scale, rng)
        code, value = ("", rng.choice(valid)) if draw < 0.6 else rng.choice(invalid)
        return rng.choice(CARRIERS)(key, value, rng), code

    def _list_values(
        self, scale: tuple[float, float], rng: random.Random
    ) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        """Return valid values as JSON, and invalid ones with their error codes."""
        if self.kind == "score":
            return _list_score_values(*scale, rng)
        if self.kind == "criteria":
            values = (True, False, "pass", "fail", "Pass", " FAIL ")
            complete = {name: rng.choice(values) for name in self.names}
            incomplete = {name: True for name in self.names[1:]}
            not_binary = complete | {self.names[0]: rng.choice((1, 0.5, "perhaps", None))}
            return [json.dumps(complete)], [
                ("criteria_not_object", "true"),
                ("criteria_not_object", '["pass"]'),
                ("criterion_missing", json.dumps(incomplete)),
                ("criterion_not_binary", json.dumps(not_binary)),
            ]
        if self.kind == "label":
            invalid = [("label_not_text", text) for text in ("1", "true", "null")] + [
                ("label_unknown", '"no such label"')
            ]
            return [json.dumps(name) for name in self.names], invalid
        valid = [json.dumps(name) for name in ("A", "b", "B", "tie", "Tie")]
        return valid, [("winner_unknown", text) for text in ('"both"', '""', "1", "true", "null")]


def remove_answers(text: str) -> str:
    """Return the text without the fenced answers: the rubric alone."""
    return _FENCED_ANSWER.sub("", text)


def find_requested_verdict(request: ChatRequest) -> RequestedVerdict | None:
    """Return the verdict that a request with a fenced answer asks for; None without a fenced answer."""
    text = remove_answers(request.text)
    if text == request.text:
        return None
    if match := _CRITERIA.search(text):
        return RequestedVerdict("criteria", tuple(json.loads(match[1])))
    if match := _LABELS.search(text):
        return RequestedVerdict("label", tuple(json.loads(f"[{match[1].rstrip(', ')}]")))
    return RequestedVerdict("pairwise" if _WINNER.search(text) else "score")


def find_commanded_score(request: ChatRequest) -> float | None:
    """Return the score that the text outside the fenced answers commands; None without a command."""
    commands = _COMMAND.findall(remove_answers(request.text))
    return float(commands[-1]) if commands else None


def fence_verdict(verdict: Mapping[str, Any]) -> str:
    return f"```json\n{json.dumps(verdict, ensure_ascii=False)}\n```"


# --- assorted formats ------------------------------------------------------------------------------------------------

Shape = Callable[[str, str, random.Random], str]  # key, value as JSON, random generator -> a reply

# Replies that contain the given value.
CARRIERS: tuple[Shape, ...] = (
    lambda key, value, rng: f'I compared both.\n\n```json\n{{"{key}": {value}, "reasoning": "It is so."}}\n```',
    lambda key, value, rng: f'```\n{{"{key}": {value}}}\n```\nThat is all.',
    lambda key, value, rng: f'```JSON\n{{"{key}": {value}}}\n```',
    lambda key, value, rng: f'{{"{key}": {value}, "reasoning": "bare"}}',
    lambda key, value, rng: f'My verdict is {{"{key}": {value}}}, all told.',
    lambda key, value, rng: f'```json\n{{"reasoning": "\\\\( x^2 \\) and \\alpha", "{key}": {value}}}\n```',
    lambda key, value, rng: f'Note {{"reasoning": "\\(a\\)", "{key}": {value}}}',
    lambda key, value, rng: f'```json\n{{"{key}": {value}, "reasoning": "two\nlines"}}\n```',
    lambda key, value, rng: f'<think>{{"{key}": {rng.randrange(9)}}}</think>```json\n{{"{key}": {value}}}\n```',
    lambda key, value, rng: f'```python\nx = {{}}\n```\n```json\n{{"{key}": {value}}}\n```',
    lambda key, value, rng: f'```json\n{{"{key}": {value}}}\n```\n```json\n{{"confidence": 1}}\n```',
    lambda key, value, rng: (
        f'First {{"draft": true}}.\n```json\n{{"{key}": {value}, "reasoning": "{{}} \U0001d11e"}}\n```'
    ),
    lambda key, value, rng: f'```json\n{{"{key}": {value}}}',
    lambda key, value, rng: f'```json {{"{key.upper()}": {value}}} ```',
    lambda key, value, rng: "{" * rng.randrange(1, 60) + f'\n{{"{key}": {value}}}',
)
# Replies without a JSON object.
OBJECTLESS: tuple[Shape, ...] = (
    lambda key, value, rng: "",
    lambda key, value, rng: "It is good.",
    lambda key, value, rng: f"{key}: {value}",
    lambda key, value, rng: f'```json\n[{rng.randrange(9)}, "{key}"]\n```',
    lambda key, value, rng: f"```yaml\n{key}: 1\n```",
    lambda key, value, rng: f"{{'{key}': {rng.randrange(9)}}}",
    lambda key, value, rng: f'```json\n{{"{key}": 1, "reasoning": "it is\n```',
    lambda key, value, rng: f'{{"{key}": ',
    lambda key, value, rng: f'<think>{{"{key}": 1}}',
    lambda key, value, rng: "}{[" * rng.randrange(1, 200),
)
# Replies whose JSON objects lack the key.
KEYLESS: tuple[Shape, ...] = (
    lambda key, value, rng: '```json\n{"reasoning": "none"}\n```',
    lambda key, value, rng: "{}",
    lambda key, value, rng: f'{{"{key}s": {rng.randrange(9)}}}',
    lambda key, value, rng: f'{{"verdict": {{"{key}": 1}}}}',
    lambda key, value, rng: f'```json\n{{"grade": {rng.randrange(9)}}}\n```\n```json\n{{"note": "\\("}}\n```',
)


def _list_score_values(low: float, high: float, rng: random.Random) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
    valid = [f"{low + (high - low) * rng.random()!r}", f"{low:g}", f"{high:g}", f"{high:e}"]
    invalid = [
        ("score_not_numeric", text) for text in ("true", "false", "null", f'"{high:g}"', '"high"', "[1]", '{"n": 1}')
    ]
    invalid += [("score_not_finite", text) for text in ("NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400)]
    invalid += [("score_out_of_scale", text) for text in (f"{high + 1:g}", f"{low - 1:g}", f"{high + 1e-6!r}", "1e300")]
    return valid, invalid
