"""Requests and answers in a batch are equal to those of single calls."""

import asyncio
import dataclasses
import json
from decimal import Decimal

import pytest

from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, CallRequest
from runs_app.pricing.costs import Prices
from tests.integration.gateway.fake_provider import make_completion

PICTURE = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "rating",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"rating": {"type": "integer"}},
            "required": ["rating"],
            "additionalProperties": False,
        },
    },
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": '{"rating": 4}'}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1000, "output_tokens": 100},
}
HALF = Decimal("0.5")


def make_batch_request(provider, url, **fields):
    text = {"type": "text", "text": "How pleasant is this? \u00e9\u4e2d"}
    picture = {"type": "image_url", "image_url": {"url": PICTURE}}
    messages = [{"role": "system", "content": "Rate."}, {"role": "user", "content": [text, picture]}]
    model = "gpt-4o-mini" if provider == "openai" else "claude-sonnet-4-5"
    parameters = {"temperature": 0.5, "max_tokens": 40, **({"seed": 7} if provider == "openai" else {"top_k": 5})}
    return CallRequest(provider, model, url, None, messages, parameters, SCHEMA, **fields)


def run_steps(*steps):
    async def go():
        try:
            return [await step for step in steps]
        finally:
            await gateway.close_session()

    return asyncio.run(go())


@pytest.fixture(params=["openai", "anthropic"])
def provider(request, fake):
    fake.reply = make_completion('{"rating": 4}') if request.param == "openai" else MESSAGE
    return request.param


def test_the_body_in_a_batch_equals_the_body_of_a_single_call(provider, fake):
    request = make_batch_request(provider, fake.url)
    shaped, _ = run_steps(gateway.build_body(request), gateway.call(request))
    assert len(fake.requests) == 1
    assert shaped.body == fake.last.body
    headers = {name: value for name, value in fake.last.headers.items() if name.startswith("anthropic-")}
    assert shaped.headers == headers


def test_a_batch_answer_is_read_like_a_single_call_and_costs_half(provider, fake):
    request = make_batch_request(provider, fake.url, prices=Prices(Decimal(100), Decimal(200)))
    body = json.dumps(fake.reply).encode()
    single, batched = run_steps(gateway.call(request), gateway.read_batch_reply(request, 200, body, HALF))
    assert batched.cost_usd == single.cost_usd / 2 > 0
    assert batched.list_usd == single.list_usd == single.cost_usd, "what a batch saves is told from its list price"
    own = {"latency_ms": 0, "trace_id": "", "cost_usd": None, "list_usd": None}
    assert dataclasses.replace(batched, **own) == dataclasses.replace(single, **own)


def test_a_listed_batch_price_takes_precedence_over_the_batch_discount(fake):
    request = make_batch_request("openai", fake.url)
    body = json.dumps(make_completion("4")).encode()
    half, without = run_steps(
        gateway.read_batch_reply(request, 200, body, HALF), gateway.read_batch_reply(request, 200, body, Decimal(0))
    )
    assert half.cost_source == "litellm"
    assert half.cost_usd == without.cost_usd == Decimal("0.000105")


def test_an_error_in_a_batch_has_the_same_class_as_in_a_single_call(provider, fake):
    fake.status, fake.reply = 400, {"error": {"message": "no such thing", "type": "invalid_request_error"}}
    request = make_batch_request(provider, fake.url)
    failures = []
    for step in (
        gateway.call(request),
        gateway.read_batch_reply(request, 400, b'{"error": {"message": "no such thing"}}', HALF),
    ):
        with pytest.raises(CallFailure) as caught:
            run_steps(step)
        failures.append((caught.value.error_class, caught.value.message, caught.value.http_status))
    assert failures[0] == failures[1] == ("bad_request", "no such thing", 400)


def test_a_stated_cost_above_the_batch_price_is_used(fake):
    request = make_batch_request(
        "openai", fake.url, prices=Prices(Decimal(2), Decimal(10))
    )  # 0.003 dollars, in a batch 0.0015.
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    for stated_cost, cost in ((0.001, "0.0015"), (0.002, "0.002"), (0.5, "0.5")):
        body = json.dumps(make_completion("4", usage={**usage, "cost": stated_cost})).encode()
        (reply,) = run_steps(gateway.read_batch_reply(request, 200, body, HALF))
        assert reply.cost_usd == Decimal(cost)


def test_a_failure_in_a_batch_costs_its_stated_cost_or_its_tokens_at_the_batch_price(fake):
    request = make_batch_request("openai", fake.url, prices=Prices(Decimal(2), Decimal(10)))
    usage = {"prompt_tokens": 1000, "completion_tokens": 100}
    for stated_cost, cost in (({}, "0.0015"), ({"cost": 0.25}, "0.25")):
        body = json.dumps({"error": {"message": "upstream died"}, "usage": {**usage, **stated_cost}}).encode()
        with pytest.raises(CallFailure) as caught:
            run_steps(gateway.read_batch_reply(request, 200, body, HALF))
        assert caught.value.cost_usd == Decimal(cost)


def test_a_key_in_a_batch_answer_is_not_stored(fake, monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_BATCH", "sk-of-the-batches")
    request = dataclasses.replace(make_batch_request("openai", fake.url), key_env="EVALSITE_KEY_BATCH")
    body = json.dumps(make_completion("You sent sk-of-the-batches.")).encode()
    (reply,) = run_steps(gateway.read_batch_reply(request, 200, body, HALF))
    assert (reply.text, reply.raw_text) == ("You sent [key].",) * 2
