"""The answer key of the simulated models: targets of questions and human norms of images."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs_app.simulator.config import ConfigError
from runs_app.simulator.jsonl import read_rows
from runs_app.simulator.request_parser import ChatRequest
from runs_app.simulator.text_index import Haystack, TextIndex

_KEYS = frozenset({"text", "target", "image", "dimension", "mean", "sd"})
USUAL_DIMENSIONS = ("valence", "arousal", "dominance")


@dataclass(frozen=True, slots=True)
class RecordedNorm:
    """The mean and standard deviation of human ratings of one image on one dimension."""

    mean: float
    sd: float


class AnswerKey:
    """Targets by a part of the question, and norms by image and dimension."""

    def __init__(self) -> None:
        self._targets: TextIndex[str] = TextIndex()
        self._norms: dict[tuple[str, str], RecordedNorm] = {}
        self._dimensions: list[str] = list(USUAL_DIMENSIONS)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "AnswerKey":
        """Read JSONL rows {text, target} and {image, dimension, mean, sd}.

        Raise ConfigError, which names a wrong row.
        """
        key = cls()
        for path in paths:
            for place, row in read_rows(path, _KEYS):
                try:
                    key.add(row)
                except (KeyError, TypeError, ValueError, AttributeError):
                    raise ConfigError(f"{place}: neither text and target nor image, dimension, mean, sd") from None
        return key

    def add(self, row: dict[str, Any]) -> None:
        """Add one row. Raise KeyError, TypeError or ValueError if it is neither a target nor a norm."""
        if "image" not in row:
            self._targets.set(row["text"], str(row["target"]))
            return
        dimension = row["dimension"].lower()
        self._norms[row["image"], dimension] = RecordedNorm(float(row["mean"]), float(row["sd"]))
        if dimension not in self._dimensions:
            self._dimensions.append(dimension)

    def target(self, request: ChatRequest) -> tuple[str, str] | None:
        """Return the question that occurs in the request, with its target; None if there is none."""
        if not len(self._targets):
            return None
        return self._targets.find(Haystack.of(request.text, request.user_text))

    def dimension(self, request: ChatRequest) -> str:
        """Return the dimension that the request names most often, or "" if it names none."""
        text = request.text.lower()
        best = max(self._dimensions, key=text.count)
        return best if best in text else ""

    def norm(self, image: str, dimension: str) -> RecordedNorm | None:
        return self._norms.get((image, dimension))
