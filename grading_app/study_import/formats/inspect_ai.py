"""inspect_ai: logs as `.eval` (a zip) or `.json`. One log is one condition; several logs of a folder are one study."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import re
import struct
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from datasets_app.importing.limited_reader import FileToRead, read_upload
from datasets_app.importing.records import BufferedImage, ScratchFolder
from evalsite.lib.text.hashing import hash_content
from grading_app.study_import.stored_tables import KeyIndex
from grading_app.study_import.study import (
    INPUT_TURN,
    Study,
    StudyCall,
    StudyCondition,
    StudyDraft,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyJudge,
    StudyScore,
    StudyTrial,
    describe_kinds,
    make_metric_score,
    name_sampler,
    read_finish,
    read_number,
    read_seconds,
    read_settings,
    read_time,
    refuse_unreadable,
    replace_non_finite,
    split_model,
    sum_calls,
)
from grading_app.study_import.text_files import LARGEST_JSON, find_files, number_objects, parse_json, read_json

ZSTANDARD = 93  # zipfile of this Python refuses it.
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
# Most errors of pyarrow derive from these.
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError,
)  # fmt: skip
# The messages of a sample have the calls of tools and their results, too.
TAKEN_EVENTS = {"model", "tool", "score", "state", "sample_init", "step", "span_begin", "span_end", "error"}
OLDEST = datetime.min.replace(tzinfo=UTC)
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,")
COUNT_NOTES = {
    "several calls": "{} samples have several calls: each is an attempt, and usage and cost of a trial are sums.",
    "several turns": "{} samples have several turns: their trials have them all, the prompt only the first.",
    "no calls": "{} samples have no events: their usage and cost are those of the last call.",
    "repeated requests": "{} requests were repeated within a call: their cost is unknown.",
    "unpriced": "The cost of {} calls is unknown, because inspect_ai had no price.",
}
Log = Mapping[str, Any]
Judges = Mapping[tuple[str, str], str]  # The scorers that are judges: their names by condition and name in the log.


@dataclass
class LogsDraft(StudyDraft):
    """The study of all logs, with facts about their samples by keys of items and conditions.

    images: the hash of each item's image. texts: the conditions with samples without an image. judges: the models of
    each scorer that asks one, by condition and name. parts: the keys of its scores; "" for a score that is no object.
    numbers: the judges that gave another value than a letter. left_out: parts of messages by kind.
    """

    images: dict[str, str] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    judges: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    parts: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    numbers: set[tuple[str, str]] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    limits: Counter[str] = field(default_factory=Counter)


def find_logs(path: Path) -> list[Path]:
    """Return the logs at the path. A damaged one counts, so that it is reported."""
    logs = []
    for file in find_files(path, ".eval", ".json"):
        with file.open("rb") as start:
            if file.suffix == ".eval" or b'"eval"' in start.read(20_000):
                logs.append(file)
    return logs


def read_inspect(path: Path) -> Study:
    """Return the study of one log, or of all logs in a folder. Raise StudyError for a log that cannot be read."""
    files = find_logs(path)
    if not files:
        raise StudyError([f"{path.name}: no log of inspect_ai (.eval or .json)"])
    facts, scratch = LogsDraft("inspect"), ScratchFolder()
    logs: list[tuple[datetime, Path, str]] = []  # The time of their start, and the keys of their conditions.
    headers: dict[str, Log] = {}
    notes: list[str] = []
    for file in files:
        header = read_header(file)
        with refuse_unreadable(file.name):
            condition = _build_condition(header)
            logs.append((read_time((header.get("eval") or {}).get("created")) or OLDEST, file, condition.key))
        headers.setdefault(condition.key, header)
        facts.conditions.setdefault(condition.key, condition)
        if header.get("status") != "success":
            notes.append(f"{file.name}: status {header.get('status')}; its finished samples are taken.")
        for where, sample in read_samples(file):
            with refuse_unreadable(where):
                _add_sample(where, condition.key, sample, facts, scratch.path)
    images, reading = _read_images(facts, scratch.path)
    for key, item in facts.items.items():
        facts.items[key] = replace(item, image=images.get(facts.images.get(key, "")))
    for key, condition in facts.conditions.items():
        if key not in facts.texts:
            *before, last = condition.messages
            turns = (*before, {**last, "content": "{{image}}" + last["content"]})
            facts.conditions[key] = replace(condition, messages=turns)
    judges, names = _build_judges(facts, headers)
    task = (headers[logs[0][2]].get("eval") or {}).get("task", path.stem)
    newest_first = sorted(logs, key=lambda log: log[0], reverse=True)
    return facts.build(
        str(task).rpartition("/")[2],
        partial(_read_trials, [log[1:] for log in newest_first], names),
        [*notes, *_list_notes(facts, images)],
        COUNT_NOTES,
        judges=judges,
        scratch=(scratch, reading),
    )


# --- files ------------------------------------------------------------------------------------------------------------


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


# --- conditions and items ---------------------------------------------------------------------------------------------


def _build_condition(header: Log) -> StudyCondition:
    """Return the condition of a log. A retried log keeps the id of its task, and so its condition."""
    run, plan = header.get("eval") or {}, header.get("plan") or {}
    config = plan.get("config") or {}
    settings = read_settings(config)
    steps = [{"solver": step.get("solver"), "params": step.get("params")} for step in plan.get("steps") or []]
    identity = [run.get("model"), run.get("task"), run.get("task_id"), steps, config]
    model = str(run.get("model") or "unknown")
    system = [
        {"role": "system", "content": str(step["params"]["template"])}
        for step in steps
        if step["solver"] == "system_message" and (step["params"] or {}).get("template")
    ]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return StudyCondition(
        key=f"{model}-{digest}",
        **split_model(model),
        prompt=f"inspect-{run.get('task') or 'task'}".replace("/", "-")[:70],
        messages=(*system, *INPUT_TURN),
        sampler=name_sampler("inspect", settings),
        settings=settings,
    )


def _add_sample(where: str, condition: str, sample: Log, facts: LogsDraft, folder: Path) -> None:
    """Add the item and the facts of a sample, and write its image to the folder."""
    if sample.get("id") is None or sample.get("epoch") is None:
        raise StudyError([f"{where}: id and epoch must not be empty"])
    target, content, metadata = sample.get("target"), sample.get("input"), sample.get("metadata") or {}
    turns = [{"content": content}] if isinstance(content, str) else content or []
    item = StudyItem(
        key=str(sample["id"])[:200],
        input="\n\n".join(filter(None, (_read_text(turn.get("content"), sample) for turn in turns))),
        target="\n".join(map(str, target)) if isinstance(target, list) else str(target or ""),
        category=str(metadata.get("category") or "")[:200],
        choices=tuple(map(str, sample.get("choices") or ())),
        metadata=replace_non_finite(metadata),
    )
    prefix, image = DATA_URL.match(url := _find_item_image(sample)), None  # An image outside of the log is not read.
    if prefix:
        try:
            image = base64.b64decode(url[prefix.end() :], validate=True)
        except binascii.Error:
            image = None
    digest = hashlib.sha256(image).hexdigest() if image else ""
    earlier_item = facts.items.setdefault(item.key, item)
    earlier_digest = facts.images.setdefault(item.key, digest)
    if (earlier_item.input, earlier_item.target, earlier_digest) != (item.input, item.target, digest):
        raise StudyError([f"{where}: sample {item.key!r} has another input or target than in an earlier log"])
    if image:
        (folder / "images").mkdir(exist_ok=True)
        (folder / "images" / f"{digest}.png").write_bytes(image)  # The reader looks at the bytes, not at the suffix.
    else:
        facts.texts.add(condition)
    solver_calls, scorer_calls = _list_calls(sample)
    for name, score in (sample.get("scores") or {}).items():  # A scorer that asks a model is a judge.
        if name in scorer_calls or name.startswith("model_graded_"):
            models = tuple(dict.fromkeys(str(event.get("model")) for event in scorer_calls.get(name, ())))
            facts.judges[condition, name] = models or facts.judges.get((condition, name), ())
            values = value if isinstance(value := score.get("value"), dict) else {"": value}
            facts.parts[condition, name].update(map(str, values))
            if any(part not in GRADES and part == part for part in values.values()):  # Without NaN, which is no score.
                facts.numbers.add((condition, name))
    messages = sample.get("messages") or []
    facts.counts["samples"] += 1
    facts.counts["several turns"] += sum(message.get("role") == "assistant" for message in messages) > 1
    facts.counts["several calls"] += len(solver_calls) > 1
    facts.counts["no calls"] += not solver_calls and not sample.get("error")
    facts.counts["repeated requests"] += sum(call.get("retries") or 0 for call in solver_calls)
    facts.counts["unpriced"] += sum(_build_call(call).cost_usd is None for call in solver_calls)
    kinds = (str(event.get("event")) for event in sample.get("events") or ())
    facts.events.update(kind for kind in kinds if kind not in TAKEN_EVENTS)
    facts.left_out.update(kind for message in messages for kind in _build_turn(message, sample).get("left_out", ()))
    if sample.get("limit"):
        facts.limits[str(sample["limit"].get("type"))] += 1


def _read_images(facts: LogsDraft, folder: Path) -> tuple[dict[str, BufferedImage], object]:
    """Return the images by their hash in the log, decoded in the limited process. Those that it refuses are left out.

    The second value keeps their files.
    """
    digests = sorted(set(facts.images.values()) - {""})
    table = folder / "images.jsonl"
    for _ in range(2):
        table.write_text("".join(json.dumps({"key": digest, "image": f"{digest}.png"}) + "\n" for digest in digests))
        if not digests:
            break
        files = {"items": FileToRead(table, "images of the log"), "images": FileToRead(folder / "images", "images")}
        reading, _ = read_upload(files, {"key": "key", "image": "image", "input": ""})
        if reading.ok:
            return {item.key: item.image for item in reading.items if item.image}, reading
        refused = {remark.row for remark in reading.report.errors}
        digests = [digest for row, digest in enumerate(digests, start=1) if row not in refused]
    return {}, None


def _build_judges(facts: LogsDraft, headers: Mapping[str, Log]) -> tuple[dict[str, StudyJudge], Judges]:
    """Return the judges by their scorer, and the names of the scorers.

    A name has the judge's models if the logs have several judges under it. A rubric has the hash of the judge's own
    template and instructions: those of the tool are not in the log.
    """
    variants: dict[str, set[tuple[tuple[str, ...], str]]] = defaultdict(set)
    found: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {}
    for (condition, name), models in facts.judges.items():
        run = headers[condition].get("eval") or {}
        grader = (run.get("model_roles") or {}).get("grader")
        default = [part.get("model") for part in (grader if isinstance(grader, list) else [grader]) if part]
        options = [scorer.get("options") for scorer in run.get("scorers") or () if scorer.get("name") == name]
        own = {key: options[0][key] for key in ("template", "instructions") if options and (options[0] or {}).get(key)}
        rubric_hash = hash_content(own)[:12] if own else ""
        found[condition, name] = models or tuple(map(str, default)) or (str(run.get("model")),), rubric_hash
        variants[name].add(found[condition, name])
    judges: dict[str, StudyJudge] = {}
    names: dict[tuple[str, str], str] = {}
    for (condition, name), (models, rubric_hash) in found.items():
        label = "+".join(model.rpartition("/")[2] for model in models)
        suffix = "" if len(variants[name]) == 1 else f"-{label}-{rubric_hash}".rstrip("-")
        names[condition, name] = name + suffix
        for part in facts.parts[condition, name]:
            judges[_name_part(name + suffix, part)] = StudyJudge(
                label,
                StudyCondition(
                    key=name, **split_model(", ".join(models)), prompt=_name_part(name, part), sampler="inspect-judge"
                ),
                rubric_hash=rubric_hash,
                scale=None if (condition, name) in facts.numbers else (0.0, 1.0),  # That of the grades C, P, I and N.
            )
    return judges, names


def _name_part(name: str, key: str) -> str:
    """Return the name of a scorer, or of its score with this key."""
    return f"{name}-{key}" if key else name


def _list_notes(facts: LogsDraft, images: Mapping[str, BufferedImage]) -> Iterator[str]:
    refused = len(set(facts.images.values()) - {""} - set(images))
    left_out, limits, events = map(describe_kinds, (facts.left_out, facts.limits, facts.events))
    if refused:
        yield f"{refused} images are not taken: they are no readable JPEG, PNG, WebP or GIF."
    if left_out:
        yield f"Left out of messages: {left_out}. An item has one image, the first of its input."
    if limits:
        yield f"{facts.limits.total()} samples ended at a limit: {limits}."
    if events:
        yield f"Events that are not taken: {events}."
    if facts.judges:
        yield "The rubrics of judges are not in the logs, only their messages."


# --- trials and calls -------------------------------------------------------------------------------------------------


def _read_trials(logs: Sequence[tuple[Path, str]], judges: Judges) -> Iterator[StudyTrial]:
    """Yield the samples of the logs, newest log first: a retried log repeats samples, and has the later outcome."""
    identities = KeyIndex()
    for file, condition in logs:
        for where, sample in read_samples(file):
            with refuse_unreadable(where):
                trial = _build_trial(where, condition, sample, judges)
            if identities.add((condition, trial.item, trial.sample_idx)):
                yield trial


def _build_trial(where: str, condition: str, sample: Log, judges: Judges) -> StudyTrial:
    output, error = sample.get("output") or {}, sample.get("error") or {}
    choice: Log = next(iter(output.get("choices") or []), {})
    content = (choice.get("message") or {}).get("content")
    text = _read_text(content, sample)
    events, events_by_scorer = _list_calls(sample)
    calls = tuple(map(_build_call, events)) or (_build_call({"output": output}),)
    earlier_calls = []  # The last call of each attempt that failed. The log has no other call of it.
    for retry in sample.get("error_retries") or []:
        failed = [event for event in retry.get("events") or [] if event.get("event") == "model"]
        call = _build_call(failed[-1] if failed else {})
        text_of_retry = str(retry.get("message") or "")
        earlier_calls.append(call if call.error else StudyCall(error=text_of_retry, cost_usd=call.cost_usd))
    return StudyTrial(
        where=where,
        condition=condition,
        item=str(sample.get("id"))[:200],
        sample_idx=int(sample["epoch"]) - 1,
        is_done=not error,
        answer=text,
        reasoning=_read_text(content, sample, kind="reasoning"),
        messages=tuple(_build_turn(message, sample) for message in sample.get("messages") or ()) or None,
        **read_finish(choice.get("stop_reason")),
        is_cached=all(call.is_cached for call in calls),
        attempts=1 + len(earlier_calls),
        response_id=calls[-1].response_id,
        served_model=str(output.get("model") or "")[:200],
        error=str(error.get("message") or ""),
        claimed_at=read_time(sample.get("started_at")),
        completed_at=read_time(sample.get("completed_at")),
        calls=calls,
        earlier_calls=tuple(earlier_calls),
        scores=() if error else tuple(_read_scores(where, condition, sample, events_by_scorer, judges)),
        **sum_calls(calls),
    )


def _list_calls(sample: Log) -> tuple[list[Log], dict[str, list[Log]]]:
    """Return the calls of the solvers, and those of each scorer by its name. A call belongs to the span around it."""
    solver_calls: list[Log] = []
    scorer_calls: dict[str, list[Log]] = {}
    scorers: dict[Any, str] = {}  # By span, with the spans inside of it.
    step = None  # Older logs have steps instead of spans.
    for event in sample.get("events") or ():
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


def _build_call(event: Log) -> StudyCall:
    """Return a call. Tokens that the provider's cache read or wrote are not in the log's count of input tokens."""
    output = event.get("output") or {}
    usage = output.get("usage") or {}
    is_cached = event.get("cache") == "read"
    cost = Decimal(str(usage["total_cost"])) if usage.get("total_cost") is not None else None
    cached = [usage.get("input_tokens_cache_read"), usage.get("input_tokens_cache_write")]
    tokens = {
        "input_tokens": usage["input_tokens"] + sum(filter(None, cached)) if "input_tokens" in usage else None,
        "output_tokens": usage.get("output_tokens"),
        "reasoning_tokens": usage.get("reasoning_tokens"),
        "cache_read_tokens": cached[0],
        "cache_write_tokens": cached[1],
    }
    stop = next((choice.get("stop_reason") for choice in output.get("choices") or []), None)
    return StudyCall(
        **({} if is_cached else tokens),
        cost_usd=Decimal(0) if is_cached else cost,
        list_usd=cost if is_cached else None,
        latency_ms=read_seconds(output.get("time")),
        finish_reason=read_finish(stop)["finish_reason"],
        response_id=str(output.get("response_id") or "")[:200],
        served_model=str(output.get("model") or "")[:200],
        error=str(event.get("error") or ""),
        is_cached=is_cached,
        claimed_at=read_time(event.get("timestamp")),
        completed_at=read_time(event.get("completed")),
    )


# --- scores -----------------------------------------------------------------------------------------------------------


def _read_scores(
    where: str, condition: str, sample: Log, calls: Mapping[str, Sequence[Log]], judges: Judges
) -> Iterator[StudyScore]:
    """Yield the scores of a sample, one for each key of a score that is an object. A judge's call is of the first."""
    for name, score in (sample.get("scores") or {}).items():
        scorer = judges.get((condition, name))
        verdict = None if scorer is None else _build_verdict(where, scorer, sample, calls.get(name, ()), score)
        value = score.get("value")
        for key, part in (value if isinstance(value, dict) else {"": value}).items():
            number = read_number(GRADES.get(part) if isinstance(part, str) else part)
            raw = str(part) if number is None else str(score.get("answer") or "")
            reasoning = str(score.get("explanation") or "")
            yield make_metric_score(_name_part(scorer or name, key), number, raw, reasoning=reasoning, verdict=verdict)
            verdict = None


