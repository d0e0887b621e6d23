"""Boolean: the value of an expression of truth values with not, and, or.

Specification. The input is one expression of `length` truth values in the notation of `format`, and nothing else. "not"
binds tighter than "and", and "and" tighter than "or". A "not" applies to the value or the parenthesis that follows it.
The target is the value in the same notation, so a guess is right with a chance of 1/2.

ReasonScape publishes the parameters, their defaults and the order of precedence. ReasonScape also has an exclusive or
with limits on its syntax that are not public; this task does not include it. Our choices: "and" and "or" are equally
likely, and each "not" is followed by another with the probability `prob_not_after_not`. `format` may be the name or
ReasonScape's number, 0 to 4.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any, Literal, get_args

from pydantic import field_validator

from datasets_app.generators.answers import AnswerRule
from datasets_app.generators.base import Case, Generator, Instructions, Params, declare_param
from datasets_app.generators.expressions import OPEN, assemble_tokens, draw_groups, evaluate_infix, measure_depth

Format = Literal["TRUE_FALSE", "T_F", "ON_OFF", "BINARY", "YES_NO"]
WORDS: dict[str, tuple[str, str]] = {
    "TRUE_FALSE": ("True", "False"),
    "T_F": ("T", "F"),
    "ON_OFF": ("ON", "OFF"),
    "BINARY": ("1", "0"),
    "YES_NO": ("YES", "NO"),
}
PRECEDENCE = {"or": 1, "and": 2}
MAX_NOTS = 8  # Consecutive nots before one operand.
NOT = "not"
UNLIKE = "unlike"  # Exclusive or, used only during evaluation. It never occurs in a text.


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
    format: Format = declare_param(
        "TRUE_FALSE", "Notation of the truth values; rare notations are harder.", harder="other"
    )

    @field_validator("format", mode="before")
    @classmethod
    def _convert_number(cls, value: Any) -> Any:
        names = get_args(Format)
        return names[value] if type(value) is int and 0 <= value < len(names) else value


def draw(params: BooleanParams, rng: Random) -> Case:
    values = [rng.random() < 0.5 for _ in range(params.length)]
    operators = [rng.choice(("and", "or")) for _ in range(params.length - 1)]
    groups = draw_groups(rng, params.length, params.max_depth, params.prob_open, params.prob_close)
    tokens = _insert_nots(assemble_tokens(values, operators, groups), params, rng)
    true, false = words = WORDS[params.format]
    text = " ".join(token if isinstance(token, str) else words[not token] for token in tokens)
    value, _ = evaluate_expression(tokens)
    facts = {"depth": measure_depth(groups), "nots": tokens.count(NOT), "words": list(words)}
    return Case(text.replace("( ", "(").replace(" )", ")"), true if value else false, words, facts)


def _insert_nots(tokens: list[Any], params: BooleanParams, rng: Random) -> list[Any]:
    """Return the tokens with "not" drawn before values and opening parentheses."""
    result: list[Any] = []
    for token in tokens:
        if token == OPEN or isinstance(token, bool):
            nots = 1 if rng.random() < params.prob_not else 0
            while 0 < nots < MAX_NOTS and rng.random() < params.prob_not_after_not:
                nots += 1
            result += [NOT] * nots
        result.append(token)
    return result


def evaluate_expression(tokens: list[Any]) -> tuple[bool, list[tuple[bool, str, bool, bool]]]:
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
    return evaluate_infix(infix, PRECEDENCE | {UNLIKE: 3}, _apply_operator)


def _apply_operator(name: str, left: bool, right: bool) -> bool:
    if name == UNLIKE:
        return left != right
    return left and right if name == "and" else left or right


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


GENERATOR = Generator(
    name="boolean",
    title="Boolean expressions",
    version=1,
    params=BooleanParams,
    draw=draw,
    explain=explain,
    instructions=Instructions(
        "Evaluate the Boolean expression. not comes before and, and and before or.",
        "(the value, written as in the expression)",
    ),
    answer=AnswerRule(r"(?i)(?<![A-Za-z0-9])(true|false|t|f|on|off|1|0|yes|no)(?![A-Za-z0-9])", str.upper),
)
