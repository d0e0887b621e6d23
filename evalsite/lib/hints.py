"""Hints for a name that was meant: one rule for every "did you mean"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

CLOSE = 0.7  # Of difflib's ratio from 0 to 1: one slip in a short name, two in a longer one.


def closest(written: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like the written one, or None where none is, or where it is known itself."""
    names = list(dict.fromkeys(known))
    if written in names:
        return None
    by_bare = {_bare(name): name for name in reversed(names)}
    found = get_close_matches(_bare(written), by_bare, n=1, cutoff=CLOSE)
    return by_bare[found[0]] if found else None


def did_you_mean(written: str, known: Iterable[str], *, shown: Callable[[str], str] = str) -> str:
    """Return a hint such as `did you mean user?`, or "" where no known name is meant.

    Two names that differ only in case, white space or quotes look alike, so the hint says what differs.
    """
    meant = closest(written, known)
    if meant is None:
        return ""
    if _bare(meant) != _bare(written):
        return f"did you mean {shown(meant)}?"
    without_space = re.sub(r"\s+", "", written)
    if without_space == re.sub(r"\s+", "", meant):
        return f"it differs from {shown(meant)} in white space"
    if without_space.casefold() == re.sub(r"\s+", "", meant).casefold():
        return f"it differs from {shown(meant)} in upper and lower case"
    return f"it differs from {shown(meant)} in quotes or invisible characters"


def _bare(name: str) -> str:
    """The name without white space, quotes and invisible characters, in small letters."""
    return re.sub(r"[\s`'\"\u200b\ufeff]+", "", name).casefold()
