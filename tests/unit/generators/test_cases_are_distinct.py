"""The cases of a point differ, and a point with few different cases ends."""

from itertools import islice
from random import Random

import pytest

from datasets_app.generators.registry import get_generator, load_generators
from tests.unit.generators.solving import generate_cases

SMALL = [
    ("sequence", {"base": "multiply", "length": 5, "interference": 0}, 18),  # 9 first terms, 2 factors
    ("sequence", {"base": "constant", "interference": 0, "max_step": 2}, 18),
    ("sequence", {"base": "fibonacci", "interference": 0}, 81),
    ("brackets", {"length": 1}, 3),
    ("brackets", {"length": 2, "kinds": 2}, 4),
    ("arithmetic", {"length": 3, "min_number": 0, "max_number": 0, "max_depth": 0}, 9),  # 3 * 3 operators
    ("boolean", {"length": 3, "max_depth": 0, "prob_not": 0.0}, 32),  # 2 ** 3 values, 2 ** 2 operators
]


@pytest.mark.parametrize("name", load_generators())
def test_the_texts_of_a_point_differ(name):
    cases = generate_cases(name, {}, count=200)
    assert len({case.input for case in cases}) == len(cases)


@pytest.mark.parametrize(("name", "values", "number"), SMALL)
def test_a_point_with_few_cases_gives_each_once(name, values, number):
    cases = generate_cases(name, values, count=1000)
    assert len({case.input for case in cases}) == len(cases) == number


def test_a_longer_stream_begins_with_the_shorter_one_at_a_small_point():
    name, values, _ = SMALL[0]
    assert generate_cases(name, values, count=12) == generate_cases(name, values, count=100)[:12]


def test_version_1_repeats_cases():
    name, values, number = SMALL[0]
    generator = get_generator(name)
    cases = list(islice(generator.cases(generator.read_params(values), Random(1), 1), 100))
    assert len(cases) == 100
    assert len({case.input for case in cases}) == number
