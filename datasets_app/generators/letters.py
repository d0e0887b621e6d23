"""Letters: the number of occurrences of some letters in a list of words.

Specification. The input names `target_letters` different letters and lists `words` + `confounders` words. `rarity`
selects the pool of the letters: common, uncommon or rare in English. Each of the `words` words has at least one of the
letters once or twice in all, none of the confounders has any, and their order is random. The target is the number of
occurrences of all named letters in all listed words, without regard to case.

ReasonScape publishes the dimensions: words, letters from a common, an uncommon and a rare pool, and confounders. Our
choices: the pools, the dictionary, and drawing words with repetition. Free text has a guess chance of 0.

The target is drawn first: each number from `words` to twice `words` is equally likely. Letters that hardly any word has
twice (j, q, w, x and y alone) are drawn again. In version 1, words had any number of the letters, so that the number of
words was the target of up to 97 % of the cases.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Literal

from datasets_app.generators.answer_rules import INTEGER
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param
from datasets_app.generators.vocabulary import join_phrases, load_dictionary

MIN_WORDS = 3  # Words with two of the letters.
POOLS = {"common": "aeilnorst", "uncommon": "bcdghmpuy", "rare": "fjkqvwxz"}


class LettersParams(Params):
    words: int = declare_param(4, "Number of words with a target letter.", harder="higher", ge=1, le=100)
    target_letters: int = declare_param(1, "Number of letters to count.", harder="higher", ge=1, le=4)
    rarity: Literal["common", "uncommon", "rare"] = declare_param(
        "common", "Pool of the letters; common letters occur more often.", harder="other"
    )
    confounders: int = declare_param(0, "Number of words without any target letter.", harder="higher", ge=0, le=100)


def draw(params: LettersParams, rng: Random) -> Case:
    n_twice = rng.randint(0, params.words)
    while True:
        letters = "".join(sorted(rng.sample(POOLS[params.rarity], params.target_letters)))
        once, twice, without = _count_in_dictionary(letters)
        if len(twice) >= MIN_WORDS:
            break
    words = rng.choices(twice, k=n_twice) + rng.choices(once, k=params.words - n_twice)
    return _make_case(letters, words + rng.choices(without, k=params.confounders), rng)


def draw_unbalanced(params: LettersParams, rng: Random) -> Case:
    """Return a case as version 1 drew it."""
    letters = "".join(sorted(rng.sample(POOLS[params.rarity], params.target_letters)))
    with_letters, without = _split_dictionary(letters)
    words = rng.choices(with_letters, k=params.words) + rng.choices(without, k=params.confounders)
    return _make_case(letters, words, rng)


def _make_case(letters: str, words: list[str], rng: Random) -> Case:
    rng.shuffle(words)
    letter_names = join_phrases([f'"{letter}"' for letter in letters])
    noun = "letter" if len(letters) == 1 else "letters"
    verb = "does the" if len(letters) == 1 else "do the"
    total = sum(word.count(letter) for word in words for letter in letters)
    question = f"How many times {verb} {noun} {letter_names} occur in these words: {', '.join(words)}?"
    return Case(question, str(total), genresult={"letters": list(letters), "words": words})


@lru_cache(maxsize=1024)
def _count_in_dictionary(letters: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the dictionary's words with one of the letters, with two, and with none."""
    counts = {word: sum(word.count(letter) for letter in letters) for word in load_dictionary()}
    once, twice, none = (tuple(word for word in counts if counts[word] == number) for number in (1, 2, 0))
    return once, twice, none


@lru_cache(maxsize=1024)
def _split_dictionary(letters: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the dictionary's words with at least one of the letters, and its words without any."""
    targets = set(letters)
    matches = tuple(word for word in load_dictionary() if targets & set(word))
    return matches, tuple(word for word in load_dictionary() if not targets & set(word))


def explain(case: Case) -> str:
    """Return the count in each word, and the sum."""
    letters = set(case.genresult["letters"])
    counts = [(word, sum(letter in letters for letter in word)) for word in case.genresult["words"]]
    lines = [f"{word}: {count}" for word, count in counts]
    return "\n".join([*lines, " + ".join(str(count) for _, count in counts) + f" = {case.target}"])


GENERATOR = Generator(
    name="letters",
    title="Letter counting",
    version=2,
    params=LettersParams,
    draw=draw,
    earlier={1: Edition(draw_unbalanced, is_distinct=False)},
    explain=explain,
    instructions=Instructions(
        "Count how often the letters occur in all the words. Upper and lower case are the same.", "(an integer)"
    ),
    answer=INTEGER,
)
