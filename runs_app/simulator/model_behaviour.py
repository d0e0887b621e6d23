"""Model-like answers, as a pure function of model, request text, images and seed.

Models differ in skill and bias, and items in difficulty and latent value. Each request adds noise. Ratings therefore
vary and correlate over models as in real data, and accuracies differ. The request's text and schema tell the kind of
answer: a rating, a judgement, a letter, a number, or an object of a schema.
"""

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runs_app.simulator import judge_behaviour
from runs_app.simulator.known_answers import AnswerKey, KnownCase
from runs_app.simulator.request_parser import ChatRequest, strip_provider
from runs_app.simulator.responses import CHARACTERS_PER_TOKEN
from runs_app.simulator.seeded_random import draw_normal, draw_uniforms, normal_quantile
from runs_app.simulator.skill_profiles import ModelProfile, TaskProfile

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


DEFAULT_SCALE = PromptScale(1, 7)
DEFAULT_SCORE_SCALE = PromptScale(0, 1)

# Shares of the variance of a question's difficulty: the item for all models, the item for this model, this call.
_ITEM_SHARE, _PAIR_SHARE, _CALL_SHARE = 0.4, 0.35, 0.25

_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
_REFERENCE = re.compile(
    r"^\W*(?:reference|target|correct|expected|gold)\b[\w ]*\W*(?::|\n)\s*([^\n]+)", re.IGNORECASE | re.MULTILINE
)
_FINAL = re.compile(r"ANSWER:\s*([^\n]+)")
_REMARKS = (
    "The overall impression settles it.",
    "The main subject leads, the background matters less.",
    "Some details point the other way, but not strongly.",
    "It is close to the middle of what one would expect.",
)
_NAMES = ("Oslo", "copper", "the second one", "a river", "photosynthesis", "1848", "the heart", "Bach")


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """A model's answer: its text, and its reasoning if the request sets a reasoning effort."""

    content: str
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class Answerer:
    """The simulated models: one seed, their skills or skill profiles by name, and their answer key."""

    seed: int
    skills: Mapping[str, float]
    key: AnswerKey
    judge: str = "plain"
    profiles: Mapping[str, ModelProfile] = field(default_factory=dict)

    def answer(self, request: ChatRequest) -> SimulatedAnswer:
        """Return the answer of `request.model`. The same request gets the same answer."""
        reasoning = f"Let me think. {_choose_remark(self.seed, request)}" if request.is_reasoning else None
        return SimulatedAnswer(self._write_content(request), reasoning)

    def _write_content(self, request: ChatRequest) -> str:
        schema = find_schema(request)
        if schema is not None:
            return json.dumps(self._fill_schema(schema, "answer", request))
        if (profile_answer := self._answer_by_profile(request)) is not None:
            return profile_answer
        if (verdict := judge_behaviour.find_requested_verdict(request)) is not None:
            # A verdict in the requested format, or in the style of the configured judge.
            if self.judge == "assorted":
                scale = find_scale(judge_behaviour.remove_answers(request.text), DEFAULT_SCORE_SCALE)
                rng = random.Random(f"{self.seed}\x1f{request.model}\x1f{request.text}")  # noqa: S311 - a simulation
                return verdict.vary_format((scale.low, scale.high), rng)[0]
            commanded_score = judge_behaviour.find_commanded_score(request) if self.judge == "obedient" else None
            if commanded_score is not None:
                return judge_behaviour.fence_verdict({"score": commanded_score, "reasoning": "I was told to."})
            if verdict.kind == "score":
                return self._write_judgement(request)
            return judge_behaviour.fence_verdict(
                {**self._build_choice(verdict, request), "reasoning": _choose_remark(self.seed, request)}
            )
        if wants_rating_object(request.text):
            return json.dumps(self._build_rating_object(request))
        if wants_score_object(request.text):
            return self._write_judgement(request)
        if request.response_format.get("type") == "json_object":
            return json.dumps({"answer": self._write_final_answer(request)})
        if wants_bare_number(request.text) and not find_choices(request.user_text):
            return str(self._draw_rating(request, find_scale(request.text, DEFAULT_SCALE)))
        mark = "Final Answer" if wants_final_answer(request.text) else "ANSWER"
        return f"{_choose_remark(self.seed, request)}\n{mark}: {self._write_final_answer(request)}"

    # Ratings ---------------------------------------------------------------------------------------------------------

    def _build_rating_object(self, request: ChatRequest) -> dict[str, object]:
        rating = self._draw_rating(request, find_scale(request.text, DEFAULT_SCALE))
        if not wants_reasoning(request.text):
            return {"rating": rating}
        return {"rating": rating, "reasoning": _choose_remark(self.seed, request)}

    def _draw_rating(self, request: ChatRequest, scale: PromptScale) -> int:
        """Return a rating on the scale: the image's norm or a latent value, plus bias and noise."""
        dimension = self.key.dimension(request)
        subject = request.images[0] if request.images else request.stable_text
        norm = self.key.norm(subject, dimension)
        latent = self._draw_normal("latent", subject, dimension)
        mean = norm.mean if norm else (scale.low + scale.high) / 2 + 0.22 * scale.width * latent
        spread = norm.sd if norm else 0.17 * scale.width
        model = strip_provider(request.model)
        deviation = (
            0.25 * self._draw_normal("bias", model, dimension)
            + 0.35 * self._draw_normal("pair", model, subject, dimension)
            + 0.45 * self._draw_call_noise(request)
        )
        return scale.clip(mean + spread * deviation)

    # Right and wrong -------------------------------------------------------------------------------------------------

    def _answer_by_profile(self, request: ChatRequest) -> str | None:
        """Return the answer of a model with a skill profile to a case of a parametric task; else None."""
        model = self.profiles.get(request.model) or self.profiles.get(strip_provider(request.model))
        match = self.key.find_case(request) if model else None
        profile = model.find_task(match[1].task) if model and match and match[1].task else None
        if profile is None or match is None:
            return None
        _, case = match
        return answer_case(case, profile, self.key.list_targets(case.task), self.seed, request)

    def _write_final_answer(self, request: ChatRequest) -> str:
        """Return the target if the model answers correctly, else a wrong answer of the same kind."""
        match = self.key.find_case(request)
        question = match[0] if match else request.stable_text
        options = find_choices(request.user_text)
        target = match[1].target if match else self._invent_target(question, options)
        if self._is_answered_correctly(request, question):
            return _find_letter(target, options) if options else target
        draw = draw_uniforms("wrong", self.seed, request.model, request.text, request.seed)[0]
        if options:
            others = [letter for letter in sorted(options) if letter != _find_letter(target, options)]
            return others[int(draw * len(others))] if others else "none"
        number = _find_last_number(target)
        if number is not None:
            return f"{number + 1 + int(draw * 9):g}"
        others = [name for name in _NAMES if name != target]
        return others[int(draw * len(others))]

    def _is_answered_correctly(self, request: ChatRequest, question: str) -> bool:
        """Return whether the model is right. Over items, the probability equals its skill.

        The outcomes of models correlate, because a hard item is hard for all of them.
        """
        model = strip_provider(request.model)
        difficulty = (
            math.sqrt(_ITEM_SHARE) * self._draw_normal("hard", question)
            + math.sqrt(_PAIR_SHARE) * self._draw_normal("hard", model, question)
            + math.sqrt(_CALL_SHARE) * self._draw_call_noise(request)
        )
        return difficulty < normal_quantile(self._get_skill(request.model))

    def _get_skill(self, model: str) -> float:
        skill = self._find_named_skill(model)
        return 0.45 + 0.45 * draw_uniforms("skill", self.seed, strip_provider(model))[0] if skill is None else skill

    def _find_named_skill(self, model: str) -> float | None:
        return self.skills.get(model, self.skills.get(strip_provider(model)))

    def _invent_target(self, question: str, options: Mapping[str, str]) -> str:
        draw = draw_uniforms("target", self.seed, question)[0]
        if options:
            return sorted(options)[int(draw * len(options))]
        if _NUMBER.search(question):
            return str(1 + int(draw * 99))
        return _NAMES[int(draw * len(_NAMES))]

    # Judges ----------------------------------------------------------------------------------------------------------

    def _build_choice(self, verdict: judge_behaviour.RequestedVerdict, request: ChatRequest) -> dict[str, object]:
        if verdict.kind == "criteria":
            return {"criteria": {name: self._draw_call_uniform(name, request) < 0.7 for name in verdict.names}}
        options = verdict.names if verdict.kind == "label" else ("A", "B", "tie")
        return {verdict.key: options[int(self._draw_call_uniform(verdict.kind, request) * len(options))]}

    def _write_judgement(self, request: ChatRequest) -> str:
        """Return a judge's reply: a sentence, then a fenced JSON block with a score on the rubric's scale."""
        scale = find_scale(judge_behaviour.remove_answers(request.text), DEFAULT_SCORE_SCALE)
        score = {"score": self._draw_score(request, scale), "reasoning": _choose_remark(self.seed, request)}
        return f"I compared the answer with the reference.\n\n{judge_behaviour.fence_verdict(score)}"

    def _draw_score(self, request: ChatRequest, scale: PromptScale) -> int:
        """Return a high score if the final answer agrees with the reference, else a low score.

        A judge with a configured skill makes errors.
        """
        model, subject = strip_provider(request.model), request.stable_text
        verdict = _agrees_with_reference(request.text)
        if verdict is not None and self._find_named_skill(request.model) is not None:
            verdict = verdict == self._is_answered_correctly(request, subject)
        quality = 0.5 + 0.25 * self._draw_normal("quality", subject) if verdict is None else float(verdict)
        leniency = 0.05 * self._draw_normal("leniency", model)
        slip = 0.12 * self._draw_normal("slip", model, subject)
        return scale.clip(scale.low + scale.width * (quality + leniency + slip))

    # Schemas ---------------------------------------------------------------------------------------------------------

    def _fill_schema(self, schema: dict[str, Any], name: str, request: ChatRequest) -> object:
        """Return a value that follows a JSON schema (objects, numbers, strings, booleans, arrays, enumerations)."""
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object" or "properties" in schema:
            return {key: self._fill_schema(sub, key, request) for key, sub in (schema.get("properties") or {}).items()}
        if kind in ("integer", "number"):
            if name == "score":
                scale = read_schema_scale(schema) or find_scale(request.text, DEFAULT_SCORE_SCALE)
                return self._draw_score(request, scale)
            return self._draw_rating(request, read_schema_scale(schema) or find_scale(request.text, DEFAULT_SCALE))
        if schema.get("enum"):
            return schema["enum"][int(self._draw_call_uniform(name, request) * len(schema["enum"]))]
        if kind == "boolean":
            return self._draw_call_uniform(name, request) < 0.5
        if kind == "array":
            items = schema.get("items") or {}
            return [self._fill_schema(items, f"{name}{index}", request) for index in range(schema.get("minItems", 1))]
        return self._write_final_answer(request) if "answer" in name.lower() else _choose_remark(self.seed, request)

    # Draws -----------------------------------------------------------------------------------------------------------

    def _draw_normal(self, *parts: object) -> float:
        return draw_normal(self.seed, *parts)

    def _draw_call_noise(self, request: ChatRequest) -> float:
        return draw_normal(
            self.seed, "call", strip_provider(request.model), request.text, *request.images, request.seed
        )

    def _draw_call_uniform(self, name: str, request: ChatRequest) -> float:
        return draw_uniforms(
            self.seed, name, strip_provider(request.model), request.text, *request.images, request.seed
        )[0]


