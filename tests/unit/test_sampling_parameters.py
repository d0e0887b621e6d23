"""The allowed sampling parameters, and the maximum output tokens that a call can be billed for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.llm import parameters
from runs_app.llm.parameters import ANSWER_LIMITS, compute_output_ceiling, find_extra_problems, find_problem


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({"max_tokens": 10}, 10),
        ({"max_tokens": 10, "max_completion_tokens": 100_000}, 100_000),
        ({"max_tokens": 10, "max_output_tokens": 20, "num_predict": 30}, 30),
        ({"max_tokens": 10, "thinking": {"type": "enabled", "budget_tokens": 5_000}}, 5_010),
        ({"max_tokens": 10, "reasoning": {"max_tokens": 700}}, 710),
        ({"max_tokens": 10, "chat_template_kwargs": {"thinking_budget": 90}, "thinking_budget": 80}, 100),
        ({"max_tokens": 10, "n": 5}, 50),
        ({"max_tokens": 10, "best_of": 3, "n": 2}, 30),
        ({"max_tokens": 10, "max_completion_tokens": "many", "thinking": None, "reasoning": []}, 10),
        ({"thinking": {"budget_tokens": 5_000}}, None),
        ({}, None),
    ],
)
def test_the_ceiling_counts_every_name_for_output_tokens(given, most):
    assert compute_output_ceiling(given, None) == most


@pytest.mark.parametrize(
    ("given", "most"),
    [({}, 400), ({"max_tokens": 10}, 10), ({"thinking": {"budget_tokens": 5_000}}, 5_000), ({"n": 2}, 800)],
)
def test_the_models_own_limit_applies_if_the_sampler_sets_none(given, most):
    assert compute_output_ceiling(given, 400) == most


@given(st.dictionaries(st.sampled_from(ANSWER_LIMITS), st.integers(1, 10**6), min_size=1))
def test_no_output_limit_exceeds_the_ceiling(limits):
    assert compute_output_ceiling(limits, None) >= max(limits.values())


@pytest.mark.parametrize("name", ["logprobs", "top_logprobs"])
def test_token_probabilities_are_refused_because_they_are_not_stored(name):
    assert find_extra_problems({name: 5}) == [f"Cannot be set: {name}. Token probabilities are not stored."]
    assert find_problem("openai", {name: 5})


def test_an_unknown_name_is_refused_with_the_allowed_names():
    (problem,) = find_extra_problems({"n": 100, "models": ["dearer"], "top_k": 4})
    assert problem.startswith("Cannot be set: models, n. Allowed are chat_template_kwargs, ")
    assert "max_completion_tokens" in problem


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ({"max_tokens": 5}, "Has its own field: max_tokens."),
        ({"max_completion_tokens": "100"}, "max_completion_tokens must be a whole number of at least 0."),
        ({"max_completion_tokens": True}, "max_completion_tokens must be a whole number of at least 0."),
        ({"service_tier": "priority"}, "service_tier must be one of auto, default, flex, standard_only."),
        ({"provider": {"max_price": 5}}, "provider must be a mapping with any of order,"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused(extra, problem):
    assert find_extra_problems(extra)[0].startswith(problem)


@pytest.mark.parametrize(
    "extra",
    [
        {"stop": ["\n", "END"], "top_k": -1, "min_p": 0.1},
        {"logit_bias": {"50256": -100}, "presence_penalty": 0},
        {"reasoning": {"effort": "low", "exclude": True}, "provider": {"order": ["north"], "allow_fallbacks": False}},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
def test_usual_parameters_are_accepted(extra):
    assert find_extra_problems(extra) == []
    assert find_problem("openrouter", extra) is None


def test_a_provider_accepts_only_its_own_parameters():
    assert find_problem("ollama_chat", {"num_ctx": 4096, "temperature": 0.2}) is None
    assert find_problem("openai", {"num_ctx": 4096}).startswith(
        "parameter 'num_ctx' may not be set for openai; allowed"
    )
    assert set(parameters.list_allowed_parameters("anthropic")) < {*parameters.FIELDS, *parameters.EXTRA}
