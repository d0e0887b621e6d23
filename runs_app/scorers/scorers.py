"""Scorers: pure functions from (answer, item) to a score.

A new scorer is one function below with the decorator `@register_scorer(...)`, which declares its parameters. Forms and
commands find it by name, and check its parameters before anything is graded. An unreadable answer gives a result with a
code, not an exception. It is stored, counted, and never read as zero.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from datasets_app.generators.registry import UnknownTask, get_generator
from evalsite.lib.text.names import write_as_words
from runs_app.llm.rating_parser import find_json_objects, strip_thinking
from runs_app.scorers.answer_extraction import (
    find_chosen_letter,
    find_final_part,
    find_last_number,
    find_target_letter,
    normalize,
)
from runs_app.scorers.scorer_parameters import (
    Parameter,
    declare_number,
    declare_pattern,
    declare_text,
    declare_whole_number,
)

MAX_SEARCH_LENGTH = 20_000  # Characters from the end, where answers are.
SEARCH_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """The fields of an item that a scorer may use. `task` is the parametric task in its metadata."""

    target: str = ""
    choices: tuple[str, ...] = ()
    task: str = ""


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """The text of an answer and, for a rated item, the parsed rating or the error code.

    `output_tokens` are the tokens of the answer with its reasoning, or None if the provider did not report them.
    """

    text: str
    rating: int | None = None
    rating_error: str | None = None
    truncated: bool = False
    output_tokens: int | None = None


LARGEST_SCORE = 1e50  # Statistics take powers of scores, up to the fifth, which must not overflow.


def is_valid_score(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= LARGEST_SCORE


@dataclass(frozen=True, slots=True)
class Score:
    """A score. `value` is None if and only if `parse_error` is set. `raw` is the parsed text.

    `detail` has other facts about the answer, which are stored with the score as JSON.
    """

    value: float | None
    raw: str | None = None
    parse_error: str | None = None
    detail: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (not self.parse_error):
            raise ValueError(f"a score has either a value or a parse error: {self.value!r}, {self.parse_error!r}")
        if self.value is not None and not is_valid_score(self.value):
            raise ValueError(f"{self.value} is not a valid score")

    @property
    def parse_ok(self) -> bool:
        return self.parse_error is None


Parameters = Mapping[str, Any]
"""The values of a scorer's parameters, by name: those of its declarations, with their types and defaults."""
ScoringFunction = Callable[[ScoredAnswer, ScoredItem, Parameters], Score]


@dataclass(frozen=True, slots=True)
class Scorer:
    """A registered scorer, with the declarations of its parameters. The first one may follow the name and a colon.

    label: its name for people. summary: what it compares, for the forms.
    """

    name: str
    label: str
    summary: str
    function: ScoringFunction
    parameters: tuple[Parameter, ...] = ()

    @property
    def parameter(self) -> str:
        """Return the name of the first parameter, or an empty string."""
        return self.parameters[0].name if self.parameters else ""

    @property
    def needs_parameter(self) -> bool:
        return any(parameter.required for parameter in self.parameters)

    def score(self, answer: ScoredAnswer, item: ScoredItem, texts: Mapping[str, str]) -> Score:
        """Return the score of an answer. `texts` are valid parameters as a design stores them."""
        return self.function(answer, item, _convert_parameters(self.parameters, tuple(texts.items())))

    @property
    def form_label(self) -> str:
        """Return the label in forms. It begins with the label in results."""
        return f"{self.label}: {self.summary}"

    @property
    def usage(self) -> str:
        """Return the syntax, such as `regex:PATTERN`."""
        return f"{self.name}:{self.parameter.upper()}" if self.parameter else self.name


@lru_cache(maxsize=256)
def _convert_parameters(declared: tuple[Parameter, ...], texts: tuple[tuple[str, str], ...]) -> Parameters:
    """Return the values of all parameters, cached for all answers that a rule scores."""
    written = dict(texts)
    return MappingProxyType(
        {one.name: one.convert(written[one.name]) if one.name in written else one.default for one in declared}
    )


_registry: dict[str, Scorer] = {}
SCORERS: Mapping[str, Scorer] = MappingProxyType(_registry)


class ScorerError(ValueError):
    """An unknown scorer, or invalid parameters; the message names them."""


def register_scorer(
    name: str, label: str, summary: str, *parameters: Parameter
) -> Callable[[ScoringFunction], ScoringFunction]:
    """Register a function under a unique name, with the parameters that it takes."""

    def register(function: ScoringFunction) -> ScoringFunction:
        if name in _registry:
            raise ValueError(f"the scorer name {name} is already registered")
        _registry[name] = Scorer(name, label, summary, function, parameters)
        return function

    return register


