"""Hints such as "did you mean": the rule by which the whole site finds the intended name of a misspelt one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

CLOSE = 0.7  # Minimum ratio of difflib (0 to 1): allows one typo in a short name, two in a longer name.


def find_closest(written: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to the written name.

    Return None if no known name is similar, or if the written name is itself known.
    """
    names = list(dict.fromkeys(known))
    if written in names:
        return None
    by_bare = {_normalize(name): name for name in reversed(names)}
    matches = get_close_matches(_normalize(written), by_bare, n=1, cutoff=CLOSE)
    return by_bare[matches[0]] if matches else None


def did_you_mean(written: str, known: Iterable[str], *, shown: Callable[[str], str] = str) -> str:
    """Return a hint such as `did you mean user?`, or "" if no known name is similar.

    Two names that differ only in case, white space or quotes look the same. For them the hint names the difference.
    """
    closest = find_closest(written, known)
    if closest is None:
        return ""
    if _normalize(closest) != _normalize(written):
        return f"did you mean {shown(closest)}?"
    without_space = re.sub(r"\s+", "", written)
    if without_space == re.sub(r"\s+", "", closest):
        return f"it differs from {shown(closest)} in white space"
    if without_space.casefold() == re.sub(r"\s+", "", closest).casefold():
        return f"it differs from {shown(closest)} in upper and lower case"
    return f"it differs from {shown(closest)} in quotes or invisible characters"


def _normalize(name: str) -> str:
    """Return the name in lower case, without white space, quotes and invisible characters."""
    return re.sub(r"[\s`'\"\u200b\ufeff]+", "", name).casefold()
