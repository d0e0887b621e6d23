"""The choice that a name means: by its key in addresses, by a name that pages show, or as a hint ("did you mean")."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Generic, TypeVar

T = TypeVar("T")
MAX_LISTED = 40  # Choices in an error message.


class UnknownNameError(ValueError):
    """A name that means no choice, or several. The message lists the choices."""


@dataclass(frozen=True, slots=True)
class NamedChoice(Generic[T]):
    """A value that people may choose by name. key: unique among the choices. names: of which pages show the first."""

    value: T
    key: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = self.names[0] if self.names else self.key
        return self.key if _fold(shown) == _fold(self.key) else f'{self.key} "{shown}"'


def find_named(name: str, choices: Sequence[NamedChoice[T]], kind: str) -> T:
    """Return the value of the choice with this key or name. Raise UnknownNameError for none or several.

    A key wins over a name. An exact name wins over one that differs in case, white space or underscores.
    """
    rules: tuple[Callable[[NamedChoice[T]], bool], ...] = (
        lambda choice: choice.key == name,
        lambda choice: name in choice.names,
        lambda choice: _fold(name) in map(_fold, (choice.key, *choice.names)),
    )
    for rule in rules:
        matches = [choice for choice in choices if rule(choice)]
        if len(matches) == 1:
            return matches[0].value
        if matches:
            raise UnknownNameError(f"{name} is the name of several {kind}s: {list_choices(matches)}")
    raise UnknownNameError(f"there is no {kind} {name}; existing {kind}s: {list_choices(choices)}")


def list_choices(choices: Sequence[object]) -> str:
    """Return the choices as a text for an error message, such as `valence, arousal`; `none` if there are none."""
    more = f" and {len(choices) - MAX_LISTED:,} more" if len(choices) > MAX_LISTED else ""
    return (", ".join(map(str, choices[:MAX_LISTED])) or "none") + more


def write_as_words(name: str) -> str:
    """Return a name of a file or design as people read it: "final_answer" becomes "Final answer"."""
    words = name.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:]


def _fold(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).casefold()


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
