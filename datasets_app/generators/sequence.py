"""Sequence: a later term of a sequence of integers under stated rules.

Specification. The input states the first terms of a sequence and the rules for each next term, as numbered lines: the
base rule first, then `interference` rules that apply under a condition, in the order of the lines. A condition depends
on the position of the new term (positions count from 1) or on the value after the earlier rules. Then the input shows
the sequence up to the third term and asks for term number `length`. The target is that term.

Base rules: constant adds a number, growing adds a number times the position of the new term, multiply multiplies by 2
or 3, fibonacci adds the two previous terms.

ReasonScape publishes a base rule with interference rules about conditions and positions. Our choices: all rules, and
stating them in the input, because a finite list of numbers has no unique continuation. Free text has a guess chance of
0.
"""

from __future__ import annotations

from random import Random
from typing import Literal, NamedTuple

from datasets_app.generators.answer_rules import INTEGER
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param

Base = Literal["constant", "growing", "multiply", "fibonacci"]
SHOWN_TERMS = 3


class SequenceCondition(NamedTuple):
    """A condition of an interference rule: its text, and the remainder of a division of the position or value."""

    text: str
    subject: Literal["position", "value"]
    divisor: int
    remainder: int = 0

    def holds(self, position: int, value: int) -> bool:
        return (position if self.subject == "position" else value) % self.divisor == self.remainder


CONDITIONS = (
    SequenceCondition("the position of the new term is even", "position", 2),
    SequenceCondition("the position of the new term is divisible by 3", "position", 3),
    SequenceCondition("the position of the new term is divisible by 4", "position", 4),
    SequenceCondition("the value so far is even", "value", 2),
    SequenceCondition("the value so far is odd", "value", 2, 1),
    SequenceCondition("the value so far is divisible by 3", "value", 3),
    SequenceCondition("the value so far is divisible by 5", "value", 5),
)
Rule = tuple[SequenceCondition, int]  # A condition, and the number to add if it holds.


class SequenceParams(Params):
    base: Base = declare_param("constant", "Base rule; multiply and fibonacci grow fastest.", harder="other")
    interference: int = declare_param(1, "Number of rules that apply under a condition.", harder="higher", ge=0, le=4)
    length: int = declare_param(6, "Position of the requested term.", harder="higher", ge=4, le=60)
    max_step: int = declare_param(9, "Largest number that a rule adds or subtracts.", harder="higher", ge=2, le=999)


def draw(params: SequenceParams, rng: Random) -> Case:
    starts = [rng.randint(1, 9) for _ in range(2 if params.base == "fibonacci" else 1)]
    step = rng.randint(2, 3) if params.base == "multiply" else rng.randint(1, params.max_step)
    rules: list[Rule] = [
        (condition, rng.choice((-1, 1)) * rng.randint(1, params.max_step))
        for condition in rng.sample(CONDITIONS, params.interference)
    ]
    terms = list(starts)
    while len(terms) < params.length:
        terms.append(compute_next_term(terms, params.base, step, rules))
    lines = [
        {
            "constant": f"Add {step} to the term before.",
            "growing": f"Add {step} times the position of the new term to the term before.",
            "multiply": f"Multiply the term before by {step}.",
            "fibonacci": "Add the two terms before.",
        }[params.base],
        *(f"If {condition.text}, {'add' if change > 0 else 'subtract'} {abs(change)}." for condition, change in rules),
    ]
    first_terms = ", ".join(map(str, terms[:SHOWN_TERMS]))
    text = "\n".join([
        f"A sequence begins with {' and '.join(map(str, starts))}. Each next term follows these rules, in this order:",
        *(f"{number}. {line}" for number, line in enumerate(lines, 1)),
        f"The first {SHOWN_TERMS} terms are {first_terms}. What is term number {params.length}?",
    ])  # fmt: skip
    return Case(text, str(terms[-1]), genresult={"terms": terms, "step": step})


def compute_next_term(terms: list[int], base: str, step: int, rules: list[Rule]) -> int:
    """Return the next term."""
    position = len(terms) + 1
    values = {
        "constant": terms[-1] + step,
        "growing": terms[-1] + step * position,
        "multiply": terms[-1] * step,
        "fibonacci": sum(terms[-2:]),
    }
    value = values[base]
    for condition, change in rules:
        value += change if condition.holds(position, value) else 0
    return value


def explain(case: Case) -> str:
    """Return every term with its position."""
    return "\n".join(f"Term {position}: {term}" for position, term in enumerate(case.genresult["terms"], 1))


GENERATOR = Generator(
    name="sequence",
    title="Number sequences",
    version=2,
    params=SequenceParams,
    draw=draw,
    earlier={1: Edition(draw, is_distinct=False)},
    explain=explain,
    instructions=Instructions("Continue the sequence by its rules.", "(an integer)"),
    answer=INTEGER,
)
