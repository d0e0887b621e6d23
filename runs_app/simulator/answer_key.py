"""The answer key of the simulated models: targets of questions, cases of tasks, and human norms of images."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs_app.simulator.config import ConfigError
from runs_app.simulator.jsonl import read_rows
from runs_app.simulator.request_parser import ChatRequest
from runs_app.simulator.text_index import Haystack, TextIndex

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
