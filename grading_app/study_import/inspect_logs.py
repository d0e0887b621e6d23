"""inspect_ai: logs as `.eval` (a zip) or `.json`. One log is one condition; several logs of a folder are one study."""

from __future__ import annotations

import hashlib
import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from grading_app.study_import.key_index import KeyIndex
from grading_app.study_import.study import (
    Study,
    StudyCondition,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyScore,
    StudyTrial,
    refuse_unreadable,
    separate_equal,
)

ZSTANDARD = 93  # zipfile of this Python refuses it.
MAX_BYTES = 256 * 2**20  # Of one member, unpacked.
# Most errors of pyarrow derive from these.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
SETTINGS = ("temperature", "top_p", "max_tokens", "seed")
OLDEST = datetime.min.replace(tzinfo=UTC)
Log = Mapping[str, Any]


@dataclass(frozen=True)
class LogFile:
    """A log with the key of its condition and the time of its start."""

    path: Path
    condition: str
    created_at: datetime


def is_inspect(path: Path) -> bool:
    return any(_looks_like_a_log(file) for file in _find_log_files(path))


def read_inspect(path: Path) -> Study:
    """Return the study of one log, or of all logs in a folder. Raise StudyError for a log that cannot be read."""
    files = [file for file in _find_log_files(path) if _looks_like_a_log(file)]
    if not files:
        raise StudyError([f"{path.name}: no log of inspect_ai (.eval or .json)"])
    items: dict[str, StudyItem] = {}
    conditions_by_key: dict[str, StudyCondition] = {}
    logs: list[LogFile] = []
    notes: list[str] = []
    task = path.stem
    is_multi_turn = False
    for file in files:
        header = _read_header(file)
        with refuse_unreadable(file.name):
            condition = _build_condition(header)
            run = header.get("eval") or {}
            logs.append(LogFile(file, condition.key, _read_time(run.get("created")) or OLDEST))
            task = run.get("task", task) if len(logs) == 1 else task
        conditions_by_key.setdefault(condition.key, condition)
        if header.get("status") != "success":
            notes.append(f"{file.name}: status {header.get('status')}; its finished samples are taken.")
        for where, sample in _read_samples(file):
            with refuse_unreadable(where):
                item = _build_item(sample, where)
                is_multi_turn = is_multi_turn or len(sample.get("messages") or []) > 3
            earlier_item = items.setdefault(item.key, item)
            if (earlier_item.input, earlier_item.target) != (item.input, item.target):
                raise StudyError([f"{where}: sample {item.key!r} has another input or target than in an earlier log"])
    conditions, separation_notes = separate_equal(list(conditions_by_key.values()))
    if is_multi_turn:
        notes.append("Some samples have several turns: only their last answer is taken.")
    notes.append("Costs are taken only if inspect_ai had prices; unknown costs stay unknown.")
    return Study(
        name=str(task).rpartition("/")[2],
        tool="inspect",
        items=list(items.values()),
        conditions=conditions,
        trials=partial(_read_trials, sorted(logs, key=lambda log: log.created_at, reverse=True)),
        notes=[*notes, *separation_notes],
    )


# --- files ------------------------------------------------------------------------------------------------------------


def _find_log_files(path: Path) -> list[Path]:
    return sorted([*path.rglob("*.eval"), *path.rglob("*.json")]) if path.is_dir() else [path]


def _looks_like_a_log(file: Path) -> bool:
    if file.suffix == ".eval":
        return file.is_file()  # Include a damaged one, so that it is reported.
    if file.suffix != ".json" or not file.is_file():
        return False
    with file.open("rb") as start:
        return b'"eval"' in start.read(20_000)


def _read_header(file: Path) -> Log:
    if file.suffix == ".json":
        return {name: value for name, value in _read_json_log(file).items() if name != "samples"}
    with _open(file) as archive:
        names = set(archive.namelist())
        name = "header.json" if "header.json" in names else "_journal/start.json"
        if name not in names:
            raise StudyError([f"{file.name}: neither header.json nor _journal/start.json"])
        return _parse(_read_member(file, archive, archive.getinfo(name)), f"{file.name}, {name}")


