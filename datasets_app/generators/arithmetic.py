"""Arithmetic: the value of an expression of integers with + - * and nested parentheses.

Specification. The input is one expression of `length` integers from `min_number` to `max_number`, and nothing else.
Multiplication binds tighter than addition and subtraction; operators of equal precedence apply from left to right. A
negative number carries its sign ("3 - -5"). Spaces stand around each operator; each one is removed with the probability
`prob_dewhitespace`, which changes the tokens of the text but not its value. The target is the value as an integer.

ReasonScape publishes the parameters, the operators and the irregular spacing. The rest is our choice. The three
operators are equally likely. A group closes with probability .5 after each operand except its first, and groups may be
redundant. Free text has a guess chance of 0.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from random import Random

from pydantic import model_validator

from datasets_app.generators.answer_rules import INTEGER
from datasets_app.generators.expressions import OPEN, assemble_tokens, draw_groups, evaluate_infix, measure_depth
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param

PRECEDENCE = {"+": 1, "-": 1, "*": 2}
OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
PROB_CLOSE = 0.5


class ArithmeticParams(Params):
    length: int = declare_param(8, "Number of integers in the expression.", harder="higher", ge=3, le=100)
    max_depth: int = declare_param(2, "Deepest nesting of parentheses.", harder="higher", ge=0, le=16)
    min_number: int = declare_param(-9, "Smallest integer that may occur.", harder="lower", ge=-1000, le=1000)
    max_number: int = declare_param(9, "Largest integer that may occur.", harder="higher", ge=-1000, le=1000)
    prob_open: float = declare_param(
        0.4, "Probability that a parenthesis opens before an integer.", harder="higher", ge=0.0, le=1.0
    )
    prob_dewhitespace: float = declare_param(
        0.0, "Probability that a space beside an operator is left out.", harder="higher", ge=0.0, le=1.0
    )

    @model_validator(mode="after")
    def _check_numbers(self) -> ArithmeticParams:
        if self.min_number > self.max_number:
            raise ValueError(f"min_number must not be above max_number ({self.max_number})")
        return self


def draw(params: ArithmeticParams, rng: Random) -> Case:
    numbers = [rng.randint(params.min_number, params.max_number) for _ in range(params.length)]
    operators = [rng.choice("+-*") for _ in range(params.length - 1)]
    groups = draw_groups(rng, params.length, params.max_depth, params.prob_open, PROB_CLOSE)
    tokens = assemble_tokens(numbers, operators, groups)
    value, _ = evaluate_infix(tokens, PRECEDENCE, apply_operator)
    facts = {"depth": measure_depth(groups), "multiplications": operators.count("*")}
    return Case(_write_expression(tokens, params.prob_dewhitespace, rng), str(value), genresult=facts)


def apply_operator(name: str, left: int, right: int) -> int:
    """Return the result of one operation."""
    return OPERATIONS[name](left, right)


def _write_expression(tokens: list[int | str], prob_dewhitespace: float, rng: Random) -> str:
    """Return the expression as text. A space is drawn on each side of each operator."""

    def space() -> str:
        return "" if rng.random() < prob_dewhitespace else " "

    return "".join(
        f"{space()}{token}{space()}" if token in PRECEDENCE else str(token) for token in tokens
    )  # fmt: skip


def explain(case: Case) -> str:
    """Return every operation in order of evaluation."""
    # The tokens of an expression. A minus is a sign unless it follows an integer or a group.
    tokens: list[int | str] = []
    sign = ""
    for part in re.findall(r"[0-9]+|[-+*()]", case.input):
        starts_operand = not tokens or tokens[-1] == OPEN or tokens[-1] in PRECEDENCE
        if part == "-" and starts_operand:
            sign = "-"
        elif part.isdigit():
            tokens.append(int(sign + part))
            sign = ""
        else:
            tokens.append(part)
    _, steps = evaluate_infix(tokens, PRECEDENCE, apply_operator)
    return "\n".join(f"{left} {name} {right} = {result}" for left, name, right, result in steps)


GENERATOR = Generator(
    name="arithmetic",
    title="Arithmetic",
    version=2,
    params=ArithmeticParams,
    draw=draw,
    earlier={1: Edition(draw, is_distinct=False)},
    explain=explain,
    instructions=Instructions(
        "Calculate the value of the arithmetic expression. Multiplication comes before addition and subtraction.",
        "(an integer)",
    ),
    answer=INTEGER,
)
