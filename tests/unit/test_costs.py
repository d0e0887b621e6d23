from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.pricing.costs import Expectation, ObservedTokens, Prices, Usage, estimate_tokens

PRICES = Prices(Decimal("3"), Decimal("15"), Decimal("0.30"), Decimal("3.75"), source="price list")
BARE = Prices(Decimal("3"), Decimal("15"))
FREE = Prices(Decimal(0), Decimal(0), Decimal(0), Decimal(0))
UNKNOWN = [Prices(None, None), Prices(Decimal(3), None), Prices(None, Decimal(0))]
counts = st.integers(0, 10**7)
money = st.decimals(0, 1000, places=6)


def test_a_cost_is_exact():
    assert Usage(1000, 500).compute_cost(PRICES) == Decimal("0.0105")
    assert Usage(1, 0).compute_cost(Prices(Decimal("0.0375"), Decimal(0))) == Decimal("3.75E-8")


def test_cached_tokens_have_their_own_prices():
    usage = Usage(input_tokens=1000, output_tokens=0, cache_read_tokens=600, cache_write_tokens=300)
    assert usage.compute_cost(PRICES) == (100 * Decimal(3) + 600 * Decimal("0.3") + 300 * Decimal("3.75")) / 1_000_000


def test_reasoning_is_part_of_the_output_and_charged_once():
    assert Usage(0, 500, reasoning_tokens=400).compute_cost(PRICES) == Usage(0, 500).compute_cost(PRICES)


def test_a_cache_read_without_a_price_is_charged_as_input():
    assert Usage(1000, 0, cache_read_tokens=900).compute_cost(BARE) == Usage(1000, 0).compute_cost(BARE)


def test_a_cache_write_without_a_price_has_an_unknown_cost():
    assert Usage(1000, 0, cache_write_tokens=1).compute_cost(BARE) is None


@pytest.mark.parametrize("prices", UNKNOWN)
def test_an_unknown_price_is_never_zero(prices):
    assert not prices.is_known
    assert not prices.is_free
    assert Usage().compute_cost(prices) is None
    assert prices.compute_ceiling(10, 10) is None
    assert prices.compute_expected_cost(Decimal(1), ObservedTokens(1, 1, 1)) is None


def test_a_free_model_has_a_price_of_zero():
    assert FREE.is_known
    assert FREE.is_free
    assert Usage(10, 10, cache_write_tokens=5).compute_cost(FREE) == 0
    assert FREE.compute_ceiling(10, None) == 0
    assert not PRICES.is_free
    assert not Prices(Decimal(0), Decimal(0), cache_write=Decimal(1)).is_free


@given(st.builds(Prices, money, money, money, money), counts, counts, st.data())
def test_no_call_costs_more_than_its_cost_ceiling(prices, most_input, most_output, data):
    used = data.draw(st.integers(0, most_input))
    read = data.draw(st.integers(0, used))
    write = data.draw(st.integers(0, used - read))
    prices = Prices(prices.input, prices.output, min(prices.cache_read, prices.input), prices.cache_write)
    usage = Usage(used, data.draw(st.integers(0, most_output)), 0, read, write)
    cost = usage.compute_cost(prices)
    assert 0 <= cost <= prices.compute_ceiling(most_input, most_output)


def test_a_call_without_an_output_limit_has_no_cost_ceiling():
    assert PRICES.compute_ceiling(100, None) is None
    assert PRICES.compute_ceiling(1000, 100) == (1000 * Decimal("3.75") + 100 * Decimal(15)) / 1_000_000


def test_an_expected_cost_uses_the_nearest_observations():
    nearest, group, pooled = (ObservedTokens(1000, mean, 8) for mean in (10.5, 20, 30))
    ceiling = Decimal("0.01")
    assert BARE.compute_expected_cost(ceiling, nearest, group, pooled) == Expectation(Decimal("0.0031575"), "own", 8)
    assert BARE.compute_expected_cost(ceiling, None, group, pooled).basis == "group"
    assert BARE.compute_expected_cost(ceiling, ObservedTokens(0, 0, 0), None, pooled).basis == "pooled"
    assert BARE.compute_expected_cost(ceiling) == Expectation(ceiling, "ceiling", 0)
    assert BARE.compute_expected_cost(None) is None


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abc", 1), ("abcd", 2), ("模型", 2), ("🙂", 2)])
def test_tokens_are_estimated_from_above(text, tokens):
    assert estimate_tokens(text) == tokens
