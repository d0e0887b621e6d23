"""A study as importers read it, independent of the tool that made it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

MAX_PROBLEMS = 20
UNREADABLE = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


class StudyError(Exception):
    """A study that cannot be imported. Each of `problems` names the file, and the row if there is one."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        shown = self.problems[:MAX_PROBLEMS]
        more = len(self.problems) - len(shown)
        super().__init__("\n".join([*shown, *([f"and {more} more"] if more else [])]))


@contextmanager
def refuse_unreadable(where: str) -> Iterator[None]:
    """Turn an error of a value with another type or range into a StudyError that names its place."""
    try:
        yield
    except UNREADABLE as error:
        raise StudyError([f"{where}: cannot be read, {type(error).__name__}: {error}"]) from error


@dataclass(frozen=True, slots=True)
class HumanNorm:
    """The human reference of an item on a dimension. sd and n are None if the source does not have them."""

    dimension: str
    mean: float
    sd: float | None = None
    n: int | None = None


@dataclass(frozen=True, slots=True)
class StudyItem:
    """An item. An excluded one is in the dataset but was not asked; note: why."""

    key: str
    input: str = ""
    target: str = ""
    category: str = ""
    choices: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    norms: tuple[HumanNorm, ...] = ()
    grading_scheme: str = ""
    excluded: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class StudyDimension:
    name: str
    low: int
    high: int
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class StudyWave:
    """A repetition of the whole design. epoch_offset: the number of epochs before its first."""

    number: int = 0
    label: str = ""
    epoch_offset: int = 0


@dataclass(frozen=True, slots=True)
class StudyCondition:
    """A model with a prompt and a sampler. messages: the turns of the prompt; empty if the source does not have it."""

    key: str
    model: str
    model_id: str
    provider: str = ""
    prompt: str = "imported-prompt"
    messages: tuple[Mapping[str, str], ...] = ()
    sampler: str = "provider-default"
    settings: Mapping[str, Any] = field(default_factory=dict)


def separate_equal(conditions: Sequence[StudyCondition]) -> tuple[list[StudyCondition], list[str]]:
    """Return the conditions with different samplers where they would be the same one, and a note for each.

    Two runs of a tool with the same model and settings stay two conditions, so that no answer hides another.
    """
    first_keys: dict[str, str] = {}
    distinct_conditions, notes = [], []
    for condition in conditions:
        content = repr(
            (
                condition.model,
                condition.model_id,
                condition.prompt,
                condition.messages,
                condition.sampler,
                sorted(condition.settings.items()),
            )
        )
        first_key = first_keys.setdefault(content, condition.key)
        if first_key == condition.key:
            distinct_conditions.append(condition)
            continue
        digest = hashlib.sha256(condition.key.encode()).hexdigest()[:12]
        distinct_conditions.append(replace(condition, sampler=f"{condition.sampler[:36]}-{digest}"))
        notes.append(f"{condition.key} has the model and settings of {first_key}: it is a condition of its own.")
    return distinct_conditions, notes


@dataclass(frozen=True, slots=True)
class StudyScore:
    """A score that the source gave to an answer. value is None if it could not be read, with the reason in `error`."""

    scorer: str
    value: float | None
    raw: str = ""
    error: str = ""
    reasoning: str = ""
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StudyTrial:
    """One answer, or the failure to get one. None is unknown. where: the file and row, for error messages.

    sample_idx: the repetition within its wave, from 0.
    """

    where: str
    condition: str
    item: str
    sample_idx: int
    is_done: bool
    dimension: str | None = None
    answer: str = ""
    raw_response: str | None = None
    reasoning: str = ""
    rating: int | None = None
    finish_reason: str = ""
    is_truncated: bool = False
    is_refused: bool = False
    attempts: int = 1
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: Decimal | None = None
    latency_ms: int | None = None
    response_id: str = ""
    served_model: str = ""
    error_class: str = ""
    error: str = ""
    claimed_at: datetime | None = None
    completed_at: datetime | None = None
    scores: tuple[StudyScore, ...] = ()
    wave: int = 0
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


@dataclass(frozen=True)
class Study:
    """A study. trials: read anew by each call, so that a large one need not be held. notes: what was not taken, why.

    recipe: facts about the dataset, as `Dataset.recipe` has them. source: of the dataset; empty for the tool. graders:
    facts about scorers, by name. planned: conditions of the design without trials. settings: of the experiment, by
    their fields. scratch: temporary folders that the trials are read from; they exist as long as the
    study.
    """

    name: str
    tool: str
    items: Sequence[StudyItem]
    conditions: Sequence[StudyCondition]
    trials: Callable[[], Iterator[StudyTrial]]
    dimensions: Sequence[StudyDimension] = ()
    waves: Sequence[StudyWave] = (StudyWave(),)
    notes: Sequence[str] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    graders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    planned: Sequence[StudyCondition] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    scratch: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class StudyFormat:
    """A format of another tool. recognises: True if the path looks like it. read: raise StudyError for bad content.

    content: what a path or an upload must hold, for people. suffixes: of a file that is a study by itself. A folder is
    uploaded as a zip.
    """

    name: str
    label: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path], Study]
    content: str = ""
    suffixes: tuple[str, ...] = ()
