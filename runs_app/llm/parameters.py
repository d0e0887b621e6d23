"""The sampling parameters that may be sent to a provider, and the limit of output tokens that they set. Pure.

A parameter that is not listed here is never sent. It could raise a call's cost above its reservation (`n`, `models`,
`plugins`, `service_tier: priority`) or change what is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

OPENAI, OPENROUTER, ANTHROPIC, GEMINI = "openai", "openrouter", "anthropic", "gemini"
OLLAMA, VLLM = "ollama_chat", "hosted_vllm"
EVERY = frozenset({OPENAI, OPENROUTER, ANTHROPIC, GEMINI, OLLAMA, VLLM})
OPENAI_FORM = frozenset({OPENAI, OPENROUTER, VLLM})  # Unknown names go into the request's body unchanged.

# All providers' names for the maximum length of an answer, and for the budget of thinking.
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
class Rule:
    """The condition on a value, in words and as a check, and the providers that take the parameter."""

    expected: str
    accepts: Callable[[Any], bool]
    providers: frozenset[str] = EVERY


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 200


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 64 and all(map(_is_text, value))


def _number(*providers: str) -> Rule:
    return Rule("a number", _is_number, frozenset(providers) or EVERY)


def _count(*providers: str) -> Rule:
    return Rule("a whole number of at least 0", _is_count, frozenset(providers) or EVERY)


def _whole(*providers: str) -> Rule:
    return Rule("a whole number", _is_whole, frozenset(providers) or EVERY)


def _truth(*providers: str) -> Rule:
    return Rule("true or false", lambda value: isinstance(value, bool), frozenset(providers) or EVERY)


def _one_of(*values: str, providers: frozenset[str] = EVERY) -> Rule:
    return Rule(f"one of {', '.join(values)}", lambda value: value in values, providers)


def _mapping(fields: Mapping[str, Callable[[Any], bool]], expected: str, *providers: str) -> Rule:
    """Return the rule for a mapping of these keys, none of them required."""

    def accepts(value: Any) -> bool:
        return isinstance(value, dict) and all(key in fields and fields[key](at) for key, at in value.items())

    return Rule(expected, accepts, frozenset(providers) or EVERY)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_bias(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= 1024 and all(map(_is_number, value.values()))


_ROUTING = {
    "order": _is_texts,
    "only": _is_texts,
    "ignore": _is_texts,
    "quantizations": _is_texts,
    "sort": _is_text,
    "allow_fallbacks": _is_truth,
    "require_parameters": _is_truth,
    "data_collection": lambda value: value in ("allow", "deny"),
    "zdr": _is_truth,
}
_ON_OR_OFF = {"type": lambda value: value in ("enabled", "disabled", "adaptive"), "budget_tokens": _is_count}
_REASONING = {"effort": _is_text, "max_tokens": _is_count, "exclude": _is_truth, "enabled": _is_truth}
_TEMPLATE = {"enable_thinking": _is_truth, "thinking": _is_truth, "thinking_budget": _is_count}

# A sampler's own fields; all other parameters are in its `extra`.
FIELDS: dict[str, Rule] = {
    "temperature": _number(),
    "top_p": _number(),
    "max_tokens": _count(),
    "seed": Rule("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "reasoning_effort": Rule("a text", _is_text),
}
EXTRA: dict[str, Rule] = {
    "max_completion_tokens": _count(),
    "frequency_penalty": _number(),
    "presence_penalty": _number(),
    "logit_bias": Rule("a mapping of tokens to numbers", _is_bias),
    "logprobs": _truth(),
    "top_logprobs": _count(),
    "stop": Rule("a text or a list of texts", lambda value: _is_text(value) or _is_texts(value)),
    "thinking": _mapping(_ON_OR_OFF, "a mapping with type and budget_tokens"),
    "verbosity": _one_of("low", "medium", "high"),
    "service_tier": _one_of("auto", "default", "flex", "standard_only"),
    "top_k": _whole(*EVERY),
    "min_p": _number(*OPENAI_FORM, OLLAMA),
    "top_a": _number(*OPENAI_FORM),
    "repetition_penalty": _number(*OPENAI_FORM),
    "length_penalty": _number(*OPENAI_FORM),
    "min_tokens": _count(*OPENAI_FORM),
    "ignore_eos": _truth(*OPENAI_FORM),
    "skip_special_tokens": _truth(*OPENAI_FORM),
    "include_reasoning": _truth(*OPENAI_FORM),
    "enable_thinking": _truth(*OPENAI_FORM),
    "thinking_budget": _count(*OPENAI_FORM),
    "thinking_token_budget": _count(*OPENAI_FORM),
    "chat_template_kwargs": _mapping(
        _TEMPLATE, "a mapping with enable_thinking, thinking and thinking_budget", *OPENAI_FORM
    ),
    "reasoning": _mapping(_REASONING, "a mapping with effort, max_tokens, exclude and enabled", *OPENAI_FORM),
    "provider": _mapping(_ROUTING, f"a mapping with any of {', '.join(_ROUTING)}", *OPENAI_FORM),
    "num_ctx": _count(OLLAMA),
    "repeat_penalty": _number(OLLAMA),
    "repeat_last_n": _whole(OLLAMA),
    "mirostat": _count(OLLAMA),
    "think": Rule("true, false or a level", lambda value: _is_truth(value) or _is_text(value), frozenset({OLLAMA})),
    "keep_alive": Rule(
        "a number of seconds or a duration", lambda value: _is_number(value) or _is_text(value), frozenset({OLLAMA})
    ),
}
EXTRA_NAMES = tuple(sorted(EXTRA))


def find_extra_problems(extra: Mapping[str, Any]) -> list[str]:
    """Return why a sampler may not have these further parameters, as sentences; empty if it may."""
    problems = []
    if own := sorted(FIELDS.keys() & extra.keys()):
        problems.append(f"Has a field of its own: {', '.join(own)}.")
    if unknown := sorted(extra.keys() - EXTRA.keys() - FIELDS.keys()):
        problems.append(f"Cannot be set: {', '.join(unknown)}. Allowed are {', '.join(EXTRA_NAMES)}.")
    for name, value in extra.items():
        rule = EXTRA.get(name)
        if rule is not None and not rule.accepts(value):
            problems.append(f"{name} must be {rule.expected}.")
    return problems


def allowed_parameters(provider: str) -> list[str]:
    """Return the names of all parameters that this provider takes."""
    return sorted(name for name, rule in (FIELDS | EXTRA).items() if provider in rule.providers)


def find_problem(provider: str, parameters: Mapping[str, Any]) -> str | None:
    """Return why these parameters may not be sent to this provider, or None."""
    for name, value in parameters.items():
        rule = (FIELDS | EXTRA).get(name)
        if rule is None or provider not in rule.providers:
            allowed = ", ".join(allowed_parameters(provider))
            return f"parameter {name!r} may not be set for {provider}; allowed are {allowed}"
        if value is not None and not rule.accepts(value):
            return f"parameter {name!r} must be {rule.expected}"
    return None


def output_ceiling(parameters: Mapping[str, Any], model_limit: int | None) -> int | None:
    """Return the maximum of output tokens that one call can be billed for, or None without a limit.

    It is the largest limit of an answer, else the model's own, plus the budget of thinking. Some providers count
    thinking within the limit, others beside it. The sum is multiplied by the number of completions.
    """
    limits = [n for name in ANSWER_LIMITS if (n := _positive(parameters.get(name)))]
    thinking = max((_positive(_at(parameters, path)) for path in THINKING_LIMITS), default=0)
    completions = max((_positive(parameters.get(name)) for name in COMPLETIONS), default=1) or 1
    if limits:
        return (max(limits) + thinking) * completions
    return None if model_limit is None else max(model_limit, thinking) * completions


def limits_output(parameters: Mapping[str, Any]) -> bool:
    """Return whether the parameters bound the length of an answer."""
    return any(_positive(parameters.get(name)) for name in ANSWER_LIMITS)


def _at(parameters: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = parameters
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _positive(value: Any) -> int:
    """Return the value rounded up, or zero if it is no positive number."""
    return math.ceil(value) if _is_number(value) and value > 0 else 0
