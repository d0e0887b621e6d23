"""Words and names that several tasks share. Pure.

A change to these lists changes cases: raise the version of every task that uses them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data"

PEOPLE = (
    "Alice", "Bob", "Claire", "Dave", "Eve", "Fred", "Gertrude", "Hugo", "Iris", "Jamal", "Karla", "Liam", "Mona",
    "Nils", "Olga", "Pablo", "Quinn", "Rosa", "Sven", "Tara", "Umar", "Vera", "Walt", "Ximena", "Yusuf", "Zoe",
)  # fmt: skip

ONES = (
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


@cache
def load_dictionary() -> tuple[str, ...]:
    """Return the shipped English words in alphabetical order, in lower case."""
    return tuple((DATA / "words.txt").read_text(encoding="utf-8").split())


def spell_number(number: int) -> str:
    """Return a number from 0 to 99 in words. 0 is "no", as in "no apples"."""
    if number < len(ONES):
        return ONES[number]
    tens, ones = divmod(number, 10)
    return TENS[tens - 2] + (f"-{ONES[ones]}" if ones else "")


def format_ordinal(number: int) -> str:
    """Return the ordinal of a positive number, such as "3rd" for 3."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def join_phrases(phrases: list[str]) -> str:
    """Return ["a", "b", "c"] as "a, b and c"."""
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
