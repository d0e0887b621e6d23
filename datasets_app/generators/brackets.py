"""Brackets: the brackets that close an open sequence.

Specification. The input is a sequence of `length` brackets of the first `kinds` kinds among () [] {} <>, separated by
spaces. It is the beginning of a well-formed sequence, nests at most `max_depth` deep, and leaves at least one bracket
unclosed. The target is the shortest sequence that closes it: the open brackets' partners in reverse order, separated by
spaces. Spaces in an answer are ignored.

ReasonScape publishes the kinds, the last-in first-out rule, and the weight of closing brackets with its default 2. Our
choices: each opening kind has the weight 1 and the closing bracket `close_weight_multiplier`. If a rule above allows
only an opening or only a closing bracket, it is used. `max_depth` is at least 2, because an even length would leave
nothing to close at depth 1.

The number of unclosed brackets is drawn first: each possible number is equally likely, and so is each sequence of that
many closing brackets. The closed brackets are distributed at random before, between and after the unclosed ones.
Version 1 drew one bracket after the other, so that nearly all sequences of one kind left the same number unclosed.
"""

from __future__ import annotations

import re
from random import Random

from datasets_app.generators.answer_rules import AnswerRule
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param

PAIRS = ("()", "[]", "{}", "<>")
CLOSING = {pair[0]: pair[1] for pair in PAIRS}


class BracketsParams(Params):
    length: int = declare_param(12, "Number of brackets shown.", harder="higher", ge=1, le=400)
    max_depth: int = declare_param(4, "Deepest nesting of brackets.", harder="higher", ge=2, le=64)
    kinds: int = declare_param(3, "Number of kinds of brackets: (), [], {}, <>.", harder="higher", ge=1, le=4)
    close_weight_multiplier: float = declare_param(
        2.0, "Weight of a closing bracket against an opening kind; low values nest deeper.", harder="lower",
        ge=0.0, le=100.0,
    )  # fmt: skip


def draw(params: BracketsParams, rng: Random) -> Case:
    open_count = rng.choice(list_open_counts(params))
    pairs = [0] * (open_count + 1)  # Closed pairs at each level. No level is deeper than `max_depth`.
    levels = min(open_count + 1, params.max_depth)
    for _ in range((params.length - open_count) // 2):
        pairs[rng.randrange(levels)] += 1
    sequence: list[str] = []
    stack: list[str] = []
    deepest = 0
    for level, count in enumerate(pairs):
        if level:
            stack.append(PAIRS[rng.randrange(params.kinds)][0])
            sequence.append(stack[-1])
        closed, depth = _draw_closed_pairs(count, params.max_depth - level, params, rng)
        sequence += closed
        deepest = max(deepest, level + depth)
    return _make_case(sequence, stack, deepest)


def list_open_counts(params: BracketsParams) -> list[int]:
    """Return the possible numbers of unclosed brackets. They are all odd or all even, as the length is."""
    return list(range(2 - params.length % 2, min(params.length, params.max_depth) + 1, 2))


def _draw_closed_pairs(pairs: int, max_depth: int, params: BracketsParams, rng: Random) -> tuple[list[str], int]:
    """Return a well-formed sequence of this many pairs, and its depth."""
    weight = params.close_weight_multiplier
    prob_close = weight / (weight + params.kinds)
    sequence: list[str] = []
    stack: list[str] = []
    unopened, deepest = pairs, 0
    while unopened or stack:
        wants_closing = rng.random() < prob_close
        if stack and (wants_closing or not unopened or len(stack) == max_depth):
            sequence.append(CLOSING[stack.pop()])
        else:
            stack.append(PAIRS[rng.randrange(params.kinds)][0])
            sequence.append(stack[-1])
            unopened -= 1
            deepest = max(deepest, len(stack))
    return sequence, deepest


def _make_case(sequence: list[str], stack: list[str], depth: int) -> Case:
    target = " ".join(CLOSING[opening] for opening in reversed(stack))
    return Case(" ".join(sequence), target, genresult={"open": stack, "depth": depth})


def draw_unbalanced(params: BracketsParams, rng: Random) -> Case:
    """Return a case as version 1 drew it."""
    stack: list[str] = []
    sequence: list[str] = []
    deepest = 0
    for position in range(params.length):
        if _draw_closing(params, len(stack), is_last=position == params.length - 1, rng=rng):
            sequence.append(CLOSING[stack.pop()])
        else:
            stack.append(PAIRS[rng.randrange(params.kinds)][0])
            sequence.append(stack[-1])
            deepest = max(deepest, len(stack))
    return _make_case(sequence, stack, deepest)


def _draw_closing(params: BracketsParams, depth: int, *, is_last: bool, rng: Random) -> bool:
    """Return whether the next bracket closes. The last one must not close the only open bracket."""
    weight = params.close_weight_multiplier
    wants_closing = rng.random() < weight / (weight + params.kinds)
    if depth == 0 or (is_last and depth == 1):
        return False
    return wants_closing or depth == params.max_depth


def explain(case: Case) -> str:
    """Return the open brackets and the partner of each."""
    stack = case.genresult["open"]
    partners = ", ".join(f"{opening} by {CLOSING[opening]}" for opening in reversed(stack))
    return f"Still open, from first to last: {' '.join(stack)}\nClosed from last to first: {partners}."


def _insert_spaces(text: str) -> str:
    return " ".join(re.sub(r"\s", "", text))


GENERATOR = Generator(
    name="brackets",
    title="Brackets",
    version=2,
    params=BracketsParams,
    draw=draw,
    earlier={1: Edition(draw_unbalanced, is_distinct=False)},
    explain=explain,
    instructions=Instructions(
        "Complete the sequence of brackets so that every bracket is closed in the right order. "
        "Give only the closing brackets that are missing.",
        "(the missing brackets, separated by spaces)",
    ),
    answer=AnswerRule(r"([()\[\]{}<>](?:\s{0,4}[()\[\]{}<>])*)", _insert_spaces),
)
