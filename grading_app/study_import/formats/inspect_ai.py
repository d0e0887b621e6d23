"""inspect_ai: one log is one condition; several logs of a folder are one study."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from datasets_app.importing.limited_reader import FileToRead, read_upload
from datasets_app.importing.records import BufferedImage
from evalsite.lib.text.hashing import hash_content
from grading_app.study_import.formats.inspect_logs import (
    DATA_URL,
    Log,
    LogHeader,
    Sample,
    check_sample,
    find_logs,
    read_header,
    read_samples,
)
from grading_app.study_import.stored_tables import KeyIndex
from grading_app.study_import.study import (
    StudyCall,
    StudyCondition,
    StudyError,
    StudyItem,
    StudyJudge,
    StudyScore,
    StudyTrial,
    build_condition,
    check_shape,
    describe_kinds,
    dig,
    dig_counts,
    make_metric_score,
    read_decimal,
    read_finish,
    read_number,
    read_seconds,
    read_settings,
    read_time,
    replace_non_finite,
    split_model,
    sum_calls,
)
from grading_app.study_import.study_draft import StudyDraft, StudyFormat

# The messages of a sample have the calls of tools and their results, too.
TAKEN_EVENTS = {"model", "tool", "score", "state", "sample_init", "step", "span_begin", "span_end", "error"}
OLDEST = datetime.min.replace(tzinfo=UTC)
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
TOKENS = {
    "input_tokens": "output.usage.input_tokens",
    "output_tokens": "output.usage.output_tokens",
    "reasoning_tokens": "output.usage.reasoning_tokens",
    "cache_read_tokens": "output.usage.input_tokens_cache_read",
    "cache_write_tokens": "output.usage.input_tokens_cache_write",
}
Scorer = tuple[str, str]  # The key of a condition, and the name of a scorer in its logs.
Judges = Mapping[Scorer, str]  # The names of the scorers that are judges.


@dataclass
class LogFacts:
    """Facts about the samples of all logs.

    images: the hash of each item's image, by key. texts: the conditions with samples without an image. judges: the
    models of each scorer that asks one. parts: the keys of its scores; "" for a score that is no object. numbers: the
    judges that gave another value than a letter. left_out: parts of messages by kind.
    """

    images: dict[str, str] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    judges: dict[Scorer, tuple[str, ...]] = field(default_factory=dict)
    parts: dict[Scorer, set[str]] = field(default_factory=lambda: defaultdict(set))
    numbers: set[Scorer] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    limits: Counter[str] = field(default_factory=Counter)


def read_inspect(files: Sequence[Path], draft: StudyDraft) -> None:
    """Add the samples of all logs, newest log first: a retried log repeats samples, and has the later outcome."""
    facts = LogFacts()
    logs: list[tuple[datetime, Path, str]] = []  # The time of their start, and the keys of their conditions.
    headers: dict[str, Log] = {}
    for file in files:
        draft.where = file.name
        header = read_header(file)
        check_shape(header, LogHeader)
        condition = draft.add_condition(_build_log_condition(header))
        logs.append((read_time(dig(header, "eval.created")) or OLDEST, file, condition))
        headers.setdefault(condition, header)
        if header.get("status") != "success":
            draft.notes.append(f"{file.name}: status {header.get('status')}; its finished samples are taken.")
        for log in draft.follow(read_samples(file)):
            check_sample(log)
            _add_facts(draft, condition, Sample(log), facts)
    images = _read_images(draft, facts)
    for key, item in draft.items.items():
        draft.items[key] = replace(item, image=images.get(facts.images.get(key, "")))
    for key, condition_of_log in draft.conditions.items():
        if key not in facts.texts:
            *before, last = condition_of_log.messages
            turns = (*before, {**last, "content": "{{image}}" + last["content"]})
            draft.conditions[key] = replace(condition_of_log, messages=turns)
    names = _add_judges(draft, facts, headers)
    draft.name = str(dig(headers[logs[0][2]], "eval.task") or draft.path.stem).rpartition("/")[2]
    draft.notes += _list_notes(facts, images)
    added = KeyIndex()
    for _, file, condition in sorted(logs, key=lambda log: log[0], reverse=True):
        for log in draft.follow(read_samples(file)):
            if added.add((condition, str(log["id"])[:200], log["epoch"])):
                _add_trial(draft, condition, Sample(log), names)


# --- conditions and items ---------------------------------------------------------------------------------------------


def _build_log_condition(header: Log) -> StudyCondition:
    """Return the condition of a log. A retried log keeps the id of its task, and so its condition."""
    run, plan = header.get("eval") or {}, header.get("plan") or {}
    config = plan.get("config") or {}
    steps = [{"solver": step.get("solver"), "params": step.get("params")} for step in plan.get("steps") or []]
    identity = [run.get("model"), run.get("task"), run.get("task_id"), steps, config]
    model = str(run.get("model") or "unknown")
    system = [
        str(step["params"]["template"])
        for step in steps
        if step["solver"] == "system_message" and dig(step, "params.template")
    ]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:12]
    prompt = f"inspect-{run.get('task') or 'task'}".replace("/", "-")[:70]
    return build_condition("inspect", f"{model}-{digest}", model, prompt, read_settings(config), system)


def _add_facts(draft: StudyDraft, condition: str, sample: Sample, facts: LogFacts) -> None:
    """Add the item and the facts of a sample, and write its image to the draft's folder."""
    log = sample.log
    if log.get("id") is None or log.get("epoch") is None:
        raise StudyError([f"{draft.where}: id and epoch must not be empty"])
    target, content, metadata = log.get("target"), log.get("input"), log.get("metadata") or {}
    turns = [{"content": content}] if isinstance(content, str) else content or []
    item = StudyItem(
        key=str(log["id"])[:200],
        input="\n\n".join(filter(None, (sample.read_text(turn.get("content")) for turn in turns))),
        target="\n".join(map(str, target)) if isinstance(target, list) else str(target or ""),
        category=str(metadata.get("category") or "")[:200],
        choices=tuple(map(str, log.get("choices") or ())),
        metadata=replace_non_finite(metadata),
    )
    prefix, image = DATA_URL.match(sample.item_image), None  # An image outside of the log is not read.
    if prefix:
        try:
            image = base64.b64decode(sample.item_image[prefix.end() :], validate=True)
        except ValueError:
            image = None
    digest = hashlib.sha256(image).hexdigest() if image else ""
    earlier_item, earlier_digest = draft.add_item(item), facts.images.setdefault(item.key, digest)
    if (earlier_item.input, earlier_item.target, earlier_digest) != (item.input, item.target, digest):
        problem = f"sample {item.key!r} has another input or target than in an earlier log"
        raise StudyError([f"{draft.where}: {problem}"])
    if image:
        folder = draft.scratch.path / "images"
        folder.mkdir(exist_ok=True)
        (folder / f"{digest}.png").write_bytes(image)  # The reader looks at the bytes, not at the suffix.
    else:
        facts.texts.add(condition)
    solver_calls, scorer_calls = sample.calls
    for name, score in (log.get("scores") or {}).items():  # A scorer that asks a model is a judge.
        if name in scorer_calls or name.startswith("model_graded_"):
            models = tuple(dict.fromkeys(str(event.get("model")) for event in scorer_calls.get(name, ())))
            facts.judges[condition, name] = models or facts.judges.get((condition, name), ())
            values = value if isinstance(value := score.get("value"), dict) else {"": value}
            facts.parts[condition, name].update(map(str, values))
            # NaN is no score.
            if any(part == part and not (isinstance(part, str) and part in GRADES) for part in values.values()):
                facts.numbers.add((condition, name))
    messages = log.get("messages") or []
    draft.count("several turns", sum(message.get("role") == "assistant" for message in messages) > 1)
    draft.count("several calls", len(solver_calls) > 1)
    draft.count("no calls", not solver_calls and not log.get("error"))
    draft.count("repeated requests", sum(call.get("retries") or 0 for call in solver_calls))
    draft.count("unpriced", sum(_build_call(call).cost_usd is None for call in solver_calls))
    kinds = (str(event.get("event")) for event in log.get("events") or ())
    facts.events.update(kind for kind in kinds if kind not in TAKEN_EVENTS)
    facts.left_out.update(kind for message in messages for kind in sample.build_turn(message).get("left_out", ()))
    if log.get("limit"):
        facts.limits[str(log["limit"].get("type"))] += 1