def read_scorer(written: str | Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the name and the parameters of `regex:PATTERN` or of {"name": "regex", "pattern": PATTERN}.

    All text after the first colon is the value, unchanged. Raise ScorerError if the scorer or a parameter is invalid.
    """
    if isinstance(written, str):
        name, colon, value = written.partition(":")
        name = name.strip()
        scorer = SCORERS.get(name)
        parameters = {(scorer.parameter if scorer else "") or "value": value} if colon else {}
    else:
        name = str(written.get("name", ""))
        parameters = {
            key: (
                f"{Decimal(str(value)):f}"
                if isinstance(value, int | float) and not isinstance(value, bool)
                else str(value)
            )
            for key, value in written.items()
            if key != "name"
        }
    if problems := find_parameter_problems(name, parameters):
        raise ScorerError(" ".join(problems))
    return name, parameters


def format_scorer(name: str, parameters: Mapping[str, str]) -> str:
    """Return the scorer as people write it: `exact_match`, `regex:PATTERN`."""
    value = parameters.get(SCORERS[name].parameter) if name in SCORERS else None
    return name if value is None else f"{name}:{value}"


def label_scorer(name: str, parameters: Mapping[str, Any]) -> str:
    """Return the name for people, such as "Exact match" or "Number (tolerance 0.1)". A rule of another site may be
    unknown here."""
    label = SCORERS[name].label if name in SCORERS else write_as_words(name)
    settings = ", ".join(f"{key} {value}" for key, value in sorted(parameters.items()))
    return f"{label} ({settings})" if settings else label


def find_parameter_problems(name: str, parameters: Mapping[str, str]) -> list[str]:
    """Return the reasons why these parameters are invalid for this scorer, as sentences for their author."""
    scorer = SCORERS.get(name)
    if scorer is None:
        return [f"There is no scorer {name}; available scorers: {', '.join(row.usage for row in SCORERS.values())}."]
    declared = {parameter.name: parameter for parameter in scorer.parameters}
    problems = [
        f"The scorer {name} needs a {parameter.name}: write {scorer.usage}."
        for parameter in scorer.parameters
        if parameter.required and not parameters.get(parameter.name)
    ]
    for key, value in parameters.items():
        if not declared:
            problems.append(f"The scorer {name} takes no parameter.")
        elif key not in declared:
            problems.append(f"The scorer {name} has no parameter {key!r}; {_list_parameters(scorer)}.")
        elif not (value == "" and declared[key].required) and (problem := declared[key].find_problem(name, value)):
            problems.append(problem)
    return problems


def _list_parameters(scorer: Scorer) -> str:
    names = [f"{one.name}, {one.accepts}" for one in scorer.parameters]
    return f"its parameter is {names[0]}" if len(names) == 1 else f"its parameters are {'; '.join(names)}"


@register_scorer("rating", "Rating", "the number that the model gave")
def rating(answer: ScoredAnswer, item: ScoredItem, parameters: Parameters) -> Score:
    """Return the rating as a number, or the parser's error code."""
    if answer.rating is None:
        return _make_unreadable_score(answer.rating_error or "no_rating_found")
    return Score(float(answer.rating), str(answer.rating))


@register_scorer("exact_match", "Exact match", "the final part of the answer is the target")
def exact_match(answer: ScoredAnswer, item: ScoredItem, parameters: Parameters) -> Score:
    """Return 1 if the final part equals the target except case, white space and a final full stop; else 0."""
    if not item.target.strip():
        return _make_unreadable_score("empty_target")
    part = find_final_part(answer.text)
    return _make_score(normalize(part) == normalize(item.target), part)


@register_scorer("multiple_choice", "Multiple choice", "the chosen letter is the target's")
def multiple_choice(answer: ScoredAnswer, item: ScoredItem, parameters: Parameters) -> Score:
    """Return 1 if the chosen letter is the target's, else 0. The target is a letter or the text of a choice."""
    if not item.target.strip():
        return _make_unreadable_score("empty_target")
    target = find_target_letter(item.target, item.choices)
    if target is None:
        return _make_unreadable_score("target_not_letter")
    letter = find_chosen_letter(answer.text, item.choices)
    return _make_unreadable_score("no_letter_found") if letter is None else _make_score(letter == target, letter)


@register_scorer(
    "numeric",
    "Number within tolerance",
    "the last number is the target's",
    declare_number("tolerance", ge=0, le=10**12, default=0.0),
)
def numeric(answer: ScoredAnswer, item: ScoredItem, parameters: Parameters) -> Score:
    """Return 1 if the last number of the final part equals the target's last number within `tolerance`, else 0."""
    if not item.target.strip():
        return _make_unreadable_score("empty_target")
    target = _read_target_number(item.target)
    if target is None:
        return _make_unreadable_score("target_not_numeric")
    number = find_last_number(find_final_part(answer.text))
    if number is None:
        return _make_unreadable_score("no_number_found")
    tolerance = max(1e-9, parameters["tolerance"])
    return _make_score(math.isclose(number[0], target[0], rel_tol=1e-9, abs_tol=tolerance), number[1])


@lru_cache(maxsize=4096)
def _read_target_number(target: str) -> tuple[float, str] | None:
    """Return the target's last number, cached for all answers to an item."""
    return find_last_number(target)


@register_scorer("set_match", "Same set", "the answer lists the elements of the target")
def set_match(answer: ScoredAnswer, item: ScoredItem, parameters: Parameters) -> Score:
    """Return 1 if the final part lists the same elements as the target, in any order, repeats allowed; else 0."""
    target = _split_elements(item.target)
    if not target:
        return _make_unreadable_score("empty_target")
    part = find_final_part(answer.text)
    return _make_score(_split_elements(part) == target, part)


@register_scorer(
    "json_field",
    "JSON field",
    "a field of the JSON answer is the target",
    declare_text("field", max_length=500, required=True),
)
def json_field(answer: ScoredAnswer, item: ScoredItem, parameters: Parameters) -> Score:
    """Return 1 if the field (a path such as "result.city") of the JSON answer is the target, as text or
    number; else 0."""
    if not item.target.strip():
        return _make_unreadable_score("empty_target")
    objects = [parsed for _, parsed in find_json_objects(strip_thinking(answer.text))]
    if not objects:
        return _make_unreadable_score("no_json_object")
    values = [value for parsed in objects if (value := _get_at_path(parsed, parameters["field"])) is not None]
    if not values:
        return _make_unreadable_score("no_such_field")
    raw = values[0] if isinstance(values[0], str) else json.dumps(values[0], ensure_ascii=False)
    return _make_score(_is_same_text_or_number(raw, item.target), raw)


@register_scorer("regex", "Pattern", "a regular expression finds the target", declare_pattern("pattern", required=True))
def regex(answer: ScoredAnswer, item: ScoredItem, parameters: Parameters) -> Score:
    """Return 1 if the pattern matches, else 0.

    With a group: 1 if the group's last match is the target.
    Without a group: 1 if the pattern is found at all.
    """
    import regex as timed_re

    text = strip_thinking(answer.text)[-MAX_SEARCH_LENGTH:]
    last = None  # The first group of the last match that is not empty, or the match of a pattern without groups.
    try:
        compiled = timed_re.compile(parameters["pattern"])
        has_group = compiled.groups > 0
        for match in compiled.finditer(text, timeout=SEARCH_SECONDS):
            groups = [group for group in match.groups() if group is not None]
            last = groups[0] if groups else match.group()
    except TimeoutError:
        return _make_unreadable_score("pattern_too_slow")
    if not has_group:
        return _make_score(last is not None, last)
    if not item.target.strip():
        return _make_unreadable_score("empty_target")
    return (
        _make_unreadable_score("no_match")
        if last is None
        else _make_score(_is_same_text_or_number(last, item.target), last)
    )


@register_scorer(
    "final_answer",
    "Final answer",
    "the answer that the rule of a parametric task reads is the target",
    declare_whole_number("limit", ge=1, le=999_999_999),
)
def final_answer(answer: ScoredAnswer, item: ScoredItem, parameters: Parameters) -> Score:
    """Return 1 if the answer that the task's pattern reads is the target, else 0.

    An answer without a valid final answer is wrong. A truncated answer has no score. With `limit`, an answer of more
    output tokens counts as truncated.
    """
    try:
        rule = get_generator(item.task).answer
    except UnknownTask:
        return _make_unreadable_score("no_parametric_task")
    if not item.target.strip():
        return _make_unreadable_score("empty_target")
    extraction = rule.read(strip_thinking(answer.text), item.choices or None)
    limit = parameters["limit"]
    truncated = answer.truncated or bool(limit and answer.output_tokens and answer.output_tokens > limit)
    correct = rule.is_correct(extraction, item.target)
    detail = {
        "extracted": extraction.extracted,
        "normalised": extraction.normalised,
        "valid": extraction.valid,
        "correct": correct,
        "truncated": truncated,
    }
    value = None if truncated else float(correct)
    return Score(value, extraction.extracted, "truncated" if truncated else None, detail)


def _make_score(right: bool, raw: str | None) -> Score:
    return Score(1.0 if right else 0.0, raw)


def _make_unreadable_score(code: str) -> Score:
    return Score(None, None, code)


def _split_elements(text: str) -> frozenset[str]:
    """Return the elements of a JSON list, or of a text separated by commas, semicolons or line ends."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    elements = (
        [str(element) for element in parsed] if isinstance(parsed, list) else re.split(r"[,;\n]", text.strip("[](){}"))
    )
    return frozenset(element for element in map(normalize, elements) if element)


def _get_at_path(value: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


def _is_same_text_or_number(raw: str, target: str) -> bool:
    if normalize(raw) == normalize(target):
        return True
    try:
        return math.isclose(float(raw), float(target), rel_tol=1e-9)
    except ValueError:
        return False
