"""The cost of a call: free, the manual price, or litellm's list, in this order. The provider's stated cost is used
if it is higher, or if no price is known. A failed call costs what its reply states, otherwise its cost is unknown."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.engine.outcomes import build_attempt_from_failure
from runs_app.llm.calls import ErrorClass
from runs_app.llm.stated_costs import parse_dollars
from runs_app.pricing.costs import Prices
from tests.integration.gateway.fake_provider import FakeProvider, make_completion
from tests.integration.gateway.gateway_calls import get_failure, make_call, make_request

BY_HAND = Prices(Decimal("2"), Decimal("10"))
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
STATED = {**USAGE, "cost": 0.0123}


def test_a_free_endpoint_costs_nothing(fake: FakeProvider) -> None:
    fake.reply = make_completion(usage=USAGE)
    reply = make_call(make_request(fake.url, is_free=True, prices=BY_HAND))
    assert (reply.cost_usd, reply.cost_source) == (Decimal(0), "free")


def test_a_manual_price_takes_precedence_over_all_others(fake: FakeProvider) -> None:
    fake.reply = make_completion(usage=USAGE)
    reply = make_call(make_request(fake.url, model="gpt-4o-mini", prices=BY_HAND))
    assert (reply.cost_usd, reply.cost_source) == (Decimal("0.003"), "price list")


def test_litellms_price_takes_precedence_over_the_stated_cost(fake: FakeProvider) -> None:
    fake.reply = make_completion(usage=USAGE)
    reply = make_call(make_request(fake.url, model="gpt-4o-mini"))
    assert reply.cost_source == "litellm"
    assert reply.cost_usd == Decimal("0.00021"), "0.15 and 0.60 dollars a million"


def test_the_stated_cost_is_used_if_no_price_is_known(fake: FakeProvider) -> None:
    fake.reply = make_completion(usage=STATED)
    reply = make_call(make_request(fake.url, provider="openrouter", model="nobody/knows"))
    assert (reply.cost_usd, reply.cost_source) == (Decimal("0.0123"), "provider")


def test_the_cost_is_unknown_without_a_price_or_a_stated_cost(fake: FakeProvider) -> None:
    reply = make_call(make_request(fake.url))
    assert (reply.cost_usd, reply.cost_source) == (None, "unknown")


def test_an_input_price_alone_is_not_enough_for_a_cost(fake: FakeProvider) -> None:
    reply = make_call(make_request(fake.url, prices=Prices(Decimal("2"), None)))
    assert reply.cost_usd is None


def test_a_cost_is_rounded_to_eight_decimal_places(fake: FakeProvider) -> None:
    prices = Prices(Decimal("0.0377"), Decimal("0.0411"))
    fake.reply = make_completion(usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
    cost = make_call(make_request(fake.url, prices=prices)).cost_usd
    assert cost == Decimal("0.00000039")
    assert cost.as_tuple().exponent == -8


@pytest.mark.parametrize("fields", [{"prices": BY_HAND}, {"model": "gpt-4o-mini"}, {"is_free": True}])
def test_a_stated_cost_above_the_list_price_is_used(fake: FakeProvider, fields: dict[str, Any]) -> None:
    fake.reply = make_completion(usage=STATED)
    reply = make_call(make_request(fake.url, **fields))
    assert (reply.cost_usd, reply.cost_source) == (Decimal("0.0123"), "provider")


@pytest.mark.parametrize(
    "usage",
    [
        {**USAGE, "cost": {"total_cost": 0.5}},
        {**USAGE, "estimated_cost": 0.5},
        {**USAGE, "cost": "0.5"},
        {**USAGE, "cost": {"total_cost": " 5e-1 "}},
        {**USAGE, "cost_in_usd_ticks": "5000000000"},
        {**USAGE, "cost": "0.02", "is_byok": True, "cost_details": {"upstream_inference_cost": ".48"}},
        {**USAGE, "cost_in_usd_ticks": 5_000_000_000},
        {**USAGE, "cost": 0.02, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.48}},
        {"prompt_tokens": "many", "completion_tokens": None, "cost": 0.5},
    ],
)
def test_a_stated_cost_is_read_in_every_format(fake: FakeProvider, usage: dict[str, Any]) -> None:
    fake.reply = make_completion(usage=usage)
    assert make_call(make_request(fake.url, prices=BY_HAND)).cost_usd == Decimal("0.5")


@pytest.mark.parametrize(
    "cost",
    ["", "-7.5", "NaN", "Infinity", "1e999", "1_0", "7,5", "$7.5", "\u0667", "0x10", "9" * 200, "free", True, [7]],
)
def test_anything_else_than_a_finite_amount_is_no_stated_cost(fake: FakeProvider, cost: Any) -> None:
    fake.reply = make_completion(usage={**USAGE, "cost": cost})
    reply = make_call(make_request(fake.url, prices=BY_HAND))
    assert (reply.cost_usd, reply.cost_source) == (Decimal("0.003"), "price list")


@given(st.decimals(min_value=0, max_value=99_999, places=8))
def test_an_amount_counts_the_same_as_number_and_as_text(amount: Decimal) -> None:
    assert parse_dollars(str(amount)) == parse_dollars(amount) == amount


BROKEN = {"error": {"code": 502, "message": "upstream died"}, "message": {"content": ""}, "finish_reason": "error"}


@pytest.mark.parametrize(
    "reply",
    [
        {"id": "1", "choices": [BROKEN], "usage": {**USAGE, "cost": 0.10}},
        {"id": "1", "choices": [{"message": {"content": "so"}, "finish_reason": "error"}], "usage": {"cost": 0.10}},
        {"error": {"code": 429, "message": "slow down"}, "usage": {"cost": 0.10}},
        {"choices": [], "usage": {**USAGE, "cost": 0.10}},
        {"choices": "none", "usage": {"cost": 0.10}},
        b'{"choices": [{"message": {"content": "4"}}], "usage": {"prompt_tokens": 1000, "cost": 0.10}, "id": "x',
        b'{"usage": {"prompt_tokens": 1000, "cost": 0.10, "completion_tokens": 1',
        b'{"usage": {"prompt_tokens": 1000, "cost": "0.10", "completion_tokens": 1',
        {"error": {"code": 429, "message": "slow down"}, "usage": {"cost": "0.10"}},
    ],
)
def test_a_failure_with_status_200_costs_what_its_reply_states(fake: FakeProvider, reply: Any) -> None:
    fake.reply = reply
    assert build_attempt_from_failure(get_failure(make_request(fake.url)))["cost_usd"] == Decimal("0.10")


def test_a_refusal_with_an_error_status_costs_what_it_states(fake: FakeProvider) -> None:
    fake.status = 400
    fake.reply = {"error": {"message": "flagged by the content policy"}, "usage": {**USAGE, "cost": 0.10}}
    failure = get_failure(make_request(fake.url, prices=BY_HAND))
    attempt = build_attempt_from_failure(failure)
    assert failure.error_class == ErrorClass.CONTENT_REFUSED
    assert (attempt["cost_usd"], attempt["input_tokens"], attempt["output_tokens"]) == (Decimal("0.10"), 1000, 100)


@pytest.mark.parametrize("status", [200, 400])
def test_tokens_of_a_failed_call_cost_the_list_price(fake: FakeProvider, status: int) -> None:
    fake.status = status
    fake.reply = {"error": {"message": "flagged by the content policy"}, "usage": USAGE}
    assert build_attempt_from_failure(get_failure(make_request(fake.url, prices=BY_HAND)))["cost_usd"] == Decimal(
        "0.003"
    )
    assert build_attempt_from_failure(get_failure(make_request(fake.url)))["cost_usd"] is None, (
        "tokens were used, at no known price"
    )


@pytest.mark.parametrize("reply", [{"choices": [BROKEN]}, {"error": {"code": 429, "message": "slow down"}}, b"<html>"])
def test_a_failure_with_status_200_and_no_usage_has_an_unknown_cost(fake: FakeProvider, reply: Any) -> None:
    fake.reply = reply
    assert build_attempt_from_failure(get_failure(make_request(fake.url)))["cost_usd"] is None


def test_a_failed_call_at_a_free_endpoint_costs_nothing_unless_it_states_a_cost(fake: FakeProvider) -> None:
    fake.reply = b"<html>"
    assert build_attempt_from_failure(get_failure(make_request(fake.url, is_free=True)))["cost_usd"] == 0
    fake.reply = {"choices": [], "usage": {**USAGE, "cost": 0.10}}
    failure = get_failure(make_request(fake.url, is_free=True))
    assert build_attempt_from_failure(failure)["cost_usd"] == Decimal("0.10")


def test_an_error_status_without_usage_costs_nothing(fake: FakeProvider) -> None:
    fake.status, fake.reply = 429, {"error": {"message": "slow down"}}
    assert build_attempt_from_failure(get_failure(make_request(fake.url)))["cost_usd"] == 0
