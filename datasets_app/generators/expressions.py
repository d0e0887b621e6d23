"""Nested expressions of infix operators: the placement of parentheses, and evaluation. Pure.

The tasks `arithmetic` and `boolean` share this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

OPEN, CLOSE = "(", ")"
Apply = Callable[[str, Any, Any], Any]


def draw_groups(rng: Random, length: int, max_depth: int, prob_open: float, prob_close: float) -> list[tuple[int, int]]:
    """Return, for each operand, the number of parentheses that open before it and the number that close after it.

    A group opens with probability `prob_open` as long as the depth allows and another operand follows. A group of at
    least two operands closes with probability `prob_close`. All open groups close after the last
    operand. Every group therefore contains at least two operands. A group may consist of another group only.
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


def assemble_tokens(operands: Sequence[Any], operators: Sequence[str], groups: Iterable[tuple[int, int]]) -> list[Any]:
    """Return the tokens of an expression: operands, operators and parentheses from left to right."""
    tokens: list[Any] = []
    for index, (operand, (openings, closings)) in enumerate(zip(operands, groups, strict=True)):
        tokens += [operators[index - 1]] if index else []
        tokens += [OPEN] * openings + [operand] + [CLOSE] * closings
    return tokens


def evaluate_infix(
    tokens: Iterable[Any], precedence: Mapping[str, int], apply: Apply
) -> tuple[Any, list[tuple[Any, str, Any, Any]]]:
    """Return the value of an expression and its steps (left, operator, right, result) in order of evaluation.

    Operators of higher precedence bind tighter; operators of equal precedence apply from left to right. This is E. W.
    Dijkstra's shunting-yard algorithm (1961), with a stack of values in place of the output.
    """
    values: list[Any] = []
    pending: list[str] = []
    steps: list[tuple[Any, str, Any, Any]] = []

    def apply_last_operator() -> None:
        operator, right, left = pending.pop(), values.pop(), values.pop()
        values.append(apply(operator, left, right))
        steps.append((left, operator, right, values[-1]))

    for token in tokens:
        if token == OPEN:
            pending.append(OPEN)
        elif token == CLOSE:
            while pending[-1] != OPEN:
                apply_last_operator()
            pending.pop()
        elif isinstance(token, str) and token in precedence:
            while pending and pending[-1] != OPEN and precedence[pending[-1]] >= precedence[token]:
                apply_last_operator()
            pending.append(token)
        else:
            values.append(token)
    while pending:
        apply_last_operator()
    return values[0], steps


def measure_depth(groups: Iterable[tuple[int, int]]) -> int:
    """Return the nesting depth of the parentheses."""
    depth = deepest = 0
    for openings, closings in groups:
        depth += openings
        deepest = max(deepest, depth)
        depth -= closings
    return deepest
