from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_app.sampling import (
    SamplingError,
    allocate_proportionally,
    allocate_uniformly,
    replace_one,
    reshuffle,
    sample,
)
from tests.factories.recordings import read_csv_rows

POOL = [
    (f"{category}{number}", category) for category, size in [("a", 6), ("b", 3), ("c", 1)] for number in range(size)
]
pools = st.dictionaries(st.text(max_size=4), st.sampled_from("wxyz"), min_size=4, max_size=40).map(
    lambda found: sorted(found.items())
)
seeds = st.integers(0, 2**31)


def count_categories(pool, keys):
    categories = dict(pool)
    return Counter(categories[key] for key in keys)


@pytest.mark.parametrize(
    ("sizes", "n", "shares"),
    [
        ({"a": 6, "b": 3, "c": 1}, 5, {"a": 2, "b": 2, "c": 1}),  # 3, 1.5 to 2, 0.5 to 1: six, so the largest gives one
        (
            {"a": 50, "b": 50},
            5,
            {"a": 3, "b": 2},
        ),  # 2.5 rounds to 2 twice; the first of the smallest takes the one left
        ({"a": 50, "b": 50}, 7, {"a": 3, "b": 4}),  # 3.5 rounds to 4 twice; the first of the largest gives one up
        ({"a": 1, "b": 13, "c": 13}, 9, {"a": 1, "b": 4, "c": 4}),
        ({"a": 97, "b": 1, "c": 1, "d": 1}, 4, {"a": 1, "b": 1, "c": 1, "d": 1}),
        (
            {"Animal": 134, "Object": 200, "Person": 346, "Scene": 220},
            40,
            {"Animal": 6, "Object": 9, "Person": 15, "Scene": 10},
        ),
        ({"only": 3}, 3, {"only": 3}),
    ],
)
def test_stratified_shares_follow_the_rule(sizes, n, shares):
    assert allocate_proportionally(sizes, n) == shares


def test_draws_are_the_same_on_every_machine():
    assert sample(POOL, "random", 4, 42) == ["b1", "a3", "a2", "b2"]
    assert sample(POOL, "stratified", 5, 42) == ["b1", "a3", "a2", "b2", "c0"]
    assert sample(POOL, "uniform", 3, 7) == ["b2", "a3", "c0"]
    assert sample(POOL, "all", None, 1) == sorted(dict(POOL))


@given(pools, st.data(), seeds)
def test_stratified_draws_have_the_requested_size_every_category_and_unique_keys(pool, data, seed):
    sizes = count_categories(pool, dict(pool))
    n = data.draw(st.integers(len(sizes), len(pool)))
    drawn_items = sample(pool, "stratified", n, seed)
    assert len(drawn_items) == len(set(drawn_items)) == n
    assert set(count_categories(pool, drawn_items)) == set(sizes)
    assert count_categories(pool, drawn_items) == allocate_proportionally(sizes, n)


@given(pools, st.data(), seeds)
def test_stratified_shares_stay_near_the_proportion(pool, data, seed):
    sizes = count_categories(pool, dict(pool))
    n = data.draw(st.integers(len(sizes), len(pool)))
    for name, share in allocate_proportionally(sizes, n).items():
        assert 1 <= share <= sizes[name]
        assert abs(share - n * sizes[name] / len(pool)) <= len(sizes)


@given(pools, st.data(), seeds)
def test_uniform_draws_have_equal_counts_per_category(pool, data, seed):
    sizes = count_categories(pool, dict(pool))
    each = data.draw(st.integers(1, min(sizes.values())))
    drawn_items = sample(pool, "uniform", each * len(sizes), seed)
    assert count_categories(pool, drawn_items) == dict.fromkeys(sizes, each)
    assert len(drawn_items) == len(set(drawn_items))


@given(pools, st.data(), seeds)
def test_a_larger_random_draw_begins_with_the_smaller_one(pool, data, seed):
    small, large = sorted(data.draw(st.lists(st.integers(1, len(pool)), min_size=2, max_size=2)))
    assert sample(pool, "random", large, seed)[:small] == sample(pool, "random", small, seed)


@given(pools, st.permutations(range(4)), seeds, st.sampled_from(["random", "stratified", "all"]))
def test_a_draw_does_not_depend_on_the_order_of_the_pool(pool, order, seed, strategy):
    shuffled = [pair for part in order for pair in pool[part::4]]
    assert sample(shuffled, strategy, 4, seed) == sample(pool, strategy, 4, seed)


def test_different_seeds_give_different_draws():
    assert len({tuple(sample(POOL, "random", 5, seed)) for seed in range(20)}) > 15


@pytest.mark.parametrize(
    ("strategy", "n", "message"),
    [
        ("random", 11, "cannot draw 11 of 10"),
        ("random", 0, "cannot draw 0 of 10"),
        ("stratified", None, "cannot draw None"),
        ("stratified", 2, "one of each of 3 categories"),
        ("uniform", 4, "not a multiple of the number of categories, which is 3"),
        ("uniform", 6, r"2 of each category are needed, and some have fewer: c \(1\)"),
        ("best", 3, "unknown strategy 'best'"),
    ],
)
def test_an_impossible_draw_is_refused_with_a_reason(strategy, n, message):
    with pytest.raises(SamplingError, match=message):
        sample(POOL, strategy, n, 1)


def test_a_duplicate_key_in_the_pool_is_refused():
    with pytest.raises(SamplingError, match="a0 is in the pool twice"):
        sample([*POOL, ("a0", "b")], "all", None, 1)


def test_a_uniform_draw_with_uncategorised_items_is_refused():
    with pytest.raises(SamplingError, match=r"no category \(1\)"):
        allocate_uniformly({"": 1, "x": 5}, 4)


@given(pools, st.data(), seeds)
def test_a_replacement_has_the_same_category_and_position(pool, data, seed):
    chosen = data.draw(st.lists(st.sampled_from([key for key, _ in pool]), unique=True, min_size=1))
    key = data.draw(st.sampled_from(chosen))
    spare = {other for other, category in pool if category == dict(pool)[key]} - set(chosen)
    if not spare:
        with pytest.raises(SamplingError, match="left to replace"):
            replace_one(pool, chosen, key, seed)
        return
    replaced = replace_one(pool, chosen, key, seed)
    changed = [(old, new) for old, new in zip(chosen, replaced, strict=True) if old != new]
    assert [old for old, _ in changed] == [key]
    assert changed[0][1] in spare


@pytest.mark.parametrize(
    ("chosen", "key", "message"),
    [
        (["a0"], "a1", "not among the chosen"),
        (["zz"], "zz", "not in the pool: zz"),
        (["a0", "a0"], "a0", "chosen twice"),
    ],
)
def test_an_impossible_replacement_is_refused(chosen, key, message):
    with pytest.raises(SamplingError, match=message):
        replace_one(POOL, chosen, key, 1)


@given(pools, st.data(), seeds)
def test_a_reshuffle_keeps_the_number_of_each_category(pool, data, seed):
    chosen = data.draw(st.lists(st.sampled_from([key for key, _ in pool]), unique=True))
    drawn_items = reshuffle(pool, chosen, seed)
    assert count_categories(pool, drawn_items) == count_categories(pool, chosen)
    assert len(set(drawn_items)) == len(drawn_items)


def test_the_recorded_forty_images_are_a_uniform_set():
    pool = [(row["image_id"], row["Category"]) for row in read_csv_rows("uniform40-items.csv")]
    drawn_items = sample(pool, "uniform", 20, 42)
    assert count_categories(pool, drawn_items) == {"Animal": 5, "Object": 5, "Person": 5, "Scene": 5}