def _choose_remark(seed: int, request: ChatRequest) -> str:
    draw = draw_uniforms("remark", seed, strip_provider(request.model), request.text, request.seed)[0]
    return _REMARKS[int(draw * len(_REMARKS))]


def _find_letter(target: str, options: Mapping[str, str]) -> str:
    """Return the letter of a target, which is the letter itself or the text of the option."""
    letter = target.strip().strip("().").upper()
    if letter in options:
        return letter
    return next((key for key, option in options.items() if option.lower() == target.strip().lower()), target)


def _find_last_number(text: str) -> float | None:
    """Return the last number in a text, or None."""
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "")) if numbers else None


def _agrees_with_reference(text: str) -> bool | None:
    """Return whether the last `ANSWER:` agrees with the quoted reference; None if the text lacks one of them."""
    reference, finals = _REFERENCE.search(text), _FINAL.findall(text)
    if reference is None or not finals:
        return None
    target, answer = str(reference[1]).strip(), str(finals[-1]).strip()
    target_number, answer_number = _find_last_number(target), _find_last_number(answer)
    if target_number is not None and answer_number is not None:
        return math.isclose(target_number, answer_number)
    return target.strip(" .").lower() == answer.strip(" .").lower()


_THOUGHTS = (
    "First I go through what is given.",
    "One part follows from the other.",
    "I check this step once more.",
    "Then I carry the result on.",
    "Nothing else changes it.",
)