def _read_images(draft: StudyDraft, facts: LogFacts) -> dict[str, BufferedImage]:
    """Return the images by their hash, decoded in the limited process. Those that it refuses are left out."""
    folder = draft.scratch.path
    digests = sorted(set(facts.images.values()) - {""})
    table = folder / "images.jsonl"
    for _ in range(2):
        table.write_text("".join(json.dumps({"key": digest, "image": f"{digest}.png"}) + "\n" for digest in digests))
        if not digests:
            break
        files = {"items": FileToRead(table, "images of the log"), "images": FileToRead(folder / "images", "images")}
        reading, _ = read_upload(files, {"key": "key", "image": "image", "input": ""})
        if reading.ok:
            draft.folders.append(reading)
            return {item.key: item.image for item in reading.items if item.image}
        refused = {remark.row for remark in reading.report.errors}
        digests = [digest for row, digest in enumerate(digests, start=1) if row not in refused]
    return {}


def _add_judges(draft: StudyDraft, facts: LogFacts, headers: Mapping[str, Log]) -> Judges:
    """Add the judges by their scorer. Return the names of the scorers.

    A name has the judge's models if the logs have several judges under it. A rubric has the hash of the judge's own
    template and instructions: those of the tool are not in the log.
    """
    variants: dict[str, set[tuple[tuple[str, ...], str]]] = defaultdict(set)
    found: dict[Scorer, tuple[tuple[str, ...], str]] = {}
    for (condition, name), models in facts.judges.items():
        run = headers[condition].get("eval") or {}
        grader = dig(run, "model_roles.grader")
        default = [part.get("model") for part in (grader if isinstance(grader, list) else [grader]) if part]
        options = [scorer.get("options") for scorer in run.get("scorers") or () if scorer.get("name") == name]
        own = {key: options[0][key] for key in ("template", "instructions") if options and (options[0] or {}).get(key)}
        rubric_hash = hash_content(own)[:12] if own else ""
        found[condition, name] = models or tuple(map(str, default)) or (str(run.get("model")),), rubric_hash
        variants[name].add(found[condition, name])
    names: dict[Scorer, str] = {}
    for (condition, name), (models, rubric_hash) in found.items():
        label = "+".join(model.rpartition("/")[2] for model in models)
        suffix = "" if len(variants[name]) == 1 else f"-{label}-{rubric_hash}".rstrip("-")
        names[condition, name] = name + suffix
        for part in facts.parts[condition, name]:
            draft.judges[_name_part(name + suffix, part)] = StudyJudge(
                label,
                StudyCondition(
                    key=name, **split_model(", ".join(models)), prompt=_name_part(name, part), sampler="inspect-judge"
                ),
                rubric_hash=rubric_hash,
                scale=None if (condition, name) in facts.numbers else (0.0, 1.0),  # That of the grades C, P, I and N.
            )
    return names


