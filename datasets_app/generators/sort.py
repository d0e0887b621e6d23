"""Sort: a list of words in alphabetical order.

Specification. The input is `length` words separated by spaces, and nothing else. Words come from an English dictionary
in runs of 1 to `run_length` neighbours, so words of long runs begin alike. Each position repeats an earlier word with
the probability `prob_duplication`. Then the order is shuffled, and each word is written in capitals, with a capital, or
in mixed case with the probability `prob_mutation`. The target is all words in lower case, in alphabetical order,
separated by single spaces; repeated words are repeated.

ReasonScape publishes the parameters with the defaults of the two probabilities, the separator, and ignoring case. Our
choices: the target is in lower case on one line (an answer may have any case, commas or spaces), and all run lengths
are equally likely. Free text has a guess chance of 0.
"""

from __future__ import annotations

import re
from random import Random

from datasets_app.generators.answer_rules import AnswerRule
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param
from datasets_app.generators.vocabulary import load_dictionary


class SortParams(Params):
    length: int = declare_param(8, "Number of words.", harder="higher", ge=1, le=150)
    run_length: int = declare_param(1, "Maximum run of neighbouring dictionary words.", harder="higher", ge=1, le=50)
    prob_mutation: float = declare_param(
        0.3, "Probability that a word is written in another case.", harder="higher", ge=0.0, le=1.0
    )
    prob_duplication: float = declare_param(
        0.2, "Probability that a word repeats an earlier one.", harder="higher", ge=0.0, le=1.0
    )


def draw(params: SortParams, rng: Random) -> Case:
    words: list[str] = []
    run: list[str] = []
    while len(words) < params.length:
        if words and rng.random() < params.prob_duplication:
            words.append(rng.choice(words))
            continue
        run = run or _draw_run(params.run_length, rng)
        words.append(run.pop())
    rng.shuffle(words)
    variants = [_mutate(word, rng) if rng.random() < params.prob_mutation else word for word in words]
    facts = {"distinct": len(set(words)), "mutated": sum(a != b for a, b in zip(variants, words, strict=True))}
    return Case(" ".join(variants), " ".join(sorted(words)), genresult=facts)


def _draw_run(run_length: int, rng: Random) -> list[str]:
    """Return 1 to `run_length` neighbouring words of the dictionary."""
    size = rng.randint(1, run_length)
    start = rng.randrange(len(load_dictionary()) - size + 1)
    return list(load_dictionary()[start : start + size])


def _mutate(word: str, rng: Random) -> str:
    kind = rng.randrange(3)
    if kind == 0:
        return word.upper()
    if kind == 1:
        return word.capitalize()
    return "".join(letter.upper() if rng.random() < 0.5 else letter for letter in word)


def explain(case: Case) -> str:
    """Return the words grouped by first letter."""
    words = case.target.split()
    firsts = sorted({word[0] for word in words})
    return "\n".join(f"{first}: {' '.join(word for word in words if word[0] == first)}" for first in firsts)


def _join_words(text: str) -> str:
    return " ".join(re.findall(r"[a-z]+", text.casefold()))


GENERATOR = Generator(
    name="sort",
    title="Word sorting",
    version=2,
    params=SortParams,
    draw=draw,
    earlier={1: Edition(draw, is_distinct=False)},
    explain=explain,
    instructions=Instructions(
        "Sort the words in alphabetical order. Ignore case, and keep repeated words.",
        "(all words in lower case, separated by spaces)",
    ),
    answer=AnswerRule(r".*[A-Za-z].*", _join_words),
)
