"""A side-by-side comparison of two texts: pairs of lines, and the words that differ within a changed line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

WORDS = re.compile(r"\w+|\s+|[^\w\s]")
SPACED_WORDS = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
MAX_PAIRS = 40_000  # Pairs of equal words that are compared: the work grows with them, not with the length.
ALIKE = 0.3  # Below this similarity, two lines count as one removed and one added, not as one changed.


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A pair of lines, one of each text. A side without a line is None."""

    before: tuple[Piece, ...] | None
    after: tuple[Piece, ...] | None

    @property
    def differs(self) -> bool:
        return self.before != self.after


def compare_lines(before: str, after: str) -> list[Row]:
    """Return the rows for all lines of both texts, in order. The pieces of one side form its original lines."""
    old, new = before.splitlines(), after.splitlines()
    rows: list[Row] = []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            rows += [Row((Piece(line),), (Piece(line),)) for line in old[a:b]]
        else:
            rows += _compare_changed_lines(old[a:b], new[c:d])
    return rows


def _compare_changed_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[Row]:
    for gone, come in zip_longest(old, new):
        if gone is None or come is None or SequenceMatcher(None, gone, come, autojunk=False).ratio() < ALIKE:
            yield Row(_mark_whole(gone), _mark_whole(come))
        else:
            yield _split_words(gone, come)


def _mark_whole(line: str | None) -> tuple[Piece, ...] | None:
    return None if line is None else (Piece(line, differs=True),)


def _split_words(gone: str, come: str) -> Row:
    old, new = WORDS.findall(gone), WORDS.findall(come)
    before: list[Piece] = []
    after: list[Piece] = []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for pieces, words in ((before, old[a:b]), (after, new[c:d])):
            if words:
                pieces.append(Piece("".join(words), differs=tag != "equal"))
    return Row(tuple(before), tuple(after))


def compare_words(before: str, after: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Return both texts in pieces that are equal or differ, over all lines. The pieces of one side form its text.

    If the texts repeat so many words that a comparison would take long, all between the common beginning and the
    common end differs.
    """
    old, new = SPACED_WORDS.findall(before), SPACED_WORDS.findall(after)
    counts, others = Counter(old), Counter(new)
    codes: Sequence[tuple[str, int, int, int, int]]
    if sum(n * others[word] for word, n in counts.items()) > MAX_PAIRS:
        codes = _split_common_ends(old, new)
    else:
        codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    one: list[Piece] = []
    other: list[Piece] = []
    for tag, a, b, c, d in codes:
        for pieces, words in ((one, old[a:b]), (other, new[c:d])):
            if words:
                pieces.append(Piece("".join(words), differs=tag != "equal"))
    return tuple(one), tuple(other)


def _split_common_ends(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """Return the common beginning, the middle that differs, and the common end, as SequenceMatcher does."""
    most = min(len(old), len(new))
    first = next((at for at in range(most) if old[at] != new[at]), most)
    last = next((at for at in range(most - first) if old[-1 - at] != new[-1 - at]), most - first)
    a, b = len(old) - last, len(new) - last
    return [
        ("equal", 0, first, 0, first),
        ("replace", first, a, first, b),
        ("equal", a, len(old), b, len(new)),
    ]
