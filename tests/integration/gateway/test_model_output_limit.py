"""Anthropic requires an output limit: the request sends the limit that the reservation assumes."""

import pytest

from runs_app.llm import gateway
from tests.integration.gateway.gateway_calls import make_request
from tests.integration.gateway.test_batched_requests import run_steps


@pytest.mark.parametrize(("parameters", "limit"), [({}, 77), ({"max_tokens": 9}, 9), ({"max_completion_tokens": 8}, 8)])
def test_anthropic_gets_the_models_limit_if_the_sampler_sets_none(parameters, limit):
    built = make_request("http://127.0.0.1:9", provider="anthropic", model="claude-sonnet-4-5", parameters=parameters,
                    max_output_tokens=77)  # fmt: skip
    (shaped,) = run_steps(gateway.build_body(built))
    assert shaped.body["max_tokens"] == limit
