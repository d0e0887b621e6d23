"""Boolean: the value of an expression of truth values with not, and, xor, or.

Specification. The input is one expression of `length` truth values in the notation of `format`, and nothing else. "not"
binds tighter than "and", "and" tighter than "xor", and "xor" tighter than "or". A "not" applies to the value or the
parenthesis that follows it. The target is the value in the same notation, so a guess is right with a chance of 1/2.

ReasonScape publishes the parameters, their defaults, the precedence of not, and, or, and an exclusive or with limits on
its syntax that are not public. Our choices: the precedence of "xor" (as in C and Python), its probability `prob_xor`,
and the draw of the other operators. Each "not" is followed by another with the probability `prob_not_after_not`.
`format` may be the name or ReasonScape's number, 0 to 4.

Both targets are equally likely at every point. If "and" and "or" were equally likely, then most long expressions would
be true, because one true part of a chain of "or" suffices. So "or" has the probability with which a chain of this
length is true half of the time. The operators, parentheses and nots are drawn first. Then the target is drawn, and the
truth values are drawn from all those that give the target, each with the same probability.

Version 1 had no "xor", equally likely "and" and "or", and truth values that did not depend on a target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import product
from random import Random
from typing import Any, Literal, NamedTuple, get_args

from pydantic import field_validator

from datasets_app.generators.answer_rules import AnswerRule
from datasets_app.generators.expressions import OPEN, assemble_tokens, draw_groups, evaluate_infix, measure_depth
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param

Format = Literal["TRUE_FALSE", "T_F", "ON_OFF", "BINARY", "YES_NO"]
WORDS: dict[str, tuple[str, str]] = {
    "TRUE_FALSE": ("True", "False"),
    "T_F": ("T", "F"),
    "ON_OFF": ("ON", "OFF"),
    "BINARY": ("1", "0"),
    "YES_NO": ("YES", "NO"),
}
UNLIKE = "unlike"  # Exclusive or with the precedence of not, used only during evaluation. It never occurs in a text.
PRECEDENCE = {"or": 1, "xor": 2, "and": 3, UNLIKE: 4}
OPERATIONS: dict[str, Callable[[bool, bool], bool]] = {
    "or": lambda left, right: left or right,
    "xor": lambda left, right: left != right,
    "and": lambda left, right: left and right,
    UNLIKE: lambda left, right: left != right,
}
OPERANDS = {  # By operator and value: the operands that give the value.
    (name, value): [pair for pair in product((False, True), repeat=2) if apply(*pair) == value]
    for name, apply in OPERATIONS.items()
    for value in (False, True)
}
MAX_NOTS = 8  # Consecutive nots before one operand.
NOT = "not"


class BooleanParams(Params):
    length: int = declare_param(8, "Number of truth values in the expression.", harder="higher", ge=3, le=100)
    max_depth: int = declare_param(2, "Deepest nesting of parentheses.", harder="higher", ge=0, le=16)
    prob_open: float = declare_param(
        0.4, "Probability that a parenthesis opens before a value.", harder="higher", ge=0.0, le=1.0
    )
    prob_close: float = declare_param(
        0.5, "Probability that a group closes after each further value.", harder="lower", ge=0.0, le=1.0
    )
    prob_not: float = declare_param(
        0.8, "Probability of a not before a value or a parenthesis.", harder="higher", ge=0.0, le=1.0
    )
    prob_not_after_not: float = declare_param(
        0.1, "Probability that another not follows a not.", harder="higher", ge=0.0, le=1.0
    )
    prob_xor: float = declare_param(0.0, "Probability that an operator is xor.", harder="higher", ge=0.0, le=1.0)
    format: Format = declare_param(
        "TRUE_FALSE", "Notation of the truth values; rare notations are harder.", harder="other"
    )

    @field_validator("format", mode="before")
    @classmethod
    def _convert_number(cls, value: Any) -> Any:
        names = get_args(Format)
        return names[value] if type(value) is int and 0 <= value < len(names) else value


class Node(NamedTuple):
    """A part of an expression whose truth values are not drawn yet.

    true, false: the numbers of its assignments with either value, as shares of all. Both are stored, because 1 - true
    would lose a share as small as 1e-20. number: of the truth value, for a leaf. operator, left, right: of other parts;
    with UNLIKE, `left` is a constant.
    """

    true: float
    false: float
    number: int = 0
    operator: str = ""
    left: Any = None
    right: Any = None


def draw(params: BooleanParams, rng: Random) -> Case:
    groups = draw_groups(rng, params.length, params.max_depth, params.prob_open, params.prob_close)
    operators = _draw_operators(groups, params.prob_xor, rng)
    leaves = [Node(0.5, 0.5, index) for index in range(params.length)]
    tokens = _insert_nots(assemble_tokens(leaves, operators, groups), params, rng)
    root, _ = evaluate_expression(tokens, combine_nodes)
    target = rng.random() < 0.5
    values = draw_values(root, target, params.length, rng)
    tokens = [values[token.number] if isinstance(token, Node) else token for token in tokens]
    return _make_case(tokens, target, measure_depth(groups), params)


def _make_case(tokens: Sequence[Any], target: bool, depth: int, params: BooleanParams) -> Case:
    true, false = words = WORDS[params.format]
    text = " ".join(token if isinstance(token, str) else words[not token] for token in tokens)
    facts = {"depth": depth, "nots": tokens.count(NOT), "words": list(words)}
    return Case(text.replace("( ", "(").replace(" )", ")"), true if target else false, words, facts)


def _draw_operators(groups: Iterable[tuple[int, int]], prob_xor: float, rng: Random) -> list[str]:
    """Return the operator before each operand but the first."""
    chains: list[list[int]] = [[]]  # For each open group, the positions of its operators.
    finished = []
    count = 0
    for index, (openings, closings) in enumerate(groups):
        if index:
            chains[-1].append(count)
            count += 1
        chains += [[] for _ in range(openings)]
        finished += [chains.pop() for _ in range(closings)]
    operators = [""] * count
    for chain in [*finished, *chains]:
        prob_or = find_or_probability(len(chain) + 1, prob_xor)
        for position in chain:
            is_xor = prob_xor > 0 and rng.random() < prob_xor
            operators[position] = "xor" if is_xor else "or" if rng.random() < prob_or else "and"
    return operators


@lru_cache(maxsize=4096)
def find_or_probability(length: int, prob_xor: float) -> float:
    """Return the share of "or" among "and" and "or" with which a chain of `length` operands is true half of the time.

    The operands are true half of the time, and independent.
    """
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _compute_truth(length, prob_xor, middle) < 0.5 else (low, middle)
    return (low + high) / 2


def _compute_truth(length: int, prob_xor: float, prob_or: float) -> float:
    """Return the probability that a chain of random operators is true, read from left to right as a Markov chain."""
    done = 0.0  # An earlier part of an "or" is true.
    states = {(False, False): 0.5, (False, True): 0.5}  # (the xor of the earlier conjunctions, the conjunction so far)
    for _ in range(length - 1):
        following = dict.fromkeys([(False, False), (False, True), (True, False), (True, True)], 0.0)
        for (parity, conjunction), chance in states.items():
            following[parity, False] += chance * (1 - prob_xor) * (1 - prob_or) * (0.5 if conjunction else 1)
            following[parity, True] += chance * (1 - prob_xor) * (1 - prob_or) * (0.5 if conjunction else 0)
            for operand in (False, True):
                following[parity != conjunction, operand] += chance * prob_xor / 2
                if parity == conjunction:
                    following[False, operand] += chance * (1 - prob_xor) * prob_or / 2
            done += chance * (1 - prob_xor) * prob_or * (parity != conjunction)
        states = following
    return done + sum(chance for (parity, conjunction), chance in states.items() if parity != conjunction)


def combine_nodes(operator: str, left: Any, right: Node) -> Node:
    """Return the node of an operation, as the argument `apply` of `evaluate_expression`."""
    if operator == UNLIKE:
        true, false = (right.false, right.true) if left else (right.true, right.false)
    elif operator == "and":
        true, false = left.true * right.true, left.false + left.true * right.false
    elif operator == "or":
        true, false = left.true + left.false * right.true, left.false * right.false
    else:
        true = left.true * right.false + left.false * right.true
        false = left.true * right.true + left.false * right.false
    return Node(true, false, 0, operator, left, right)


def draw_values(root: Node, target: bool, length: int, rng: Random) -> list[bool]:
    """Return the truth values of an expression with this target. All assignments that give it are equally likely."""
    values = [False] * length
    pending = [(root, target)]
    while pending:
        node, value = pending.pop()
        if not node.operator:
            values[node.number] = value
        elif node.operator == UNLIKE:
            pending.append((node.right, value != node.left))
        else:
            share = rng.random() * (node.true if value else node.false)
            for left, right in OPERANDS[node.operator, value]:
                left_share = node.left.true if left else node.left.false
                share -= left_share * (node.right.true if right else node.right.false)
                if share < 0:
                    break
            pending += ((node.left, left), (node.right, right))
    return values


def draw_unbalanced(params: BooleanParams, rng: Random) -> Case:
    """Return a case as version 1 drew it: most long expressions are true."""
    values = [rng.random() < 0.5 for _ in range(params.length)]
    operators = [rng.choice(("and", "or")) for _ in range(params.length - 1)]
    groups = draw_groups(rng, params.length, params.max_depth, params.prob_open, params.prob_close)
    tokens = _insert_nots(assemble_tokens(values, operators, groups), params, rng)
    return _make_case(tokens, evaluate_expression(tokens)[0], measure_depth(groups), params)


def _insert_nots(tokens: list[Any], params: BooleanParams, rng: Random) -> list[Any]:
    """Return the tokens with "not" drawn before values and opening parentheses."""
    result: list[Any] = []
    for token in tokens:
        if token == OPEN or not isinstance(token, str):
            nots = 1 if rng.random() < params.prob_not else 0
            while 0 < nots < MAX_NOTS and rng.random() < params.prob_not_after_not:
                nots += 1
            result += [NOT] * nots
        result.append(token)
    return result


def _apply_operator(name: str, left: bool, right: bool) -> bool:
    return OPERATIONS[name](left, right)


def evaluate_expression(
    tokens: Sequence[Any], apply: Callable[[str, Any, Any], Any] = _apply_operator
) -> tuple[Any, list[tuple[Any, str, Any, Any]]]:
    """Return the value of an expression and its steps.

    `evaluate_infix` supports only infix operators. Consecutive nots before x therefore become "True unlike x" if they
    negate x, else "False unlike x".
    """
    infix: list[Any] = []
    for token in tokens:
        if token != NOT:
            infix.append(token)
        elif infix and infix[-1] == UNLIKE:
            infix[-2] = not infix[-2]
        else:
            infix += [True, UNLIKE]
    return evaluate_infix(infix, PRECEDENCE, apply)


def explain(case: Case) -> str:
    """Return every operation in order of evaluation."""
    true, false = case.genresult["words"]
    words = re.findall(r"\w+|[()]", case.input)
    tokens = [word == true if word in (true, false) else word for word in words]
    lines = []
    for left, name, right, result in evaluate_expression(tokens)[1]:
        a, b, value = (true if operand else false for operand in (left, right, result))
        operation = f"{a} {name} {b}" if name != UNLIKE else f"{'not' if left else 'not not'} {b}"
        lines.append(f"{operation} = {value}")
    return "\n".join(lines)


FORM = "(the value, written as in the expression)"
INSTRUCTIONS = Instructions("Evaluate the Boolean expression. not comes before and, and and before or.", FORM)
XOR_INSTRUCTIONS = Instructions(
    "Evaluate the Boolean expression. xor is the exclusive or. "
    "not comes before and, and before xor, and xor before or.",
    FORM,
)

GENERATOR = Generator(
    name="boolean",
    title="Boolean expressions",
    version=2,
    params=BooleanParams,
    draw=draw,
    earlier={1: Edition(draw_unbalanced, is_distinct=False)},
    explain=explain,
    instructions=INSTRUCTIONS,
    vary_instructions=lambda params: XOR_INSTRUCTIONS if params.prob_xor > 0 else INSTRUCTIONS,
    answer=AnswerRule(r"(?i)(?<![A-Za-z0-9])(true|false|t|f|on|off|1|0|yes|no)(?![A-Za-z0-9])", str.upper),
)
