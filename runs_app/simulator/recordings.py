"""Recorded answers that the server replays.

Each row of the JSONL file has match keys and an answer:

- Match keys, where a missing key matches anything:
  `model` (with or without the part before its first slash), `text` (occurs in the text of the request),
  `image` (sha256 of the bytes of an image in the request), `seed` (equals the seed of the request).
- Answer: `content` with optional `finish_reason`, `reasoning`, `refusal` and `usage` (used unchanged), or `status` of
  400 or more with `error`. An optional `latency_ms` replaces the configured latency.

The most specific row is used: the row with the most match keys. Among equal rows, one with an image comes first, then a
text, then a seed. Rows with equal keys are used in file order, one per request, and the last one repeats.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs_app.simulator.config import ConfigError
from runs_app.simulator.jsonl import read_rows
from runs_app.simulator.request_parser import ChatRequest, strip_provider
from runs_app.simulator.text_index import Haystack, TextIndex

_MATCH_KEYS = frozenset({"model", "text", "image", "seed"})
_ANSWER_KEYS = frozenset({"content", "status", "error", "finish_reason", "reasoning", "refusal", "usage", "latency_ms"})

# (model, image, seed) of a row; None for a missing key.
_Group = tuple[str | None, str | None, int | None]


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One recorded answer or error."""

    content: str | None = None
    status: int = 200
    error: str = "recorded error"
    finish_reason: str = "stop"
    reasoning: str | None = None
    refusal: str | None = None
    usage: dict[str, Any] | None = None
    latency_ms: float | None = None


@dataclass(slots=True)
class _Sequence:
    """The answers of rows with equal keys, and the number of answers served so far."""

    answers: list[RecordedAnswer] = field(default_factory=list)
    served: int = 0

    def next(self) -> RecordedAnswer:
        position = min(self.served, len(self.answers) - 1)
        self.served += 1
        return self.answers[position]


@dataclass(slots=True)
class _Rows:
    """The rows of one group, with and without a text."""

    by_text: TextIndex[_Sequence] = field(default_factory=TextIndex)
    without_text: _Sequence | None = None


class Recordings:
    """All recorded answers, indexed by (model, image, seed) and then by text."""

    def __init__(self) -> None:
        self._groups: dict[_Group, _Rows] = {}
        self._sequences: list[_Sequence] = []
        self.models: dict[str, None] = {}  # in file order

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "Recordings":
        """Read the files in order. Raise ConfigError with the wrong file, line and key."""
        recordings = cls()
        for path in paths:
            for location, row in read_rows(path, _MATCH_KEYS | _ANSWER_KEYS):
                try:
                    recordings.add(row)
                except (TypeError, ValueError, AttributeError) as error:
                    raise ConfigError(f"{location}: {error}") from None
        return recordings

    def __len__(self) -> int:
        return sum(len(sequence.answers) for sequence in self._sequences)

    def add(self, row: dict[str, Any]) -> None:
        """Add one row. Raise ValueError, TypeError or AttributeError if it is malformed."""
        answer = {name: row[name] for name in _ANSWER_KEYS & row.keys()}
        status = answer.get("status", 200)
        if not isinstance(status, int) or not (status == 200 or 400 <= status <= 599):
            raise ValueError(f"status: must be 200 or an error status, not {status!r}")
        if status == 200 and "content" not in row:
            raise ValueError("content: missing (or give a status of 400 or more)")
        recorded = RecordedAnswer(**answer)
        model, text = row.get("model"), row.get("text")
        rows = self._groups.setdefault((model, row.get("image"), row.get("seed")), _Rows())
        if model is not None and strip_provider(model) != model:
            # `openai/x` also answers requests for `x`, unless rows for `x` itself came first.
            self._groups.setdefault((strip_provider(model), row.get("image"), row.get("seed")), rows)
        sequence = rows.by_text.get(text) if text is not None else rows.without_text
        if sequence is None:
            sequence = _Sequence()
            self._sequences.append(sequence)
            if text is None:
                rows.without_text = sequence
            else:
                rows.by_text.set(text, sequence)
        sequence.answers.append(recorded)
        if model is not None:
            self.models.setdefault(model)

    def find(self, request: ChatRequest) -> RecordedAnswer | None:
        """Return the recorded answer to a request, or None. The next equal request gets the next answer."""
        haystack = Haystack.of(request.text, request.user_text)
        best = max(self._matches(request, haystack), key=lambda match: match[0], default=None)
        return None if best is None else best[1].next()

    def restart(self) -> None:
        """Restart every sequence at its first answer."""
        for sequence in self._sequences:
            sequence.served = 0

    def _matches(self, request: ChatRequest, haystack: Haystack) -> Iterator[tuple[tuple[int, ...], _Sequence]]:
        """Yield every sequence that matches the request, with its specificity."""
        for group in _list_groups(request):
            rows = self._groups.get(group)
            if rows is None:
                continue
            model, image, seed = (part is not None for part in group)
            if rows.without_text is not None:
                yield (model + image + seed, image, 0, seed, 0), rows.without_text
            by_text = rows.by_text.find(haystack) if len(rows.by_text) else None
            if by_text is not None:
                yield (model + image + seed + 1, image, 1, seed, len(by_text[0])), by_text[1]


def _list_groups(request: ChatRequest) -> Iterator[_Group]:
    models = dict.fromkeys((request.model, strip_provider(request.model), None))
    seeds = dict.fromkeys((request.seed, None))
    for model in models:
        for image in (*request.images, None):
            for seed in seeds:
                yield model, image, seed
