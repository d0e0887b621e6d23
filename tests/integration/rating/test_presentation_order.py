"""Presentation order: a pure function of its seed."""

from hypothesis import given
from hypothesis import strategies as st

from grading_app.grading.rating.session import SessionItems, choose_by_demand, find_least_used

ITEMS, CHECKS, PRACTICE = list(range(100, 140)), [200, 201, 202], [300, 301]
MATERIAL = SessionItems(PRACTICE, ITEMS, CHECKS)


def list_items(order, kind="item"):
    return [step.item for step in order if step.kind == kind]


def test_a_seed_always_gives_the_same_order():
    assert MATERIAL.order_steps([1], seed=5, in_blocks=False) == MATERIAL.order_steps([1], seed=5, in_blocks=False)


def test_the_presentation_order_does_not_depend_on_the_row_order():
    other = SessionItems(PRACTICE, ITEMS[::-1], CHECKS[::-1])
    assert other.order_steps([1], seed=5, in_blocks=False) == MATERIAL.order_steps([1], seed=5, in_blocks=False)


def test_raters_get_different_orders():
    orders = {tuple(list_items(MATERIAL.order_steps([1], seed=seed, in_blocks=False))) for seed in range(50)}
    assert len(orders) == 50


def test_every_item_is_equally_likely_to_be_first():
    first = [list_items(MATERIAL.order_steps([1], seed=seed, in_blocks=False))[0] for seed in range(2000)]
    most = max(first.count(item) for item in ITEMS)
    assert most < 85  # 50 are expected; seven standard deviations are 99 less 50.


@given(st.integers(0, 2**31), st.sets(st.integers(0, 500), min_size=1, max_size=40), st.integers(0, 5), st.booleans())
def test_each_item_appears_once_on_each_dimension(seed, keys, n_checks, in_blocks):
    keys = sorted(keys)
    material = SessionItems([1001, 1002], keys, [2000 + position for position in range(n_checks)])
    order = material.order_steps([7, 8], seed=seed, in_blocks=in_blocks)
    assert len(order) == len(set(order)) == 2 * (2 + len(keys) + n_checks)
    assert {(step.item, step.question) for step in order if step.kind == "item"} == {
        (key, dimension) for key in keys for dimension in (7, 8)
    }


def test_practice_items_are_first_and_keep_their_order():
    order = MATERIAL.order_steps([1], seed=9, in_blocks=False)
    assert [step.item for step in order[:2]] == PRACTICE
    assert {step.kind for step in order[2:]} == {"item", "check"}


@given(st.integers(0, 2**31))
def test_checks_are_spread_and_never_precede_the_first_item(seed):
    order = [step.kind for step in MATERIAL.order_steps([1], seed=seed, in_blocks=False)][2:]
    position = [place for place, kind in enumerate(order) if kind == "check"]
    thirds = [place * 3 // len(order) for place in position]
    assert order[0] == "item"
    assert len(position) == 3
    assert thirds[0] == 0
    assert thirds[2] == 2


def test_without_blocks_an_item_is_rated_on_every_dimension_before_the_next():
    order = SessionItems([], ITEMS, []).order_steps([1, 2], seed=3, in_blocks=False)
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert all(one.item == two.item and (one.question, two.question) == (1, 2) for one, two in pairs)


def test_in_blocks_each_dimension_has_practice_and_a_separate_order():
    order = MATERIAL.order_steps([1, 2], seed=3, in_blocks=True)
    half = len(order) // 2
    assert {step.question for step in order[:half]} == {1}
    assert [step.item for step in order[half : half + 2]] == PRACTICE
    assert list_items(order[:half]) != list_items(order[half:])
    assert sorted(list_items(order[:half])) == sorted(list_items(order[half:])) == ITEMS


@given(st.dictionaries(st.integers(0, 99), st.integers(-2, 4), max_size=30), st.integers(0, 9), st.integers(0, 99))
def test_new_raters_get_the_items_with_the_most_missing_ratings(missing, most, seed):
    given_out = choose_by_demand(missing, limit=most, seed=seed)
    wanting = {item for item, count in missing.items() if count > 0}
    assert len(given_out) == min(most, len(wanting))
    assert set(given_out) <= wanting
    unused = wanting - set(given_out)
    if unused and given_out:
        assert min(missing[item] for item in given_out) >= max(missing[item] for item in unused)


def test_the_dimension_with_the_fewest_raters_is_assigned_next():
    assert find_least_used({1: 2, 2: 1, 3: 1}) == 2
