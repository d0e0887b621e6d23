"""Cache marks are sent in Anthropic's format; cached tokens are stored and priced correctly."""

from decimal import Decimal

import pytest

from runs_app.pricing.costs import Prices
from tests.integration.gateway.fake_provider import FakeProvider, make_completion
from tests.integration.gateway.gateway_calls import make_call, make_request

MARK = {"type": "ephemeral"}
MESSAGES = [
    {"role": "system", "content": [{"type": "text", "text": "A long rubric.", "cache_control": MARK}]},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "A long head.", "cache_control": MARK},
            {"type": "text", "text": "What is 2 + 2?"},
        ],
    },
]
PRICES = Prices(Decimal(3), Decimal(15), Decimal("0.30"), Decimal("3.75"))
ANTHROPIC_REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "4"}],
    "stop_reason": "end_turn",
    "usage": {
        "input_tokens": 100,
        "cache_read_input_tokens": 2000,
        "cache_creation_input_tokens": 300,
        "output_tokens": 10,
    },
}


def test_anthropic_gets_the_cache_marks_and_cached_tokens_are_priced(fake: FakeProvider) -> None:
    fake.reply = ANTHROPIC_REPLY
    reply = make_call(make_request(fake.url, provider="anthropic", model="claude-x", messages=MESSAGES, prices=PRICES))
    body = fake.last.body
    assert body["system"][0]["cache_control"] == MARK
    assert [part.get("cache_control") for part in body["messages"][0]["content"]] == [MARK, None]
    assert (reply.input_tokens, reply.cache_read_tokens, reply.cache_write_tokens) == (2400, 2000, 300)
    paid = (100 * 3 + 2000 * Decimal("0.30") + 300 * Decimal("3.75") + 10 * 15) / 1_000_000
    listed = (2400 * 3 + 10 * 15) / Decimal(1_000_000)
    assert (reply.cost_usd, reply.list_usd) == (paid, listed)


def test_a_call_without_a_cache_costs_its_list_price(fake: FakeProvider) -> None:
    reply = make_call(make_request(fake.url, prices=PRICES))
    assert reply.list_usd == reply.cost_usd


@pytest.mark.parametrize("model", ["gpt-4o-mini"])
def test_savings_of_automatic_caching_are_measured_against_litellms_price_list(fake: FakeProvider, model: str) -> None:
    usage = {"prompt_tokens": 2000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 1024}}
    fake.reply = make_completion(usage=usage | {"total_tokens": 2100})
    reply = make_call(make_request(fake.url, model=model))
    assert reply.cache_read_tokens == 1024
    assert reply.list_usd == Decimal("0.00036"), "2000 at 0.15 and 100 at 0.60 dollars a million"
    assert reply.cost_usd == Decimal("0.00036") - 1024 * Decimal("0.075") / 1_000_000


def test_openrouter_gets_the_cache_marks(fake: FakeProvider) -> None:
    make_call(make_request(fake.url, provider="openrouter", model="anthropic/claude-x", messages=MESSAGES))
    assert fake.last.body["messages"][1]["content"][0]["cache_control"] == MARK


def test_a_call_priced_only_by_its_provider_has_no_list_price(fake: FakeProvider) -> None:
    fake.reply = make_completion(usage={"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11, "cost": 0.01})
    reply = make_call(make_request(fake.url, provider="openrouter", model="nobody/knows"))
    assert (reply.cost_usd, reply.list_usd) == (Decimal("0.01"), None)
