"""The parts of an answer that rules score: the final line, the last number, the chosen letter.

Every parser takes linear or nearly linear time, because answers are untrusted text.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from runs_app.llm.prompts import get_choice_letter
from runs_app.llm.rating_parser import strip_thinking

ANSWER_MARK = re.compile(r"\banswer\b[*_ \t]{0,4}:", re.IGNORECASE)
DECORATION = " \t\r*_`\"'“”"

NUMBER = re.compile(
    r"""
    (?:(?<![\w)\]])(?P<sign>[-−+]))?     # a sign, unless it is a minus between two terms or a hyphen
    [$€£]?
    (?:(?<!\w)(?P<whole>[0-9]{1,9})[ ](?=[0-9]{1,9}/[0-9]))?    # the 1 of "1 1/2"
    (?P<body>(?<!\w)(?<![0-9]\.)(?:[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+(?![0-9,.])|[0-9][0-9,]*(?:\.[0-9]+)?)
        |(?<![\w.])\.[0-9]+)
    (?P<exponent>[eE][-+]?[0-9]{1,4}(?!\w))?
    (?P<over>(?:/[0-9][0-9,]*)*)
    """,
    re.VERBOSE | re.ASCII,
)
LATEX_FRACTION = re.compile(r"([0-9]?)\\[dt]?frac\{([0-9]{1,9})\}\{([0-9]{1,9})\}")
THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?")

LONE_LETTER = re.compile(r"\W*([A-Za-z])\W*")
LEADING_LETTER = re.compile(r"\W*([A-Z])(?:\s*[).:\]}*]|\s+[-–—])")
STATED_LETTER = re.compile(r"\b(?i:answer|choice|option)\s+(?:is|was|would be)\b[^\w\n]{0,8}([A-Z])(?![\w'’])")
MARKED_LETTER = re.compile(r"\(([A-Z])\)|(?<![\w(])([A-Z])\)|\*\*\(?([A-Z])\b|boxed\{\(?([A-Z])\)?\}|\[([A-Z])\]")
# "A cat" has an article and "I think" a pronoun; neither is a choice.
BARE_LETTER = re.compile(r"(?<![\w'’])(?!A [a-z]|I [a-z]|I['’])([A-Z])(?![\w'’])")


def find_final_part(text: str) -> str:
    """Return the text after the last "ANSWER:" on its line, or on the next line if that is empty, else all text.

    Thoughts are excluded. Emphasis marks and quotes around the part are removed.
    """
    visible = strip_thinking(text)
    end = max((mark.end() for mark in ANSWER_MARK.finditer(visible)), default=None)
    if end is None:
        return visible.strip(DECORATION + "\n")
    return visible[end:].lstrip(DECORATION + "\n").partition("\n")[0].rstrip(DECORATION)


def normalize(text: str) -> str:
    """Return the text for comparison, without differences of case, white space, Unicode form and a final full stop."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).rstrip(".").rstrip()


def find_last_number(text: str) -> tuple[float, str] | None:
    """Return the last finite number in a text, and its written form.

    Reads 1,234.50 and 3,5 (as 3.5) and $5 and 50% (as 50), 3/4 and 1 1/2 and \\frac{3}{4}, -2 and 1e3. A date
    (1/2/2024) is not a number.
    """
    plain = LATEX_FRACTION.sub(_rewrite_fraction, text.replace("{,}", ","))
    for match in reversed(list(NUMBER.finditer(plain))):
        value = _parse_value(match)
        if value is not None:
            return value, match.group().strip()
    return None


def find_target_letter(text: str, choices: Sequence[str]) -> str | None:
    """Return the letter of a target: the choice with this text, else a single letter ("B", "(B)", "b.")."""
    target = normalize(text)
    matches = [get_choice_letter(index) for index, choice in enumerate(choices) if normalize(choice) == target]
    by_text = matches[0] if len(matches) == 1 and target else None
    if by_text is not None:
        return by_text
    match = LONE_LETTER.fullmatch(text)
    letter = match.group(1).upper() if match else None
    return letter if letter in _list_letters(choices) else None


def find_chosen_letter(text: str, choices: Sequence[str]) -> str | None:
    """Return the letter that an answer chose among its choices (all 26 letters if the choices are unknown).

    The first matching pattern decides: the final part is a letter or a choice's text; it says "the answer is B"; it
    begins with "B)"; a letter is marked as "(B)", "**B**" or boxed; a capital stands alone.
    If a pattern occurs several times, the last occurrence counts.
    """
    part, letters = find_final_part(text), _list_letters(choices)
    target = find_target_letter(part, choices)
    if target is not None:
        return target
    leading = LEADING_LETTER.match(part)
    patterns = (
        STATED_LETTER.finditer(part),
        [leading] if leading else [],
        MARKED_LETTER.finditer(part),
        BARE_LETTER.finditer(part),
    )
    for matches in patterns:
        letters_found = [letter for match in matches if (letter := match.group(match.lastindex or 1)) in letters]
        if letters_found:
            return letters_found[-1]
    return None


def _list_letters(choices: Sequence[str]) -> list[str]:
    return [get_choice_letter(index) for index in range(len(choices) or 26)]


def _rewrite_fraction(match: re.Match[str]) -> str:
    whole, numerator, denominator = match.groups()
    return f"{whole} {numerator}/{denominator}" if whole else f"{numerator}/{denominator}"


def _parse_value(match: re.Match[str]) -> float | None:
    body, over = _drop_separators(match["body"]), match["over"].split("/")[1:]
    if len(body) > 300 or len(over) > 1:
        return None
    value = float(body + (match["exponent"] or ""))
    if over:
        divisor = float(_drop_separators(over[0]))
        if not divisor:
            return None
        value = float(match["whole"] or 0) + value / divisor
    return (-value if match["sign"] in ("-", "−") else value) if math.isfinite(value) else None


def _drop_separators(digits: str) -> str:
    """Return digits with a decimal point only.

    1,234 becomes 1234; 3,5 and 0,123 and 1.234,5 become 3.5, 0.123 and 1234.5. A list such as 1,2,3 gives its last
    part.
    """
    digits = digits.rstrip(",")
    if THOUSANDS.fullmatch(digits):
        return digits.replace(",", "")
    before, comma, after = digits.rpartition(",")
    is_decimal = comma and "," not in before and "." not in after
    return f"{before.replace('.', '')}.{after}" if is_decimal else after
