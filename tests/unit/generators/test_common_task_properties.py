"""Common properties of all tasks: parameters, streams, instructions, and errors that name the parameter."""

import json
from itertools import islice
from random import Random

import pytest

from datasets_app.generators.generator import Case, ParamError
from datasets_app.generators.registry import UnknownTask, get_generator, load_generators
from tests.unit.generators.solving import generate_cases

NAMES = list(load_generators())


@pytest.mark.parametrize("name", NAMES)
def test_a_short_stream_is_a_prefix_of_a_long_one(name):
    assert generate_cases(name, {}, seed=3, count=8) == generate_cases(name, {}, seed=3, count=32)[:8]
    assert generate_cases(name, {}, seed=3, count=8) != generate_cases(name, {}, seed=4, count=8)


@pytest.mark.parametrize("name", NAMES)
def test_interleaved_streams_are_independent(name):
    generator = get_generator(name)
    params = generator.read_params({})
    streams = [generator.cases(params, Random(seed)) for seed in (1, 2)]
    in_turn = [[next(stream) for stream in streams] for _ in range(5)]
    assert [pair[1] for pair in in_turn] == list(islice(generator.cases(params, Random(2)), 5))


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_help_a_valid_default_and_a_direction(name):
    for info in get_generator(name).describe_params():
        assert 10 < len(info.help) <= 100
        assert info.help.endswith(".")
        assert info.harder in ("higher", "lower", "other", "neutral")
        if info.kind in ("integer", "number"):
            assert info.minimum <= info.default <= info.maximum
        if info.kind == "choice":
            assert info.default in info.options


@pytest.mark.parametrize("name", NAMES)
def test_facts_are_json(name):
    for case in generate_cases(name, {}, count=5):
        assert json.loads(json.dumps(case.genresult)) is not None


@pytest.mark.parametrize("name", NAMES)
def test_instructions_ask_for_the_final_answer(name):
    instructions = get_generator(name).instructions
    for text in (instructions.direct, instructions.stepwise, instructions.worked):
        assert text.startswith(instructions.task)
        assert text.endswith(f"Final Answer: {instructions.form}")


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_parameter_is_reported_with_a_suggestion(name):
    generator = get_generator(name)
    parameter = generator.describe_params()[0].name
    with pytest.raises(ParamError) as refused:
        generator.read_params({f"{parameter}x": 1})
    assert refused.value.problems == [f"{parameter}x: {name} has no such parameter; did you mean {parameter}?"]


def test_values_out_of_bounds_or_of_wrong_types_are_reported():
    with pytest.raises(ParamError) as refused:
        get_generator("arithmetic").read_params({"length": 2, "max_depth": "3", "prob_open": True})
    assert refused.value.problems == [
        "length: input should be greater than or equal to 3, not 2",
        'max_depth: input should be a valid integer, not "3"',
        "prob_open: input should be a valid number, not true",
    ]


def test_the_count_is_not_a_parameter_of_a_task():
    generator = get_generator("arithmetic")
    assert generator.read_params({"length": 16, "count": 128}) == generator.read_params({"length": 16})


def test_an_unknown_task_is_reported_with_a_suggestion():
    with pytest.raises(UnknownTask, match="'arithmetik' is not a task; did you mean arithmetic"):
        get_generator("arithmetik")


def test_a_case_without_its_target_among_the_choices_is_refused():
    for choices in [("(A)", "(B)"), ("(C)", "(C)")]:
        with pytest.raises(ValueError, match="exactly once in the choices"):
            Case("Which?", "(C)", choices)
