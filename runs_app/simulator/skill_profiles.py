"""Skill profiles of simulated models. Their answers to parametric tasks get worse and longer with the parameters.

A profile is a JSON file. Its keys are models, then tasks; the task "*" stands for all other tasks:

    {"sim-large": {"*": {"start": 4, "falls": {"length": 0.1}, "tokens": 60, "grows": {"length": 0.04}}},
     "sim-small": {"arithmetic": {"start": 2, "falls": {"length": 0.1, "format": {"T_F": 0.5}}}}}

The probability of knowing an answer is logistic(start - sum of falls). A model that does not know the answer guesses
among the choices. The number of tokens of an answer is log-normal: its median is `tokens` times exp(sum of grows), and
the standard deviation of its logarithm is `spread`. An answer beyond the request's maximum is truncated. The two draws
are independent.

`falls` and `grows` hold a slope per unit of a number, or an amount for each value of an option. A parameter that a case
does not set adds nothing. The true surface of every model is therefore known, and can be compared with the surface that
an experiment recovers (`ModelProfile.skill`, `ModelProfile.truncation`).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import NormalDist
from typing import Any

from runs_app.simulator.config import ConfigError

ANY_TASK = "*"
MAX_NUMBER = 1e6  # The limit of every number in a profile.
MAX_TOKENS = 100_000  # The limit of one answer.

Effects = Mapping[str, float | Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class TaskProfile:
    """The behaviour of one model on one task. Without `tokens`, answers are one short line."""

    start: float = 2.0
    falls: Effects = field(default_factory=dict)
    tokens: float = 0.0
    grows: Effects = field(default_factory=dict)
    spread: float = 0.3

    def skill(self, params: Mapping[str, Any]) -> float:
        """Return the probability of knowing the answer at these parameters: the true accuracy beyond guessing."""
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, self.start - _add_effects(self.falls, params)))))

    def draw_tokens(self, params: Mapping[str, Any], deviate: float) -> int:
        """Return the tokens of the answer for a standard normal deviate."""
        if not self.tokens:
            return 0
        return round(min(MAX_TOKENS, self._median(params) * math.exp(min(50.0, self.spread * deviate))))

    def truncation(self, params: Mapping[str, Any], max_tokens: int | None) -> float:
        """Return the probability that the answer is longer than `max_tokens`; None means no limit."""
        if max_tokens is None or not self.tokens or max_tokens >= MAX_TOKENS:
            return 0.0
        distance = math.log((max_tokens + 0.5) / self._median(params))
        if not self.spread:
            return float(distance < 0)
        return 1 - NormalDist().cdf(distance / self.spread)

    def _median(self, params: Mapping[str, Any]) -> float:
        return self.tokens * math.exp(max(-50.0, min(50.0, _add_effects(self.grows, params))))


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The behaviour of one model: profiles by task. ANY_TASK is the key for all other tasks."""

    tasks: Mapping[str, TaskProfile]

    def find_task(self, task: str) -> TaskProfile | None:
        return self.tasks.get(task, self.tasks.get(ANY_TASK))

    def skill(self, task: str, params: Mapping[str, Any]) -> float | None:
        """Return the true accuracy beyond guessing at a point; None without a profile for the task."""
        profile = self.find_task(task)
        return None if profile is None else profile.skill(params)

    def truncation(self, task: str, params: Mapping[str, Any], max_tokens: int | None) -> float | None:
        """Return the true share of truncated answers at a point; None without a profile for the task."""
        profile = self.find_task(task)
        return None if profile is None else profile.truncation(params, max_tokens)


def read_profiles(path: Path) -> dict[str, ModelProfile]:
    """Return the profiles of a file by model. Raise ConfigError with the file and the wrong key."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: not JSON") from None
    try:
        return parse_profiles(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_profiles(content: Any) -> dict[str, ModelProfile]:
    """Return the profiles of parsed content by model. Raise ConfigError with the wrong key."""
    return {
        model: ModelProfile(
            {task: _read_task(profile, f"{model}.{task}") for task, profile in _check_mapping(tasks, model).items()}
        )
        for model, tasks in _check_mapping(content, "the file").items()
    }


def _read_task(content: Any, path: str) -> TaskProfile:
    names = [profile_field.name for profile_field in fields(TaskProfile)]
    settings = _check_mapping(content, path)
    for name in settings:
        if name not in names:
            raise ConfigError(f"{path}.{name}: unknown key; choose {', '.join(names)}")
    values: dict[str, Any] = {
        name: _read_effects(value, f"{path}.{name}")
        if name in ("falls", "grows")
        else _parse_number(value, f"{path}.{name}")
        for name, value in settings.items()
    }
    for name in ("tokens", "spread"):
        if values.get(name, 0) < 0:
            raise ConfigError(f"{path}.{name}: must be 0 or more, not {values[name]:g}")
    return TaskProfile(**values)


def _read_effects(content: Any, path: str) -> Effects:
    return {
        name: {option: _parse_number(amount, f"{path}.{name}.{option}") for option, amount in effect.items()}
        if isinstance(effect, dict)
        else _parse_number(effect, f"{path}.{name}")
        for name, effect in _check_mapping(content, path).items()
    }


def _check_mapping(content: Any, path: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must be an object")
    return content


def _parse_number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
        raise ConfigError(f"{path}: must be a number")
    return float(value)


def _add_effects(effects: Effects, params: Mapping[str, Any]) -> float:
    """Return the sum of the effects of the case's parameters."""
    total = 0.0
    for name, effect in effects.items():
        value = params.get(name)
        if isinstance(effect, Mapping):
            total += effect.get(str(value), 0.0)
        elif isinstance(value, int | float):
            total += effect * value
    return total
