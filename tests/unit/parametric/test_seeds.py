"""The published seeding of a point."""

from random import Random

from datasets_app.parametric.seeds import point_stream, seed_base


def test_the_published_parameters_give_the_published_base():
    assert seed_base({"length": 16, "max_depth": 3}) == 4034784009
    assert seed_base({"max_depth": 3, "length": 16, "count": 128}) == 4034784009


def test_the_stream_is_pythons_with_seed_plus_base():
    assert point_stream({"length": 16, "max_depth": 3}).random() == Random(4034784051).random()
    assert point_stream({"length": 16, "max_depth": 3}, seed=7).random() == Random(4034784016).random()


def test_one_and_one_point_nought_are_different_parameters():
    assert seed_base({"prob_open": 1}) != seed_base({"prob_open": 1.0})
