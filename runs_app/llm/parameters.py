"""The sampling parameters that each provider accepts, and the limit of output tokens that they set. Pure.

Only the parameters listed here are sent. Others could raise a call's cost above its reservation (`n`, `models`,
`plugins`, `service_tier: priority`) or change the content of the request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs_app.llm.providers import PROVIDERS

# The providers' names for the maximum length of an answer, and for the thinking budget.
ANSWER_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict")
THINKING_LIMITS = (
    ("thinking", "budget_tokens"),
    ("reasoning", "max_tokens"),
    ("thinking_budget",),
    ("thinking_token_budget",),
    ("chat_template_kwargs", "thinking_budget"),
)
COMPLETIONS = ("n", "best_of", "candidate_count")


@dataclass(frozen=True, slots=True)
class ParameterRule:
    """The rule for a parameter's value, in words and as a check."""

    expected: str
    accepts: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 200


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 64 and all(map(_is_text, value))


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _is_bias(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= 1024 and all(map(_is_number, value.values()))


_NUMBER = ParameterRule("a number", _is_number)
_COUNT = ParameterRule("a whole number of at least 0", _is_count)
_INTEGER = ParameterRule("a whole number", _is_integer)
_BOOLEAN = ParameterRule("true or false", _is_boolean)


def _build_choice_rule(*values: str) -> ParameterRule:
    return ParameterRule(f"one of {', '.join(values)}", lambda value: value in values)


def _build_mapping_rule(fields: Mapping[str, Callable[[Any], bool]], expected: str) -> ParameterRule:
    """Return the rule for a mapping with any of these keys."""

    def accepts(value: Any) -> bool:
        return isinstance(value, dict) and all(key in fields and fields[key](entry) for key, entry in value.items())

    return ParameterRule(expected, accepts)


_ROUTING = {
    "order": _is_texts,
    "only": _is_texts,
    "ignore": _is_texts,
    "quantizations": _is_texts,
    "sort": _is_text,
    "allow_fallbacks": _is_boolean,
    "require_parameters": _is_boolean,
    "data_collection": lambda value: value in ("allow", "deny"),
    "zdr": _is_boolean,
}
_THINKING = {"type": lambda value: value in ("enabled", "disabled", "adaptive"), "budget_tokens": _is_count}
_REASONING = {"effort": _is_text, "max_tokens": _is_count, "exclude": _is_boolean, "enabled": _is_boolean}
_CHAT_TEMPLATE = {"enable_thinking": _is_boolean, "thinking": _is_boolean, "thinking_budget": _is_count}

# The parameters that are fields of a sampler. All others are in its `extra`.
FIELDS: dict[str, ParameterRule] = {
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "max_tokens": _COUNT,
    "seed": ParameterRule("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "reasoning_effort": ParameterRule("a text", _is_text),
}
EXTRA: dict[str, ParameterRule] = {
    "max_completion_tokens": _COUNT,
    "frequency_penalty": _NUMBER,
    "presence_penalty": _NUMBER,
    "logit_bias": ParameterRule("a mapping of tokens to numbers", _is_bias),
    "stop": ParameterRule("a text or a list of texts", lambda value: _is_text(value) or _is_texts(value)),
    "thinking": _build_mapping_rule(_THINKING, "a mapping with type and budget_tokens"),
    "verbosity": _build_choice_rule("low", "medium", "high"),
    "service_tier": _build_choice_rule("auto", "default", "flex", "standard_only"),
    "top_k": _INTEGER,
    "min_p": _NUMBER,
    "top_a": _NUMBER,
    "repetition_penalty": _NUMBER,
    "length_penalty": _NUMBER,
    "min_tokens": _COUNT,
    "ignore_eos": _BOOLEAN,
    "skip_special_tokens": _BOOLEAN,
    "include_reasoning": _BOOLEAN,
    "enable_thinking": _BOOLEAN,
    "thinking_budget": _COUNT,
    "thinking_token_budget": _COUNT,
    "chat_template_kwargs": _build_mapping_rule(
        _CHAT_TEMPLATE, "a mapping with enable_thinking, thinking and thinking_budget"
    ),
    "reasoning": _build_mapping_rule(_REASONING, "a mapping with effort, max_tokens, exclude and enabled"),
    "provider": _build_mapping_rule(_ROUTING, f"a mapping with any of {', '.join(_ROUTING)}"),
    "num_ctx": _COUNT,
    "repeat_penalty": _NUMBER,
    "repeat_last_n": _INTEGER,
    "mirostat": _COUNT,
    "think": ParameterRule("true, false or a level", lambda value: _is_boolean(value) or _is_text(value)),
    "keep_alive": ParameterRule(
        "a number of seconds or a duration", lambda value: _is_number(value) or _is_text(value)
    ),
}
EXTRA_NAMES = tuple(sorted(EXTRA))
# Some twenty alternatives for each token are a hundred times the answer. Nothing here reads them, so they are not paid.
UNSTORED = frozenset({"logprobs", "top_logprobs"})


def find_extra_problems(extra: Mapping[str, Any]) -> list[str]:
    """Return the problems of a sampler's `extra`, as sentences; empty if it is valid."""
    problems = []
    if own := sorted(FIELDS.keys() & extra.keys()):
        problems.append(f"Has its own field: {', '.join(own)}.")
    if unstored := sorted(extra.keys() & UNSTORED):
        problems.append(f"Cannot be set: {', '.join(unstored)}. Token probabilities are not stored.")
    if unknown := sorted(extra.keys() - EXTRA.keys() - FIELDS.keys() - UNSTORED):
        problems.append(f"Cannot be set: {', '.join(unknown)}. Allowed are {', '.join(EXTRA_NAMES)}.")
    for name, value in extra.items():
        rule = EXTRA.get(name)
        if rule is not None and not rule.accepts(value):
            problems.append(f"{name} must be {rule.expected}.")
    return problems


def list_allowed_parameters(provider: str) -> list[str]:
    """Return the names of all parameters that this provider accepts."""
    return sorted(PROVIDERS[provider].parameters) if provider in PROVIDERS else []


def find_problem(provider: str, parameters: Mapping[str, Any]) -> str | None:
    """Return why these parameters may not be sent to this provider, or None."""
    allowed_names = list_allowed_parameters(provider)
    for name, value in parameters.items():
        rule = (FIELDS | EXTRA).get(name)
        if rule is None or name not in allowed_names:
            allowed = ", ".join(allowed_names)
            return f"parameter {name!r} may not be set for {provider}; allowed are {allowed}"
        if value is not None and not rule.accepts(value):
            return f"parameter {name!r} must be {rule.expected}"
    return None


def compute_output_ceiling(parameters: Mapping[str, Any], model_limit: int | None) -> int | None:
    """Return the maximum number of output tokens that one call can be billed for, or None without a limit.

    It is the largest limit of an answer (or else the model's own) plus the thinking budget, times the number of
    completions. Some providers count thinking within the limit, others in addition to it.
    """
    limits = [n for name in ANSWER_LIMITS if (n := _round_up_positive(parameters.get(name)))]
    thinking = max((_round_up_positive(_get_nested(parameters, path)) for path in THINKING_LIMITS), default=0)
    completions = max((_round_up_positive(parameters.get(name)) for name in COMPLETIONS), default=1) or 1
    if limits:
        return (max(limits) + thinking) * completions
    return None if model_limit is None else max(model_limit, thinking) * completions


def limits_output(parameters: Mapping[str, Any]) -> bool:
    """Return whether the parameters bound the length of an answer."""
    return any(_round_up_positive(parameters.get(name)) for name in ANSWER_LIMITS)


def _get_nested(parameters: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = parameters
    for name in path:
        if value is None:  # The usual case. To ask for an abstract class takes longer.
            return None
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _round_up_positive(value: Any) -> int:
    """Return the value rounded up, or zero if it is not a positive number."""
    return math.ceil(value) if value is not None and _is_number(value) and value > 0 else 0
