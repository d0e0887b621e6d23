"""Fair sharing of slots between runs, within capacity, demand and budgets."""

from collections import Counter
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from runs_app.engine.fair_share import Demand, share_capacity, share_slots

cents = st.integers(0, 500).map(lambda n: Decimal(n) / 100)


@st.composite
def situations(draw):
    experiments = draw(st.dictionaries(st.integers(1, 4), st.none() | cents, min_size=1))
    demands = [
        Demand(
            run_id=run_id,
            experiment_id=draw(st.sampled_from(sorted(experiments))),
            pending=draw(st.integers(0, 50)),
            in_flight=draw(st.integers(0, 20)),
            max_concurrency=draw(st.integers(1, 30)),
            reserve_usd=draw(cents),
        )
        for run_id in range(1, draw(st.integers(1, 6)) + 1)
    ]
    return draw(st.integers(0, 64)), demands, experiments


@given(situations())
def test_slots_demands_and_budgets_are_never_exceeded(situation):
    slots, demands, budgets = situation
    shares = share_slots(slots, demands, budgets)
    assert sum(shares.values()) <= slots
    reserved = Counter()
    for demand in demands:
        assert 0 <= shares[demand.run_id] <= demand.startable
        reserved[demand.experiment_id] += shares[demand.run_id] * demand.reserve_usd
    for experiment, budget in budgets.items():
        assert budget is None or reserved[experiment] <= budget


@given(situations())
def test_without_budgets_all_slots_are_used_while_there_is_demand(situation):
    slots, demands, budgets = situation
    shares = share_slots(slots, demands, dict.fromkeys(budgets))
    assert sum(shares.values()) == min(slots, sum(demand.startable for demand in demands))


@given(situations())
def test_free_slots_are_used_up_to_the_budget(situation):
    slots, demands, budgets = situation
    shares = share_slots(slots, demands, budgets)
    if sum(shares.values()) == slots:
        return
    for demand in demands:
        budget = budgets[demand.experiment_id]
        if shares[demand.run_id] < demand.startable and budget is not None:
            spent = sum(
                shares[other.run_id] * other.reserve_usd
                for other in demands
                if other.experiment_id == demand.experiment_id
            )
            assert budget - spent < demand.reserve_usd


def test_the_run_with_the_fewest_calls_in_flight_comes_first():
    busy = Demand(1, 1, pending=100, in_flight=10, max_concurrency=50)
    fresh = Demand(2, 1, pending=100, in_flight=0, max_concurrency=50)
    assert share_slots(8, [busy, fresh], {1: None}) == {1: 0, 2: 8}
    assert share_slots(14, [busy, fresh], {1: None}) == {1: 2, 2: 12}


def test_an_experiment_with_many_conditions_gets_one_share():
    crowd = [Demand(n, 1, pending=100, in_flight=0, max_concurrency=50) for n in range(1, 21)]
    single = Demand(21, 2, pending=100, in_flight=0, max_concurrency=50)
    shares = share_slots(40, [*crowd, single], {1: None, 2: None})
    assert shares[21] == 20
    assert {shares[n] for n in range(1, 21)} == {1}


def test_a_higher_priority_comes_first():
    first = Demand(1, 1, pending=100, in_flight=9, max_concurrency=15, priority=3)
    other = Demand(2, 2, pending=100, in_flight=0, max_concurrency=50)
    assert share_slots(10, [first, other], {1: None, 2: None}) == {1: 6, 2: 4}
    assert share_slots(4, [first, other], {1: None, 2: None}) == {1: 4, 2: 0}


counts = st.dictionaries(st.integers(1, 6), st.integers(0, 40))


@given(st.integers(1, 64), counts, counts)
def test_each_endpoint_gets_its_share_and_no_slot_stays_free_while_there_is_demand(concurrency, in_flight, startable):
    shares = share_capacity(concurrency, in_flight, startable)
    share = concurrency // max(
        1, len({key for key in (*in_flight, *startable) if in_flight.get(key) or startable.get(key)})
    )
    free = concurrency - sum(in_flight.values())
    for key, want in startable.items():
        assert shares.get(key, 0) >= min(want, share - in_flight.get(key, 0))
        assert shares.get(key, 0) <= want
    assert sum(shares.values()) >= min(free, sum(startable.values()))
    if not any(in_flight.values()):
        assert sum(shares.values()) <= concurrency


def test_an_endpoint_gets_its_share_even_if_another_endpoint_uses_all_slots():
    assert share_capacity(64, {1: 64}, {1: 100, 2: 100}) == {2: 32}
    assert share_capacity(64, {1: 64, 2: 32}, {1: 100, 2: 100}) == {}


def test_unused_shares_are_given_to_the_other_endpoint():
    assert share_capacity(64, {}, {1: 4, 2: 100}) == {1: 4, 2: 60}
