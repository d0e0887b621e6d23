"""Cases of a task for a second solver, which sees only the text of the case."""

from fractions import Fraction
from itertools import islice
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_app.generators.registry import get_generator

CASES = 2  # Per drawn point.
POINTS = 40


def parameter_points(name, **limits):
    """Return a strategy for parameters of a task, over their whole bounds; `limits` replaces the largest value."""
    values = {}
    for info in get_generator(name).describe_params():
        most = limits.get(info.name, info.maximum)
        values[info.name] = {
            "integer": lambda info=info, most=most: st.integers(int(info.minimum), int(most)),
            "number": lambda info=info, most=most: st.floats(info.minimum, most, allow_subnormal=False),
            "choice": lambda info=info: st.sampled_from(info.options),
            "switch": lambda: st.booleans(),
        }[info.kind]()
    return st.fixed_dictionaries(values)


def generate_cases(name, values, seed=0, count=CASES):
    """Return the first cases at a point."""
    generator = get_generator(name)
    return list(islice(generator.cases(generator.read_params(values), Random(seed)), count))


def check(name, solve, values, seed=0, count=CASES):
    """Compare the target of cases with the answer of the second solver, and check the rest of each case."""
    generator = get_generator(name)
    for case in generate_cases(name, values, seed, count):
        assert solve(case.input) == case.target, case.input
        if case.choices is not None:
            assert case.choices.count(case.target) == 1
            assert len(set(case.choices)) == len(case.choices)
        right = [choice for choice in case.choices or () if choice == case.target]
        assert case.guess_chance == Fraction(len(right), len(case.choices or [None]))
        stated = generator.answer.read(f"{generator.explain(case)}\n\n**Final Answer: {case.target}**", case.choices)
        assert generator.answer.is_correct(stated, case.target)


def over_points(name, **limits):
    """Return a decorator: the test runs over points of the task's parameters and over seeds."""

    def decorate(test):
        return settings(max_examples=POINTS)(given(parameter_points(name, **limits), st.integers(0, 2**32))(test))

    return decorate
