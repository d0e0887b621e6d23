"""inspect_ai: the files of logs, `.eval` (a zip) or `.json`, and the messages and calls of their samples."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from grading_app.publish.export.row_shapes import Shape
from grading_app.study_import.study import Finite, Object, StudyError, check_shape, dig, replace_non_finite
from grading_app.study_import.text_files import LARGEST_JSON, find_files, number_objects, parse_json, read_json

ZSTANDARD = 93  # zipfile of this Python refuses it.
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
# Most errors of pyarrow derive from these.
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError,
)  # fmt: skip
DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,")
ATTACHMENT = re.compile(r"(attachment|tc)://")
Log = Mapping[str, Any]


def find_logs(path: Path) -> list[Path]:
    """Return the logs at the path. A damaged one counts, so that it is reported."""
    logs = []
    for file in find_files(path, ".eval", ".json"):
        with file.open("rb") as start:
            if file.suffix == ".eval" or b'"eval"' in start.read(20_000):
                logs.append(file)
    return logs


def read_header(file: Path) -> Log:
    if file.suffix == ".json":
        return {name: value for name, value in read_json(file).items() if name != "samples"}
    with _open(file) as archive:
        name = next((name for name in ("header.json", "_journal/start.json") if name in archive.namelist()), None)
        if name is None:
            raise StudyError([f"{file.name}: neither header.json nor _journal/start.json"])
        return _read_member(file, archive, archive.getinfo(name))


def read_samples(file: Path) -> Iterator[tuple[str, Log]]:
    """Yield each sample with its place. A repeated member counts once, as it was last written."""
    if file.suffix == ".json":
        samples = read_json(file).get("samples") or []
        if not isinstance(samples, list):
            raise StudyError([f"{file.name}: samples is no list"])
        yield from number_objects(samples, f"{file.name}, sample")
        return
    with _open(file) as archive:
        members = {info.filename: info for info in archive.infolist() if info.filename.startswith("samples/")}
        for name, info in members.items():
            yield f"{file.name}, {name}", _read_member(file, archive, info)


def _open(file: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise StudyError([f"{file.name}: not a complete log; copy it again ({error})"]) from error


def _read_member(file: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Log:
    """Return a member, which is JSON. Raise StudyError if it is too large or damaged."""
    where = f"{file.name}, {info.filename}"
    if info.file_size > LARGEST_JSON:
        raise StudyError([f"{where}: larger than {LARGEST_JSON // 2**20} MB"])
    try:
        if info.compress_type != ZSTANDARD:
            content = archive.read(info)
        else:
            import pyarrow as pa

            with file.open("rb") as raw:
                raw.seek(info.header_offset)
                *_, name_length, extra_length = LOCAL_HEADER.unpack(raw.read(LOCAL_HEADER.size))
                raw.seek(name_length + extra_length, io.SEEK_CUR)
                compressed = raw.read(info.compress_size)
            with pa.CompressedInputStream(pa.BufferReader(compressed), "zstd") as stream:
                content = stream.read(LARGEST_JSON + 1)
            if len(content) != info.file_size:
                raise ValueError("another size than declared")
    except DAMAGED as error:
        raise StudyError([f"{where}: damaged"]) from error
    return parse_json(content, where)


# --- the parts of a log, as they are read -----------------------------------------------------------------------------


class LogStep(Shape):
    params: Object | None = None


class LogPlan(Shape):
    config: Object | None = None
    steps: list[LogStep] | None = None


class LogScorer(Shape):
    options: Object | None = None


class LogEval(Shape):
    scorers: list[LogScorer] | None = None
    model_roles: dict[str, list[Object] | Object | None] | None = None


class LogHeader(Shape):
    eval: LogEval | None = None
    plan: LogPlan | None = None


class LogMessage(Shape):
    content: str | list[Any] | None = None
    tool_calls: list[Object] | None = None


class LogChoice(Shape):
    message: LogMessage | None = None


class LogOutput(Shape):
    choices: list[LogChoice] | None = None
    usage: Object | None = None
    time: Finite | None = None


class ModelEvent(Shape):
    """A call of a model."""

    output: LogOutput | None = None
    retries: int | None = None
    input: list[LogMessage] | None = None
    input_refs: list[Annotated[list[int], Field(min_length=2, max_length=2)]] | None = None
    span_id: str | int | None = None


class LogSpan(Shape):
    """The beginning of a span of events."""

    id: str | int
    parent_id: str | int | None = None


class LogRetry(Shape):
    events: list[Object] | None = None


class EventsData(Shape):
    messages: list[LogMessage] | None = None


class LogSample(Shape):
    id: Any = None
    epoch: int | None = None
    input: str | list[LogMessage] | None = None
    choices: list[Any] | None = None
    metadata: Object | None = None
    messages: list[LogMessage] | None = None
    output: LogOutput | None = None
    scores: dict[str, Object] | None = None
    events: list[Object] | None = None
    events_data: EventsData | None = None
    attachments: Object | None = None
    error: Object | None = None
    error_retries: list[LogRetry] | None = None
    limit: Object | None = None


EVENTS: dict[str, type[Shape]] = {"model": ModelEvent, "span_begin": LogSpan}


def check_sample(log: Log) -> None:
    """Raise ContentError if a part of a sample that is read has another type. Other events may have any form."""
    check_shape(log, LogSample)
    retries = [event for retry in log.get("error_retries") or () for event in retry.get("events") or ()]
    for event in (*(log.get("events") or ()), *retries):
        shape = EVENTS.get(str(event.get("event")))
        if shape is not None:
            check_shape(event, shape)


# --- samples ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A checked sample of a log, which has long texts and media once, as attachments."""

    log: Log

    def resolve(self, text: str) -> str:
        """Return the text that a reference to an attachment stands for."""
        match = ATTACHMENT.match(text)
        return str((self.log.get("attachments") or {}).get(text[match.end() :], text)) if match else text

    def read_text(self, content: Any, kind: str = "text") -> str:
        """Return the texts of a message's content: a string, or parts of which only this kind counts."""
        if isinstance(content, str):
            return self.resolve(content) if kind == "text" else ""
        parts = [part for part in content or [] if isinstance(part, dict) and part.get("type") == kind]
        return "\n".join(self.resolve(str(part.get(kind) or "")) for part in parts)

    @cached_property
    def item_image(self) -> str:
        """Return the address of the first image of the input, which is the item's."""
        turns = self.log.get("input")
        for turn in turns if isinstance(turns, list) else ():
            for part in turn["content"] if isinstance(turn.get("content"), list) else ():
                if isinstance(part, dict) and part.get("type") == "image":
                    return self.resolve(str(part.get("image")))
        return ""

    def build_turn(self, message: Log) -> dict[str, Any]:
        """Return a message as `Trial.messages` has it. `image` marks the item's image, `left_out` names other media."""
        content = message.get("content")
        parts = [] if isinstance(content, str) else [part for part in content or [] if isinstance(part, dict)]
        kinds = [
            str(part.get("type"))
            for part in parts
            if part.get("type") != "image"
            or self.resolve(str(part.get("image"))) != self.item_image
            or DATA_URL.match(self.item_image) is None
        ]
        calls = [
            {"function": str(call.get("function")), "arguments": replace_non_finite(call.get("arguments"))}
            for call in message.get("tool_calls") or ()
        ]
        failure = message.get("error") or {}
        texts = [self.read_text(content), str(failure.get("message") or "") if isinstance(failure, dict) else ""]
        extra = {
            "reasoning": self.read_text(content, "reasoning"),
            "function": message.get("function"),
            "tool_calls": calls,
            "image": len(kinds) < len(parts),
            "left_out": [kind for kind in kinds if kind not in ("text", "reasoning")],
        }
        turn = {"role": str(message.get("role")), "content": "\n".join(filter(None, texts))}
        return {**turn, **{name: value for name, value in extra.items() if value}}

    @cached_property
    def calls(self) -> tuple[list[Log], dict[str, list[Log]]]:
        """Return the calls of the solvers, and those of each scorer by its name. A call belongs to its span."""
        solver_calls: list[Log] = []
        scorer_calls: dict[str, list[Log]] = {}
        scorers: dict[Any, str] = {}  # By span, with the spans inside of it.
        step = None  # Older logs have steps instead of spans.
        for event in self.log.get("events") or ():
            kind = event.get("event")
            if kind == "span_begin" and (event.get("type") == "scorer" or event.get("parent_id") in scorers):
                is_outermost = event.get("parent_id") not in scorers
                scorers[event["id"]] = str(event.get("name")) if is_outermost else scorers[event["parent_id"]]
            elif kind == "step" and event.get("type") == "scorer":
                step = str(event.get("name")) if event.get("action") == "begin" else None
            elif kind == "model":
                scorer = scorers.get(event.get("span_id"), step)
                (solver_calls if scorer is None else scorer_calls.setdefault(scorer, [])).append(event)
        return solver_calls, scorer_calls

    def list_sent_messages(self, call: Log) -> list[Log]:
        """Return the messages of a call. Most logs have them once for all calls."""
        pool = dig(self.log, "events_data.messages") or []
        pooled = [message for start, end in call.get("input_refs") or () for message in pool[start:end]]
        return pooled or list(call.get("input") or ())
