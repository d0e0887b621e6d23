"""The records of a study as importers read it, independent of the tool that made it. Pure."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import Field

from datasets_app.importing.records import BufferedImage, FileError
from grading_app.publish.export.row_shapes import Shape, find_mismatch

MAX_PROBLEMS = 20
SETTINGS = ("temperature", "top_p", "max_tokens", "seed")
LIMIT_STOPS = {"max_tokens": "length", "model_length": "length"}  # Names of other tools for a reached limit.


class StudyError(FileError):
    """A study that cannot be imported. Each of `problems` names the file, and the row if there is one."""

    def __init__(self, problems: Sequence[str]) -> None:
        more = len(problems) - MAX_PROBLEMS
        super().__init__("\n".join([*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]))
        self.problems = list(problems)


class ContentError(ValueError):
    """A value in a file that cannot be read. The message names the field; the reader of the file adds the place."""


@contextmanager
def refuse_unreadable(where: str | Callable[[], str]) -> Iterator[None]:
    """Turn an error of the content into a StudyError with its place. Any other error is a fault of this program.

    A UnicodeError is a text with half a character, and a RecursionError a value nested too deeply. where: the place, or
    a function that returns it.
    """
    try:
        yield
    except (ContentError, UnicodeError, RecursionError) as error:
        place = where if isinstance(where, str) else where()
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise StudyError([f"{place}: cannot be read, {reason}"]) from error


# --- values of files --------------------------------------------------------------------------------------------------

Finite = Annotated[float, Field(allow_inf_nan=False, ge=-1e15, le=1e15)]
Object = dict[str, Any]
"""An object of which no key is read by its type. Formats declare the others as a `Shape`."""


def check_shape(value: Any, shape: type[Shape]) -> None:
    """Raise ContentError, which names the field, if a value of a file has not the types that its reader relies on."""
    if (mismatch := find_mismatch(shape, value)) is not None:
        where, reason = mismatch
        raise ContentError(f"{where}: {reason.lower()}".removeprefix(": "))


def read_time(value: Any) -> datetime | None:
    """Return a time in ISO form or in seconds since 1970. A time without a zone is UTC. None: there is none."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        moment = datetime.fromisoformat(value) if isinstance(value, str) and value else None
    except (ValueError, OverflowError, OSError):
        raise ContentError(f"{value!r:.60} is not a time") from None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def read_float(value: Any) -> float:
    """Return a number, or the number in a text, which may be infinite or NaN."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ContentError(f"{value!r:.60} is not a number") from None


def read_number(value: Any) -> float | None:
    """Return a finite number or a truth value as a number; None for anything else."""
    if not isinstance(value, bool | int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def read_decimal(value: Any) -> Decimal:
    """Return an amount that a file has as a number or as text."""
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise ContentError(f"{value!r:.60} is not an amount") from None


def read_seconds(value: Any) -> int | None:
    """Return a number of seconds in milliseconds. None: there is none."""
    if value is None:
        return None
    seconds = read_number(value)
    if seconds is None or abs(seconds) > sys.maxsize:
        raise ContentError(f"{value!r:.60} is not a number of seconds")
    return round(1000 * seconds)


def read_finish(stop: Any) -> dict[str, Any]:
    """Return the fields of a trial that say why its answer ended."""
    reason = LIMIT_STOPS.get(str(stop or ""), str(stop or ""))[:40]
    return {
        "finish_reason": reason, "is_truncated": reason == "length", "is_refused": reason == "content_filter",
    }  # fmt: skip


def dig(row: Any, path: str) -> Any:
    """Return the value at a path of names, such as `usage.prompt_tokens`; None if a part of it is missing."""
    for name in path.split("."):
        if row and not isinstance(row, Mapping):
            raise ContentError(f"{path}: {name} is not within an object")
        row = (row or {}).get(name)
    return row


def dig_counts(row: Any, paths: Mapping[str, str]) -> dict[str, Any]:
    """Return whole numbers by name, each from its path in the row; None for one that is missing."""
    counts = {name: dig(row, path) for name, path in paths.items()}
    for name, value in counts.items():
        if value is not None and type(value) is not int:
            raise ContentError(f"{paths[name]} is {value!r:.60}, not a whole number")
    return counts


def name_choice(target: str, choices: Sequence[str]) -> str:
    """Return the choice at the place that the target states, else the target itself."""
    return {str(place): choice for place, choice in enumerate(choices)}.get(target, target)


def read_settings(config: Mapping[str, Any], suffix: str = "") -> dict[str, Any]:
    """Return the settings of a sampler that a configuration has."""
    return {name: config[f"{name}{suffix}"] for name in SETTINGS if config.get(f"{name}{suffix}") is not None}


def replace_non_finite(value: Any) -> Any:
    """Return the value with NaN and infinity as text, because JSON columns cannot hold them."""
    if isinstance(value, dict):
        return {str(name): replace_non_finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [replace_non_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def describe_kinds(counts: Counter[str]) -> str:
    """Return the kinds with their numbers, the most frequent one first."""
    return ", ".join(f"{n} {kind}" for kind, n in counts.most_common())


# --- records ----------------------------------------------------------------------------------------------------------


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
    image: BufferedImage | None = None


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
    """A model with a prompt and a sampler. messages: the turns of the prompt; empty if the source does not have it.

    run: the source's run, if another run has the same model, prompt and sampler.
    """

    key: str
    model: str
    model_id: str
    provider: str = ""
    prompt: str = "imported-prompt"
    messages: tuple[Mapping[str, str], ...] = ()
    sampler: str = "provider-default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""


def split_model(model_id: str) -> dict[str, Any]:
    """Return the fields of a condition for a model such as `openai/gpt-4o`. Without a slash, it has no provider."""
    provider, slash, _ = model_id.partition("/")
    return {"model": model_id.rpartition("/")[2], "model_id": model_id, "provider": provider if slash else ""}


INPUT_TURN: tuple[Mapping[str, str], ...] = ({"role": "user", "content": "{{input}}"},)
"""The prompt of a tool that sends an item as it is."""


def build_condition(
    tool: str,
    key: str,
    model_id: str,
    prompt: str,
    settings: Mapping[str, Any] | None = None,
    system: Sequence[str] = (),
    **fields: Any,
) -> StudyCondition:
    """Return the condition of a tool that sends an item as it is, after system turns. Settings name the sampler."""
    settings = settings or {}
    name = "-".join(f"{name}-{value}" for name, value in settings.items()) or "default"
    return StudyCondition(
        key=key,
        **{**split_model(model_id), **fields},
        prompt=prompt,
        messages=(*({"role": "system", "content": text} for text in system), *INPUT_TURN),
        sampler=f"{tool}-{name[:60]}",
        settings=settings,
    )


def separate_equal(conditions: Sequence[StudyCondition]) -> tuple[list[StudyCondition], list[str]]:
    """Return the conditions, with the run of those that would otherwise equal an earlier one, and a note for each.

    Two runs of a tool with the same model and settings stay two conditions, so that no answer hides another.
    """
    first_keys: dict[str, str] = {}
    distinct_conditions, notes = [], []
    for condition in conditions:
        first_key = first_keys.setdefault(repr(replace(condition, key="")), condition.key)
        if first_key == condition.key:
            distinct_conditions.append(condition)
            continue
        distinct_conditions.append(replace(condition, run=condition.key))
        notes.append(f"{condition.key} has the model and settings of {first_key}: it is a condition of its own.")
    return distinct_conditions, notes


@dataclass(frozen=True, slots=True)
class StudyJudge:
    """A judge model of the source with its rubric, which is the prompt of `condition`.

    rubric_hash: as the source states it. scale: the lowest and the highest score, if the source states them. source_id:
    the source's id of this judge, if it has one.
    """

    name: str
    condition: StudyCondition
    rubric_hash: str = ""
    scale: tuple[float, float] | None = None
    source_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCall:
    """One call of a model. None is unknown. error: why it has no answer. list_usd: the cost at list price.

    is_cached: the tool's own cache answered, so that nothing was paid.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: Decimal | None = None
    list_usd: Decimal | None = None
    latency_ms: int | None = None
    finish_reason: str = ""
    response_id: str = ""
    served_model: str = ""
    error: str = ""
    is_cached: bool = False
    claimed_at: datetime | None = None
    completed_at: datetime | None = None


