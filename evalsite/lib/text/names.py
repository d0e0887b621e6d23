"""The choice that a name means: by its key in addresses, or by a name that pages show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
