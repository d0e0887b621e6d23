"""No constant answer is right more often than a guess, at any point of a task's parameters.

Every answer's share lies within the range that equal chances give, at a level of 1e-6 for each share.
"""

import math
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from datasets_app.generators.registry import get_generator, load_generators
from tests.unit.generators.solving import parameter_points

CASES = 400
POINTS = 12

Z = 4.9  # The normal quantile of 1e-6, on both sides.

# The hardest points of each task, and points with few possible answers.
HARD: dict[str, list[dict[str, Any]]] = {
    "boolean": [{"length": 32, "max_depth": 2}, {"length": 64, "max_depth": 0}, {"length": 100, "max_depth": 16}],
    "brackets": [{"kinds": 1}, {"kinds": 1, "max_depth": 8, "length": 40}, {"close_weight_multiplier": 100.0}],
    "cars": [{"entities": 12, "moves": 20, "complexity": 4}, {"entities": 4, "moves": 1, "complexity": 4}],
    "letters": [{"words": 1, "rarity": "rare"}, {"words": 20, "rarity": "rare"}, {"words": 100}],
    "movies": [{"choice_count": 10, "reference_count": 8}],
    "objects": [{"max_count": 1}, {"target_items": 12, "max_count": 2}],
    "shapes": [{"choice_count": 2}, {"kind": "line"}],
    "shuffle": [{"length": 16, "max_depth": 1}, {"length": 3, "max_depth": 100}],
    "tables": [{"operation": "max", "rows": 60}, {"operation": "count", "rows": 2}, {"operation": "count", "rows": 9}],
}


def classify(name, values, case):
    """Return what is equally likely: the position of the right choice, or the number that is the target."""
    if case.choices:
        return case.choices.index(case.target)
    return len(case.target.split()) if name == "brackets" else int(case.target)


def list_answers(name, values, case):
    """Return the possible results of `classify` at this point, independently of the task."""
    values = {info.name: info.default for info in get_generator(name).describe_params()} | values
    if case.choices:
        return range(len(case.choices))
    if name == "brackets":
        return [
            count
            for count in range(1, values["max_depth"] + 1)
            if count <= values["length"] and count % 2 == values["length"] % 2
        ]
    if name == "letters":
        return range(values["words"], 2 * values["words"] + 1)
    if name == "objects":
        return range(values["target_items"] * values["max_count"] + 1)
    return range(values["rows"])


def check_shares(name, values, seed=1, count=CASES):
    """Draw independent cases, and compare the share of every answer with an equal share."""
    generator, rng = get_generator(name), Random(seed)
    params = generator.read_params(values)
    cases = [generator.draw(params, rng) for _ in range(count)]
    answers = list_answers(name, values, cases[0])
    shares = Counter(classify(name, values, case) for case in cases)
    assert set(shares) <= set(answers)
    chance = 1 / len(answers)
    margin = Z * math.sqrt(chance * (1 - chance) / count) + Z**2 / (
        2 * count
    )  # The second term: small expected counts.
    for answer in answers:
        assert abs(shares[answer] / count - chance) <= margin, (name, values, answer, shares)


@pytest.mark.parametrize(("name", "values"), [(name, values) for name, points in HARD.items() for values in points])
def test_each_answer_is_equally_likely_at_hard_points(name, values):
    check_shares(name, values, count=300)


@pytest.mark.slow
@pytest.mark.parametrize("name", HARD)
def test_each_answer_is_equally_likely_at_every_point(name):
    @settings(max_examples=POINTS)
    @given(parameter_points(name), st.integers(0, 2**32))
    def check(values, seed):
        assume(name != "tables" or values["operation"] in ("count", "max"))
        check_shares(name, values, seed)

    check()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), [(name, values) for name, points in HARD.items() for values in points])
def test_each_answer_is_equally_likely_with_many_cases(name, values):
    check_shares(name, values, count=3000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "most", "limits"),
    [
        ("arithmetic", 0.12, {"min_number": -9, "max_number": 9}),
        ("dates", 0.03, {}),
        ("sequence", 0.2, {}),
        ("sort", 0.05, {}),
        ("tables", 0.05, {"operation": ("lookup", "sum", "difference")}),
    ],
)
def test_no_free_answer_is_frequent(name, most, limits):
    """`limits` fixes parameters. With few integers to choose from, the values of arithmetic concentrate."""

    @settings(max_examples=POINTS)
    @given(parameter_points(name), st.integers(0, 2**32))
    def check(values, seed):
        for parameter, allowed in limits.items():
            values[parameter] = allowed[seed % len(allowed)] if isinstance(allowed, tuple) else allowed
        generator, rng = get_generator(name), Random(seed)
        params = generator.read_params(values)
        shares = Counter(generator.draw(params, rng).target for _ in range(CASES))
        assert shares.most_common(1)[0][1] / CASES <= most, values

    check()


def test_every_task_is_checked():
    assert set(HARD) | {"arithmetic", "dates", "sequence", "sort"} == set(load_generators())