USAGE = (
    "input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens", "latency_ms",
)  # fmt: skip


def sum_calls(calls: Sequence[StudyCall]) -> dict[str, Any]:
    """Return the usage and the cost of a trial with these calls. A cost is unknown if that of any call is."""
    sums: dict[str, Any] = {
        name: sum(known) if (known := [value for call in calls if (value := getattr(call, name)) is not None]) else None
        for name in USAGE
    }
    costs = [call.cost_usd for call in calls]
    return {**sums, "cost_usd": None if None in costs or not costs else sum(filter(None, costs), Decimal(0))}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTrial(StudyCall):
    """One answer, or the failure to get one. None is unknown. where: the file and row, for error messages.

    sample_idx: the repetition within its wave, from 0. Usage and cost are sums over `calls`, the calls of the last
    attempt; without calls, the trial itself is its only call. earlier_calls: the last call of each earlier attempt.
    messages: the conversation with the answer, as `Trial.messages` has it. raw_response: the model's reply, if it is
    not the answer. error_class: of a failed trial, if the tool tells one from another.
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
    is_truncated: bool = False
    is_refused: bool = False
    attempts: int = 1
    error_class: str = ""
    scores: tuple[StudyScore, ...] = ()
    wave: int = 0
    calls: tuple[StudyCall, ...] = ()
    earlier_calls: tuple[StudyCall, ...] = ()
    messages: tuple[Mapping[str, Any], ...] | None = None

    @property
    def size(self) -> int:
        """Return the number of characters that its row and those of its verdicts hold."""
        turns = [turn["content"] for turn in self.messages or ()]
        texts = [self.answer, self.raw_response or self.answer, self.reasoning, *turns]
        return sum(map(len, texts)) + sum(score.verdict.size for score in self.scores if score.verdict)


@dataclass(frozen=True, slots=True)
class StudyScore:
    """A score that the source gave to an answer. value is None if it could not be read, with the reason in `error`.

    verdict: the judge's call, if the scorer is a judge of the study.
    """

    scorer: str
    value: float | None
    raw: str = ""
    error: str = ""
    reasoning: str = ""
    detail: Mapping[str, Any] | None = None
    verdict: StudyTrial | None = None


def make_metric_score(scorer: str, value: Any, raw: str, **facts: Any) -> StudyScore:
    """Return the score of a metric. It has no value if the metric is not a finite number. facts: other fields."""
    number = read_number(value)
    return StudyScore(scorer, number, raw[:2000], "not_a_number" if number is None else "", **facts)


@dataclass(frozen=True)
class DesignNames:
    """Names that a person chose for the experiment, its dataset and its endpoint. Empty: those of the file."""

    experiment: str = ""
    dataset: str = ""
    endpoint: str = ""


NAMES_OF_FILE = DesignNames()


@dataclass(frozen=True)
class StudyDesign:
    """A design of another tool. content: as an experiment file has it. notes: what was not taken, and why.

    items: of its dataset, if the files have them. Without models in the content, the draft gets one of this site.
    """

    tool: str
    content: Mapping[str, Any]
    notes: Sequence[str]
    items: Sequence[StudyItem] = ()