def _name_part(name: str, key: str) -> str:
    """Return the name of a scorer, or of its score with this key."""
    return f"{name}-{key}" if key else name


def _list_notes(facts: LogFacts, images: Mapping[str, BufferedImage]) -> Iterator[str]:
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


def _add_trial(draft: StudyDraft, condition: str, sample: Sample, judges: Judges) -> None:
    log = sample.log
    output, error = log.get("output") or {}, log.get("error") or {}
    choice: Log = next(iter(output.get("choices") or []), {})
    content = dig(choice, "message.content")
    calls = tuple(map(_build_call, sample.calls[0])) or (_build_call({"output": output}),)
    earlier_calls = []  # The last call of each attempt that failed. The log has no other call of it.
    for retry in log.get("error_retries") or []:
        failed = [event for event in retry.get("events") or [] if event.get("event") == "model"]
        call = _build_call(failed[-1] if failed else {})
        text_of_retry = str(retry.get("message") or "")
        earlier_calls.append(call if call.error else StudyCall(error=text_of_retry, cost_usd=call.cost_usd))
    draft.add_trial(
        condition,
        str(log.get("id"))[:200],
        sample_idx=log["epoch"] - 1,
        is_done=not error,
        answer=sample.read_text(content),
        reasoning=sample.read_text(content, "reasoning"),
        messages=tuple(map(sample.build_turn, log.get("messages") or ())) or None,
        **read_finish(choice.get("stop_reason")),
        is_cached=all(call.is_cached for call in calls),
        attempts=1 + len(earlier_calls),
        response_id=calls[-1].response_id,
        served_model=str(output.get("model") or "")[:200],
        error=str(error.get("message") or ""),
        claimed_at=read_time(log.get("started_at")),
        completed_at=read_time(log.get("completed_at")),
        calls=calls,
        earlier_calls=tuple(earlier_calls),
        scores=() if error else tuple(_read_scores(draft.where, condition, sample, judges)),
        **sum_calls(calls),
    )