def _build_verdict(where: str, scorer: str, sample: Log, events: Sequence[Log], score: Log) -> StudyTrial:
    """Return the calls of a judge as a trial. Without events, its reply is the explanation of the score."""
    calls = tuple(map(_build_call, events)) or (StudyCall(),)
    pool = (sample.get("events_data") or {}).get("messages") or []  # Most logs have the messages of calls here.
    messages, text, reasoning = [], str(score.get("explanation") or ""), ""
    for event in events:
        pooled = [message for start, end in event.get("input_refs") or () for message in pool[start:end]]
        choices: Sequence[Log] = (event.get("output") or {}).get("choices") or [{}]
        reply = choices[0].get("message") or {"role": "assistant", "content": ""}
        messages += [_build_turn(message, sample) for message in (*(pooled or event.get("input") or ()), reply)]
        text = _read_text(reply.get("content"), sample)
        reasoning = _read_text(reply.get("content"), sample, kind="reasoning")
    return StudyTrial(
        where=where,
        condition=scorer,
        item=str(sample.get("id"))[:200],
        sample_idx=0,
        is_done=True,
        answer=text,
        reasoning=reasoning,
        messages=tuple(messages) or None,
        finish_reason=calls[-1].finish_reason,
        is_truncated=calls[-1].finish_reason == "length",
        is_cached=all(call.is_cached for call in calls),
        response_id=calls[-1].response_id,
        served_model=calls[-1].served_model,
        claimed_at=calls[0].claimed_at,
        completed_at=calls[-1].completed_at or read_time(sample.get("completed_at")),
        calls=calls,
        **sum_calls(calls),
    )


