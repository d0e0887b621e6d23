"""A side-by-side comparison of two texts: pairs of lines, and the words that differ within a changed line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

WORDS = re.compile(r"\w+|\s+|[^\w\s]")
SPACED_WORDS = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
MAX_PAIRS = 40_000  # Pairs of equal words that are compared: the work grows with them, not with the length.
MIN_SIMILARITY = 0.3  # Below this similarity, two lines count as one removed and one added, not as one changed.


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    differs: bool = False


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A pair of lines, one of each text. A side without a line is None."""

    before: tuple[Piece, ...] | None
    after: tuple[Piece, ...] | None

    @property
    def differs(self) -> bool:
        return self.before != self.after


def compare_lines(before: str, after: str) -> list[DiffRow]:
    """Return the rows for all lines of both texts, in order. The pieces of one side form its original lines."""
    old, new = before.splitlines(), after.splitlines()
    rows: list[DiffRow] = []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            rows += [DiffRow((Piece(line),), (Piece(line),)) for line in old[a:b]]
        else:
            rows += _compare_changed_lines(old[a:b], new[c:d])
    return rows


def _compare_changed_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffRow]:
    for old_line, new_line in zip_longest(old, new):
        if old_line is not None and new_line is not None and _is_similar(old_line, new_line):
            old_words, new_words = WORDS.findall(old_line), WORDS.findall(new_line)
            opcodes = SequenceMatcher(None, old_words, new_words, autojunk=False).get_opcodes()
            yield DiffRow(*_build_pieces(old_words, new_words, opcodes))
        else:
            yield DiffRow(_mark_whole(old_line), _mark_whole(new_line))


def _is_similar(old_line: str, new_line: str) -> bool:
    return SequenceMatcher(None, old_line, new_line, autojunk=False).ratio() >= MIN_SIMILARITY


def _mark_whole(line: str | None) -> tuple[Piece, ...] | None:
    return None if line is None else (Piece(line, differs=True),)


def compare_words(before: str, after: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Return both texts in pieces that are equal or differ, over all lines. The pieces of one side form its text.

    If the texts repeat so many words that a comparison would take long, everything between the common beginning and
    the common end counts as different.
    """
    old, new = SPACED_WORDS.findall(before), SPACED_WORDS.findall(after)
    old_counts, new_counts = Counter(old), Counter(new)
    if sum(n * new_counts[word] for word, n in old_counts.items()) > MAX_PAIRS:
        # The common beginning, the middle that differs, and the common end, as SequenceMatcher does.
        shorter = min(len(old), len(new))
        first = next((i for i in range(shorter) if old[i] != new[i]), shorter)
        last = next((i for i in range(shorter - first) if old[-1 - i] != new[-1 - i]), shorter - first)
        a, b = len(old) - last, len(new) - last
        common_ends = [
            ("equal", 0, first, 0, first),
            ("replace", first, a, first, b),
            ("equal", a, len(old), b, len(new)),
        ]
        return _build_pieces(old, new, common_ends)
    return _build_pieces(old, new, SequenceMatcher(None, old, new, autojunk=False).get_opcodes())


def _build_pieces(
    old: Sequence[str], new: Sequence[str], opcodes: Iterable[tuple[str, int, int, int, int]]
) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    before: list[Piece] = []
    after: list[Piece] = []
    for tag, a, b, c, d in opcodes:
        for pieces, words in ((before, old[a:b]), (after, new[c:d])):
            if words:
                pieces.append(Piece("".join(words), differs=tag != "equal"))
    return tuple(before), tuple(after)
