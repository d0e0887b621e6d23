"""Nested expressions over infix operators: where the parentheses stand, and what the expression is worth. Pure.

The tasks `arithmetic` and `boolean` share this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

OPEN, CLOSE = "(", ")"
Apply = Callable[[str, Any, Any], Any]


def draw_groups(rng: Random, length: int, max_depth: int, prob_open: float, prob_close: float) -> list[tuple[int, int]]:
    """Return for each operand the numbers of parentheses that open before it and close after it.

    A group opens with probability `prob_open` as long as the depth allows and another operand follows. A group of at
    least two operands closes with probability `prob_close`. Groups that are open after the last operand close there.
    So every group holds at least two operands, and groups may hold nothing but another group.
    """
    starts: list[int] = []  # The operand at which each open group began.
    groups = []
    for index in range(length):
        openings = closings = 0
        while len(starts) < max_depth and index < length - 1 and rng.random() < prob_open:
            starts.append(index)
            openings += 1
        while starts and starts[-1] < index and (index == length - 1 or rng.random() < prob_close):
            starts.pop()
            closings += 1
        groups.append((openings, closings))
    return groups


def assemble(operands: Sequence[Any], operators: Sequence[str], groups: Iterable[tuple[int, int]]) -> list[Any]:
    """Return the tokens of an expression: operands, operators and parentheses in the order of reading."""
    tokens: list[Any] = []
    for index, (operand, (openings, closings)) in enumerate(zip(operands, groups, strict=True)):
        tokens += [operators[index - 1]] if index else []
        tokens += [OPEN] * openings + [operand] + [CLOSE] * closings
    return tokens


def evaluate(
    tokens: Iterable[Any], precedence: Mapping[str, int], apply: Apply
) -> tuple[Any, list[tuple[Any, str, Any, Any]]]:
    """Return the value of an expression and its steps (left, operator, right, result) in order of evaluation.

    Operators of a higher precedence bind tighter; equal ones are taken from left to right. This is E. W. Dijkstra's
    shunting-yard algorithm (1961), with a stack of values in place of the output.
    """
    values: list[Any] = []
    waiting: list[str] = []
    steps: list[tuple[Any, str, Any, Any]] = []

    def reduce_one() -> None:
        operator, right, left = waiting.pop(), values.pop(), values.pop()
        values.append(apply(operator, left, right))
        steps.append((left, operator, right, values[-1]))

    for token in tokens:
        if token == OPEN:
            waiting.append(OPEN)
        elif token == CLOSE:
            while waiting[-1] != OPEN:
                reduce_one()
            waiting.pop()
        elif isinstance(token, str) and token in precedence:
            while waiting and waiting[-1] != OPEN and precedence[waiting[-1]] >= precedence[token]:
                reduce_one()
            waiting.append(token)
        else:
            values.append(token)
    while waiting:
        reduce_one()
    return values[0], steps


def measure_depth(groups: Iterable[tuple[int, int]]) -> int:
    """Return how deep the parentheses nest."""
    depth = deepest = 0
    for openings, closings in groups:
        depth += openings
        deepest = max(deepest, depth)
        depth -= closings
    return deepest