def answer_case(case: KnownCase, profile: TaskProfile, targets: Sequence[str], seed: int, request: ChatRequest) -> str:
    """Return an answer with the accuracy and the length of the profile.

    targets: the targets of all cases of the task, which serve as wrong answers. Each model, request text and request
    seed has independent draws.
    """
    parts = ("case", seed, strip_provider(request.model), request.text, request.seed)
    knowledge, guess, start, _ = draw_uniforms(*parts)
    answer = case.target if knowledge < profile.skill(case.params) else _make_guess(case, targets, guess)
    final = f"Final Answer: {answer}"
    tokens = profile.draw_tokens(case.params, draw_normal("length", *parts))
    return _write_reasoning(tokens * CHARACTERS_PER_TOKEN - len(final) - 2, int(start * len(_THOUGHTS))) + final


def _make_guess(case: KnownCase, targets: Sequence[str], draw: float) -> str:
    """Return one of the choices with equal probability. A guess of free text is always wrong."""
    if case.choices:
        return case.choices[int(draw * len(case.choices))]
    others = [target for target in targets if target != case.target]
    return others[int(draw * len(others))] if others else f"not {case.target}"


def _write_reasoning(length: int, start: int) -> str:
    """Return reasoning of this many characters and a blank line, or "" if `length` is not positive."""
    if length <= 0:
        return ""
    thoughts = _THOUGHTS[start:] + _THOUGHTS[:start]
    text = " ".join(thoughts) + " "
    return (text * (length // len(text) + 1))[:length] + "\n\n"
