"""A search for the known texts in a request, without trying each text."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")

# With fewer texts, trying each text is faster than sliding over the request.
_FEW_TEXTS = 16
_PREFIX_LENGTHS = (32, 8, 4, 2, 1)


@dataclass(frozen=True, slots=True)
class Haystack:
    """The text of a request and its pieces: the whole text, its paragraphs and its lines, each stripped."""

    text: str
    pieces: tuple[str, ...]

    @classmethod
    def of(cls, text: str, *parts: str) -> "Haystack":
        """Prepare `text` for a search. `parts` are further pieces, such as one turn of a conversation."""
        pieces = {piece.strip() for part in (text, *parts) for piece in (part, *part.split("\n\n"))}
        pieces.update(line.strip() for line in text.split("\n"))
        pieces.discard("")
        return cls(text, tuple(sorted(pieces, key=len, reverse=True)))


class TextIndex(Generic[Value]):
    """A mapping from texts that may occur in a request to values.

    A text matches if it occurs anywhere in the request. A text that is a whole piece of the request takes precedence,
    then the longest text. The time of a search depends on the length of the request, not on the number of texts.
    """

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._by_prefix: dict[int, dict[str, list[str]]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, text: str) -> Value | None:
        return self._values.get(text.strip())

    def set(self, text: str, value: Value) -> None:
        """Store `value` for `text`. Raise ValueError if the text is blank."""
        text = text.strip()
        if not text:
            raise ValueError("a blank text occurs everywhere")
        if text not in self._values:
            length = next(length for length in _PREFIX_LENGTHS if length <= len(text))
            self._by_prefix.setdefault(length, {}).setdefault(text[:length], []).append(text)
        self._values[text] = value

    def find(self, haystack: Haystack) -> tuple[str, Value] | None:
        """Return the best text that occurs in the request, with its value; None if no text occurs."""
        for piece in haystack.pieces:
            if piece in self._values:
                return piece, self._values[piece]
        best = max(self._find_inside(haystack.text), key=len, default=None)
        return None if best is None else (best, self._values[best])

    def _find_inside(self, text: str) -> Iterator[str]:
        if len(self._values) <= _FEW_TEXTS:
            yield from (candidate for candidate in self._values if candidate in text)
            return
        for length, by_prefix in self._by_prefix.items():
            for start in range(len(text) - length + 1):
                for candidate in by_prefix.get(text[start : start + length], ()):
                    if text.startswith(candidate, start):
                        yield candidate
