"""The cost of a call: free, the price set by hand, litellm's list, the provider's word, or unknown - in this order."""

from decimal import Decimal

from runs_app.costing.costs import Prices
from tests.gateway.asking import call, request
from tests.gateway.fake_provider import FakeProvider, completion

BY_HAND = Prices(Decimal("2"), Decimal("10"))
SAID = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100, "cost": 0.0123}


def test_a_free_endpoint_costs_nothing(fake: FakeProvider) -> None:
    fake.reply = completion(usage=SAID)
    reply = call(request(fake.url, is_free=True, prices=BY_HAND))
    assert (reply.cost_usd, reply.cost_source) == (Decimal(0), "free")


def test_a_price_set_by_hand_comes_before_all_others(fake: FakeProvider) -> None:
    fake.reply = completion(usage=SAID)
    reply = call(request(fake.url, model="gpt-4o-mini", prices=BY_HAND))
    assert (reply.cost_usd, reply.cost_source) == (Decimal("0.003"), "price list")


def test_litellms_price_comes_before_the_providers_word(fake: FakeProvider) -> None:
    fake.reply = completion(usage=SAID)
    reply = call(request(fake.url, model="gpt-4o-mini"))
    assert reply.cost_source == "litellm"
    assert reply.cost_usd == Decimal("0.00021"), "0.15 and 0.60 dollars a million"


def test_the_providers_word_comes_last(fake: FakeProvider) -> None:
    fake.reply = completion(usage=SAID)
    reply = call(request(fake.url, provider="openrouter", model="nobody/knows"))
    assert (reply.cost_usd, reply.cost_source) == (Decimal("0.0123"), "provider")


def test_else_the_cost_is_unknown_and_not_zero(fake: FakeProvider) -> None:
    reply = call(request(fake.url))
    assert (reply.cost_usd, reply.cost_source) == (None, "unknown")


def test_half_a_price_is_no_price(fake: FakeProvider) -> None:
    reply = call(request(fake.url, prices=Prices(Decimal("2"), None)))
    assert reply.cost_usd is None


def test_a_cost_has_the_eight_places_that_are_stored(fake: FakeProvider) -> None:
    prices = Prices(Decimal("0.0377"), Decimal("0.0411"))
    fake.reply = completion(usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
    cost = call(request(fake.url, prices=prices)).cost_usd
    assert cost == Decimal("0.00000039")
    assert cost.as_tuple().exponent == -8
