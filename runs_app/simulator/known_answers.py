"""The texts that the simulated provider finds in requests: its answer key, and recorded answers that it replays.

The answer key has targets of questions, cases of tasks, and human norms of images. Each row of a JSONL file of recorded
answers has match keys and an answer:

- Match keys, where a missing key matches anything:
  `model` (with or without the part before its first slash), `text` (occurs in the text of the request),
  `image` (sha256 of the bytes of an image in the request), `seed` (equals the seed of the request).
- Answer: `content` with optional `finish_reason`, `reasoning`, `refusal` and `usage` (used unchanged), or `status` of
  400 or more with `error`. An optional `latency_ms` replaces the configured latency.

The most specific row is used: the row with the most match keys. Among equal rows, one with an image comes first, then a
text, then a seed. Rows with equal keys are used in file order, one per request, and the last one repeats.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from runs_app.simulator.config import ConfigError
from runs_app.simulator.request_parser import ChatRequest, strip_provider


def read_rows(path: Path, keys: frozenset[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (location, row) for each line that is not blank. The location names file and line for messages.

    Raise ConfigError for a missing file, a line without a JSON object, or a key outside `keys`.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"{path}:{number}", _parse_row(line, f"{path}:{number}", keys)


def _parse_row(line: str, location: str, keys: frozenset[str]) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{location}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{location}: not a JSON object")
    unknown = sorted(row.keys() - keys)
    if unknown:
        raise ConfigError(f"{location}: unknown key {unknown[0]!r}; valid keys: {', '.join(sorted(keys))}")
    return row


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


_KEYS = frozenset({"text", "target", "task", "params", "choices", "image", "dimension", "mean", "sd"})


DEFAULT_DIMENSIONS = ("valence", "arousal", "dominance")


@dataclass(frozen=True, slots=True)
class RecordedNorm:
    """The mean and standard deviation of human ratings of one image on one dimension."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class KnownCase:
    """The target of a question. A case of a parametric task also has its task, its parameters and any choices."""

    target: str
    task: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    choices: tuple[str, ...] = ()


class AnswerKey:
    """Targets by a part of the question, and norms by image and dimension."""

    def __init__(self) -> None:
        self._cases: TextIndex[KnownCase] = TextIndex()
        self._task_targets: dict[str, dict[str, None]] = {}
        self._norms: dict[tuple[str, str], RecordedNorm] = {}
        self._dimensions: list[str] = list(DEFAULT_DIMENSIONS)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "AnswerKey":
        """Read JSONL rows {text, target}, {text, target, task, params, choices} and {image, dimension, mean, sd}.

        Raise ConfigError with the location of a wrong row.
        """
        key = cls()
        for path in paths:
            for location, row in read_rows(path, _KEYS):
                try:
                    key.add(row)
                except (KeyError, TypeError, ValueError, AttributeError):
                    raise ConfigError(f"{location}: neither text and target nor image, dimension, mean, sd") from None
        return key

    def add(self, row: dict[str, Any]) -> None:
        """Add one row. Raise KeyError, TypeError or ValueError if it is neither a target nor a norm."""
        if "image" not in row:
            case = KnownCase(
                str(row["target"]), row.get("task", ""), dict(row.get("params", {})), tuple(row.get("choices", ()))
            )
            self._cases.set(row["text"], case)
            if case.task:
                self._task_targets.setdefault(case.task, {})[case.target] = None
            return
        dimension = row["dimension"].lower()
        self._norms[row["image"], dimension] = RecordedNorm(float(row["mean"]), float(row["sd"]))
        if dimension not in self._dimensions:
            self._dimensions.append(dimension)

    def find_case(self, request: ChatRequest) -> tuple[str, KnownCase] | None:
        """Return the known question in the request and its case, or None."""
        if not len(self._cases):
            return None
        return self._cases.find(Haystack.of(request.text, request.user_text))

    def list_targets(self, task: str) -> Sequence[str]:
        """Return the distinct targets of a task's cases, which serve as wrong answers in the right format."""
        return tuple(self._task_targets.get(task, ()))

    def dimension(self, request: ChatRequest) -> str:
        """Return the dimension that the request names most often, or "" if it names none."""
        text = request.text.lower()
        best = max(self._dimensions, key=text.count)
        return best if best in text else ""

    def norm(self, image: str, dimension: str) -> RecordedNorm | None:
        return self._norms.get((image, dimension))


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
