"""The second solver hands the text to Python's own parser."""

import ast
import re

import pytest

from datasets_app.generators.generator import ParamError
from datasets_app.generators.registry import get_generator
from tests.unit.generators.solving import check, generate_cases, over_points


def solve(text):
    return str(evaluate(ast.parse(text, mode="eval").body))


def evaluate(node):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        assert isinstance(node.op, ast.USub)
        return -evaluate(node.operand)
    left, right = evaluate(node.left), evaluate(node.right)
    return {ast.Add: left + right, ast.Sub: left - right, ast.Mult: left * right}[type(node.op)]


@over_points("arithmetic")
def test_the_target_is_the_value_of_the_text(values, seed):
    if values["min_number"] > values["max_number"]:
        values |= {"min_number": values["max_number"], "max_number": values["min_number"]}
    check("arithmetic", solve, values, seed)


def test_the_text_has_the_requested_integers_and_maximum_depth():
    for case in generate_cases("arithmetic", {"length": 12, "max_depth": 2, "prob_open": 1.0}, count=20):
        assert len(re.findall(r"[0-9]+", case.input)) == 12
        depths = [case.input[:index].count("(") - case.input[:index].count(")") for index in range(len(case.input))]
        assert max(depths) == case.genresult["depth"] == 2


def test_the_worked_steps_end_with_the_target():
    values = {"length": 9, "max_depth": 3, "prob_dewhitespace": 0.5}
    for name, options in (("arithmetic", {}), ("boolean", {"format": "ON_OFF", "prob_not": 0.3})):
        fields = get_generator(name).params.model_fields
        for case in generate_cases(
            name, {key: value for key, value in (values | options).items() if key in fields}, count=50
        ):
            assert get_generator(name).explain(case).endswith(f" = {case.target}")


def test_a_text_without_spaces_contains_no_space():
    assert all(" " not in case.input for case in generate_cases("arithmetic", {"prob_dewhitespace": 1.0}, count=20))


def test_an_empty_range_of_integers_is_refused_with_its_parameter():
    with pytest.raises(ParamError, match="min_number must not be above max_number"):
        get_generator("arithmetic").read_params({"min_number": 5, "max_number": 4})
