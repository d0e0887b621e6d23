r"""Rules that read a task's final answer from a model's text. Pure.

The answer is the rest of the line after the last "Final Answer:" (in any case, with or without emphasis). Without that
mark it is the last line. The pattern must then match the whole line, so a number in a sentence is not an answer.
ReasonScape's own patterns are not public; its record reads "(C)" from "Final Answer: (C) Hacksaw Ridge".

Patterns take linear time, because answers are untrusted text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

MARK = re.compile(r"\bfinal[ \t]{1,4}answer\b[*_ \t]{0,4}[:：]", re.IGNORECASE)
DECORATION = " \t\r*_`\"'“”$"
MAX_ANSWER_CHARS = 2_000  # The rest of a longer answer is ignored. The longest target has about 1,500 characters.


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The answer in a text.

    normalised: the final answer as written, without decoration. extracted: the part that matches the pattern, in its
    canonical form; None without a match. valid: whether the question allows the extracted answer.
    """

    normalised: str
    extracted: str | None
    valid: bool


@dataclass(frozen=True, slots=True)
class AnswerRule:
    r"""A task's answer pattern, and the canonical form of its matches.

    pattern: a regular expression, searched in the final answer. Its group 1 is the answer; without a group, the whole
    match is.
    """

    pattern: str
    canonical: Callable[[str], str] = str.strip

    def read(self, text: str, choices: Sequence[str] | None = None) -> ParsedAnswer:
        """Return the answer in a model's text. The caller has removed any reasoning tokens."""
        answer, marked = extract_final_answer(text)
        search = _compile(self.pattern).search if marked else _compile(self.pattern).fullmatch
        match = search(answer)
        if match is None:
            return ParsedAnswer(answer, None, valid=False)
        extracted = self.canonical(match.group(match.lastindex or 0))
        allowed = choices is None or extracted in {self.canonical(choice) for choice in choices}
        return ParsedAnswer(answer, extracted, valid=allowed)

    def is_correct(self, reading: ParsedAnswer, target: str) -> bool:
        """Return whether the answer equals the target. Both are compared in their canonical form."""
        return reading.valid and reading.extracted == self.canonical(target)


def extract_final_answer(text: str) -> tuple[str, bool]:
    """Return the final answer without decoration, and whether "Final Answer:" stands before it."""
    end = max((mark.end() for mark in MARK.finditer(text)), default=None)
    if end is None:
        return text.strip().rpartition("\n")[2][:MAX_ANSWER_CHARS].strip(DECORATION), False
    return text[end:].lstrip(DECORATION + "\n").partition("\n")[0][:MAX_ANSWER_CHARS].rstrip(DECORATION), True


def normalize_integer(text: str) -> str:
    """Return an integer as Python writes it: "1,234" is 1234, "−5" (a minus sign) is -5, "+7" and "007" are 7."""
    digits = re.sub(r"[,\s]", "", text).replace("−", "-")
    sign = "-" if digits.startswith("-") else ""
    return f"{sign}{digits.lstrip('+-').lstrip('0')}" if digits.lstrip("+-").strip("0") else "0"


def normalize_text(text: str) -> str:
    """Return a text for comparison: case-folded, with single spaces and without a final full stop."""
    return " ".join(text.casefold().split()).rstrip(".").rstrip()


def list_letters(count: int) -> tuple[str, ...]:
    """Return ("(A)", "(B)", ...), the choices of a question with lettered options. At most 26."""
    if not 2 <= count <= 26:
        raise ValueError(f"the number of options must be 2 to 26, not {count}")
    return tuple(f"({chr(ord('A') + index)})" for index in range(count))


def format_options(options: Sequence[str]) -> str:
    """Return the options as lines, in the format of ReasonScape's record: "Options:", "(A) first", "(B) second"."""
    lines = (f"{letter} {option}" for letter, option in zip(list_letters(len(options)), options, strict=True))
    return "Options:\n" + "\n".join(lines)


def _normalize_letter(text: str) -> str:
    return f"({text.strip('() .').upper()})"


@lru_cache(maxsize=64)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


# The integer after the last "=" that an integer follows, else the first integer.
INTEGER = AnswerRule(r"(?:.*=[ \t]{0,4})?(?<![0-9.,])([-−+]?[0-9][0-9,]*)(?![0-9,]*[.][0-9])\.?", normalize_integer)
LETTER = AnswerRule(r"(\([A-Za-z]\)|(?<![A-Za-z0-9])[A-Z](?=[).:]|\s*$)).{0,200}", _normalize_letter)
TEXT = AnswerRule(r".*[^\s.].*", normalize_text)