def _read_samples(file: Path) -> Iterator[tuple[str, Log]]:
    """Yield each sample with its place. A repeated member counts once, as it was last written."""
    if file.suffix == ".json":
        samples = _read_json_log(file).get("samples") or []
        if not isinstance(samples, list):
            raise StudyError([f"{file.name}: samples is no list"])
        for number, sample in enumerate(samples, start=1):
            where = f"{file.name}, sample {number}"
            if not isinstance(sample, dict):
                raise StudyError([f"{where}: not an object"])
            yield where, sample
        return
    with _open(file) as archive:
        members = {info.filename: info for info in archive.infolist() if info.filename.startswith("samples/")}
        for name, info in members.items():
            where = f"{file.name}, {name}"
            yield where, _parse(_read_member(file, archive, info), where)


def _open(file: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise StudyError([f"{file.name}: not a complete log; copy it again ({error})"]) from error


def _read_member(file: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the content of a member. Raise StudyError if it is too large or damaged."""
    if info.file_size > MAX_BYTES:
        raise StudyError([f"{file.name}, {info.filename}: larger than {MAX_BYTES // 2**20} MB"])
    try:
        return _unpack_member(file, archive, info)
    except DAMAGED as error:
        raise StudyError([f"{file.name}, {info.filename}: damaged"]) from error


def _unpack_member(file: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.compress_type != ZSTANDARD:
        return archive.read(info)
    import pyarrow as pa

    with file.open("rb") as raw:
        raw.seek(info.header_offset)
        *_, name_length, extra_length = LOCAL_HEADER.unpack(raw.read(LOCAL_HEADER.size))
        raw.seek(name_length + extra_length, io.SEEK_CUR)
        compressed = raw.read(info.compress_size)
    with pa.CompressedInputStream(pa.BufferReader(compressed), "zstd") as stream:
        content: bytes = stream.read(MAX_BYTES + 1)
    if len(content) != info.file_size:
        raise ValueError("another size than declared")
    return content


def _read_json_log(file: Path) -> Log:
    if file.stat().st_size > MAX_BYTES:
        raise StudyError([f"{file.name}: larger than {MAX_BYTES // 2**20} MB"])
    return _parse(file.read_bytes(), file.name)


def _parse(content: bytes, where: str) -> Log:
    try:
        log = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StudyError([f"{where}: not complete JSON; copy the log again ({error})"]) from error
    if not isinstance(log, dict):
        raise StudyError([f"{where}: not an object"])
    return log


# --- content ----------------------------------------------------------------------------------------------------------


def _build_condition(header: Log) -> StudyCondition:
    """Return the condition of a log. A retried log keeps the id of its task, and so its condition."""
    run, plan = header.get("eval") or {}, header.get("plan") or {}
    config = plan.get("config") or {}
    settings = {name: config[name] for name in SETTINGS if config.get(name) is not None}
    steps = [{"solver": step.get("solver"), "params": step.get("params")} for step in plan.get("steps") or []]
    identity = [run.get("model"), run.get("task"), run.get("task_id"), steps, config]
    model = str(run.get("model") or "unknown")
    system = [
        {"role": "system", "content": str(step["params"]["template"])}
        for step in steps
        if step["solver"] == "system_message" and (step["params"] or {}).get("template")
    ]
    turns = (*system, {"role": "user", "content": "{{input}}"})
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return StudyCondition(
        key=f"{model}-{digest}",
        model=model.rpartition("/")[2],
        model_id=model,
        provider=model.partition("/")[0],
        prompt=f"inspect-{run.get('task') or 'task'}".replace("/", "-")[:70],
        messages=turns,
        sampler="inspect-" + ("-".join(f"{name}-{value}" for name, value in settings.items()) or "default")[:60],
        settings=settings,
    )


def _build_key(sample: Log) -> str:
    return str(sample.get("id"))


def _build_item(sample: Log, where: str) -> StudyItem:
    if sample.get("id") is None or sample.get("epoch") is None:
        raise StudyError([f"{where}: id and epoch must not be empty"])
    target = sample.get("target")
    content = sample.get("input")
    text = (
        content
        if isinstance(content, str)
        else "\n\n".join(_read_text(turn.get("content"), sample) for turn in content or [])
    )
    metadata = sample.get("metadata") or {}
    return StudyItem(
        key=_build_key(sample)[:200],
        input=_resolve_attachment(text, sample),
        target="\n".join(map(str, target)) if isinstance(target, list) else str(target or ""),
        category=str(metadata.get("category") or "")[:200],
        choices=tuple(map(str, sample.get("choices") or ())),
        metadata=_replace_non_finite(metadata),
    )


def _read_trials(logs: Sequence[LogFile]) -> Iterator[StudyTrial]:
    """Yield the samples of the logs, newest log first: a retried log repeats samples, and has the later outcome."""
    identities = KeyIndex()
    for log in logs:
        for where, sample in _read_samples(log.path):
            with refuse_unreadable(where):
                trial = _build_trial(where, log.condition, sample)
            if identities.add((log.condition, trial.item, trial.sample_idx)):
                yield trial


def _build_trial(where: str, condition: str, sample: Log) -> StudyTrial:
    output = sample.get("output") or {}
    choice: Log = next(iter(output.get("choices") or []), {})
    message = choice.get("message") or {}
    usage = output.get("usage") or {}
    error = sample.get("error") or {}
    text = _read_text(message.get("content"), sample)
    stop = str(choice.get("stop_reason") or "")
    cached_tokens = usage.get("input_tokens_cache_read")
    tokens = usage.get("input_tokens")
    return StudyTrial(
        where=where,
        condition=condition,
        item=_build_key(sample)[:200],
        sample_idx=int(sample["epoch"]) - 1,
        is_done=not error,
        answer=text,
        raw_response=None if error else text,
        reasoning=_read_text(message.get("content"), sample, kind="reasoning"),
        finish_reason={"max_tokens": "length", "model_length": "length"}.get(stop, stop)[:40],
        is_truncated=stop in ("max_tokens", "model_length"),
        is_refused=stop == "content_filter",
        attempts=1 + len(sample.get("error_retries") or []),
        input_tokens=tokens + (cached_tokens or 0) if tokens is not None else None,
        output_tokens=usage.get("output_tokens"),
        reasoning_tokens=usage.get("reasoning_tokens"),
        cost_usd=Decimal(str(usage["total_cost"])) if usage.get("total_cost") is not None else None,
        latency_ms=round(1000 * output["time"]) if output.get("time") is not None else None,
        response_id=str(output.get("response_id") or "")[:200],
        served_model=str(output.get("model") or "")[:200],
        error_class="unknown" if error else "",
        error=str(error.get("message") or ""),
        claimed_at=_read_time(sample.get("started_at")),
        completed_at=_read_time(sample.get("completed_at")),
        scores=() if error else tuple(_read_scores(sample)),
    )


def _read_scores(sample: Log) -> Iterator[StudyScore]:
    """Yield the scores of a sample, one for each key of a score that is an object."""
    for name, score in (sample.get("scores") or {}).items():
        value = score.get("value")
        parts = {f"{name}-{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        for scorer, part in parts.items():
            number = _read_number(part)
            yield StudyScore(
                scorer=scorer,
                value=number,
                raw=str(score.get("answer") or "" if number is not None else part)[:2000],
                error="" if number is not None else "not_a_number",
                reasoning=str(score.get("explanation") or ""),
            )


def _read_number(value: Any) -> float | None:
    if isinstance(value, str) and value in GRADES:
        return GRADES[value]
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    return None


def _read_text(content: Any, sample: Log, kind: str = "text") -> str:
    """Return the texts of a message's content: a string, or parts of which only this kind counts."""
    if isinstance(content, str):
        return _resolve_attachment(content, sample) if kind == "text" else ""
    parts = [part for part in content or [] if isinstance(part, dict) and part.get("type") == kind]
    return "\n".join(_resolve_attachment(str(part.get(kind) or ""), sample) for part in parts)


def _resolve_attachment(text: str, sample: Log) -> str:
    """Return the text that a reference to an attachment stands for."""
    for prefix in ("attachment://", "tc://"):
        if text.startswith(prefix):
            return str((sample.get("attachments") or {}).get(text.removeprefix(prefix), text))
    return text


def _read_time(text: Any) -> datetime | None:
    time = datetime.fromisoformat(text) if isinstance(text, str) and text else None
    return time.replace(tzinfo=UTC) if time and time.tzinfo is None else time


def _replace_non_finite(value: Any) -> Any:
    """Return the value with NaN and infinity as text, because JSON columns cannot hold them."""
    if isinstance(value, dict):
        return {str(name): _replace_non_finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_replace_non_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


INSPECT = StudyFormat(
    "inspect",
    "inspect_ai",
    is_inspect,
    read_inspect,
    content="a log, or a folder of logs: one study",
    suffixes=(".eval", ".json"),
)
