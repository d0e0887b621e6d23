"""The published seed rule of a point."""

from random import Random

from datasets_app.parametric.spaces import compute_seed_base, make_point_rng


def test_the_published_parameters_give_the_published_base():
    assert compute_seed_base({"length": 16, "max_depth": 3}) == 4034784009
    assert compute_seed_base({"max_depth": 3, "length": 16, "count": 128}) == 4034784009


def test_the_stream_is_pythons_random_stream_of_seed_plus_base():
    assert make_point_rng({"length": 16, "max_depth": 3}).random() == Random(4034784051).random()
    assert make_point_rng({"length": 16, "max_depth": 3}, seed=7).random() == Random(4034784016).random()


def test_1_and_1_point_0_are_different_parameters():
    assert compute_seed_base({"prob_open": 1}) != compute_seed_base({"prob_open": 1.0})