# --- messages ---------------------------------------------------------------------------------------------------------


def _build_turn(message: Log, sample: Log) -> dict[str, Any]:
    """Return a message as `Trial.messages` has it. `image` marks the item's image, `left_out` names other media."""
    content = message.get("content")
    parts = [] if isinstance(content, str) else [part for part in content or [] if isinstance(part, dict)]
    item_image = _find_item_image(sample)
    kinds = [
        str(part.get("type"))
        for part in parts
        if part.get("type") != "image"
        or _resolve_attachment(str(part.get("image")), sample) != item_image
        or DATA_URL.match(item_image) is None
    ]
    calls = [
        {"function": str(call.get("function")), "arguments": replace_non_finite(call.get("arguments"))}
        for call in message.get("tool_calls") or ()
    ]
    failure = message.get("error") or {}
    texts = [_read_text(content, sample), str(failure.get("message") or "") if isinstance(failure, dict) else ""]
    extra = {
        "reasoning": _read_text(content, sample, kind="reasoning"),
        "function": message.get("function"),
        "tool_calls": calls,
        "image": len(kinds) < len(parts),
        "left_out": [kind for kind in kinds if kind not in ("text", "reasoning")],
    }
    turn = {"role": str(message.get("role")), "content": "\n".join(filter(None, texts))}
    return {**turn, **{name: value for name, value in extra.items() if value}}


def _find_item_image(sample: Log) -> str:
    """Return the address of the first image of the input, which is the item's."""
    turns = sample.get("input")
    for turn in turns if isinstance(turns, list) else ():
        for part in turn["content"] if isinstance(turn.get("content"), list) else ():
            if part.get("type") == "image":
                return _resolve_attachment(str(part.get("image")), sample)
    return ""


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


INSPECT = StudyFormat(
    name="inspect",
    label="inspect_ai",
    recognises=lambda path: bool(find_logs(path)),
    read=read_inspect,
    content="a log, or a folder of logs: one study",
    suffixes=(".eval", ".json"),
)