def _build_call(event: Log) -> StudyCall:
    """Return a call. Tokens that the provider's cache read or wrote are not in the log's count of input tokens."""
    output, tokens = event.get("output") or {}, dig_counts(event, TOKENS)
    is_cached = event.get("cache") == "read"
    price = dig(output, "usage.total_cost")
    cost = None if price is None else read_decimal(price)
    if (fresh := tokens["input_tokens"]) is not None:
        tokens["input_tokens"] = fresh + sum(filter(None, (tokens["cache_read_tokens"], tokens["cache_write_tokens"])))
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


def _read_scores(where: str, condition: str, sample: Sample, judges: Judges) -> Iterator[StudyScore]:
    """Yield the scores of a sample, one for each key of a score that is an object. A judge's call is of the first."""
    for name, score in (sample.log.get("scores") or {}).items():
        scorer = judges.get((condition, name))
        verdict = (
            None if scorer is None else _build_verdict(where, scorer, sample, sample.calls[1].get(name, ()), score)
        )
        value = score.get("value")
        for key, part in (value if isinstance(value, dict) else {"": value}).items():
            number = read_number(GRADES.get(part) if isinstance(part, str) else part)
            raw = str(part) if number is None else str(score.get("answer") or "")
            reasoning = str(score.get("explanation") or "")
            yield make_metric_score(_name_part(scorer or name, key), number, raw, reasoning=reasoning, verdict=verdict)
            verdict = None


def _build_verdict(where: str, scorer: str, sample: Sample, events: Sequence[Log], score: Log) -> StudyTrial:
    """Return the calls of a judge as a trial. Without events, its reply is the explanation of the score."""
    calls = tuple(map(_build_call, events)) or (StudyCall(),)
    messages, text, reasoning = [], str(score.get("explanation") or ""), ""
    for event in events:
        choices: Sequence[Log] = dig(event, "output.choices") or [{}]
        reply = choices[0].get("message") or {"role": "assistant", "content": ""}
        messages += [sample.build_turn(message) for message in (*sample.list_sent_messages(event), reply)]
        text, reasoning = (sample.read_text(reply.get("content"), kind) for kind in ("text", "reasoning"))
    return StudyTrial(
        where=where,
        condition=scorer,
        item=str(sample.log.get("id"))[:200],
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
        completed_at=calls[-1].completed_at or read_time(sample.log.get("completed_at")),
        calls=calls,
        **sum_calls(calls),
    )


INSPECT = StudyFormat(
    name="inspect",
    label="inspect_ai",
    content="a log, or a folder of logs: one study",
    suffixes=(".eval", ".json"),
    find=find_logs,
    missing="no log of inspect_ai (.eval or .json)",
    read=read_inspect,
    count_notes={
        "several calls": "{} samples have several calls: each is an attempt, and usage and cost of a trial are sums.",
        "several turns": "{} samples have several turns: their trials have them all, the prompt only the first.",
        "no calls": "{} samples have no events: their usage and cost are those of the last call.",
        "repeated requests": "{} requests were repeated within a call: their cost is unknown.",
        "unpriced": "The cost of {} calls is unknown, because inspect_ai had no price.",
    },
)
