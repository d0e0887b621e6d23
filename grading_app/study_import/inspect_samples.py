"""inspect_ai: the content of a sample. Its item, its conversation, its calls and its scores."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from grading_app.study_import.inspect_files import Log
from grading_app.study_import.study import StudyCall, StudyError, StudyItem, StudyScore, StudyTrial, sum_calls

GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
LIMITS = {"max_tokens": "length", "model_length": "length"}
DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,")
Judges = Mapping[tuple[str, str], str]  # The scorers that are judges: their names by condition and name in the log.


def read_key(sample: Log) -> str:
    return str(sample.get("id"))[:200]


def build_item(sample: Log, where: str) -> StudyItem:
    if sample.get("id") is None or sample.get("epoch") is None:
        raise StudyError([f"{where}: id and epoch must not be empty"])
    target, content = sample.get("target"), sample.get("input")
    turns = [{"content": content}] if isinstance(content, str) else content or []
    metadata = sample.get("metadata") or {}
    return StudyItem(
        key=read_key(sample),
        input="\n\n".join(filter(None, (_read_text(turn.get("content"), sample) for turn in turns))),
        target="\n".join(map(str, target)) if isinstance(target, list) else str(target or ""),
        category=str(metadata.get("category") or "")[:200],
        choices=tuple(map(str, sample.get("choices") or ())),
        metadata=_replace_non_finite(metadata),
    )


def build_trial(where: str, condition: str, sample: Log, judges: Judges) -> StudyTrial:
    output, error = sample.get("output") or {}, sample.get("error") or {}
    choice: Log = next(iter(output.get("choices") or []), {})
    content = (choice.get("message") or {}).get("content")
    text, stop = _read_text(content, sample), str(choice.get("stop_reason") or "")
    events, events_by_scorer = list_calls(sample)
    calls = tuple(map(build_call, events)) or (build_call({"output": output}),)
    retries = sample.get("error_retries") or []
    return StudyTrial(
        where=where,
        condition=condition,
        item=read_key(sample),
        sample_idx=int(sample["epoch"]) - 1,
        is_done=not error,
        answer=text,
        raw_response=None if error else text,
        reasoning=_read_text(content, sample, kind="reasoning"),
        messages=tuple(build_turn(message, sample) for message in sample.get("messages") or ()) or None,
        finish_reason=LIMITS.get(stop, stop)[:40],
        is_truncated=stop in LIMITS,
        is_refused=stop == "content_filter",
        is_cached=all(call.is_cached for call in calls),
        attempts=1 + len(retries),
        response_id=calls[-1].response_id,
        served_model=str(output.get("model") or "")[:200],
        error_class="unknown" if error else "",
        error=str(error.get("message") or ""),
        claimed_at=read_time(sample.get("started_at")),
        completed_at=read_time(sample.get("completed_at")),
        calls=calls,
        earlier_calls=tuple(map(_build_earlier_call, retries)),
        scores=() if error else tuple(_read_scores(where, condition, sample, events_by_scorer, judges)),
        **sum_calls(calls),
    )


# --- calls ------------------------------------------------------------------------------------------------------------


def list_calls(sample: Log) -> tuple[list[Log], dict[str, list[Log]]]:
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


def build_call(event: Log) -> StudyCall:
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
    stop = str(next((choice.get("stop_reason") for choice in output.get("choices") or []), None) or "")
    return StudyCall(
        **({} if is_cached else tokens),
        cost_usd=Decimal(0) if is_cached else cost,
        list_usd=cost if is_cached else None,
        latency_ms=None if output.get("time") is None else round(1000 * output["time"]),
        finish_reason=LIMITS.get(stop, stop)[:40],
        response_id=str(output.get("response_id") or "")[:200],
        served_model=str(output.get("model") or "")[:200],
        error=str(event.get("error") or ""),
        is_cached=is_cached,
        claimed_at=read_time(event.get("timestamp")),
        completed_at=read_time(event.get("completed")),
    )


def _build_earlier_call(retry: Log) -> StudyCall:
    """Return the last call of an attempt that failed. The log has no other call of it."""
    event: Log = next((event for event in reversed(retry.get("events") or []) if event.get("event") == "model"), {})
    call = build_call(event)
    return call if call.error else StudyCall(error=str(retry.get("message") or ""), cost_usd=call.cost_usd)


# --- scores -----------------------------------------------------------------------------------------------------------


def list_judges(sample: Log) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the scorers of a sample that ask a model, with their models. Without events, the models are unknown."""
    calls = list_calls(sample)[1]
    for name in sample.get("scores") or {}:
        if name in calls or name.startswith("model_graded_"):
            yield name, tuple(dict.fromkeys(str(event.get("model")) for event in calls.get(name, ())))


def _read_scores(
    where: str, condition: str, sample: Log, calls: Mapping[str, Sequence[Log]], judges: Judges
) -> Iterator[StudyScore]:
    """Yield the scores of a sample, one for each key of a score that is an object. A judge's call is of the first."""
    for name, score in (sample.get("scores") or {}).items():
        scorer = judges.get((condition, name))
        verdict = None if scorer is None else _build_verdict(where, scorer, sample, calls.get(name, ()), score)
        value = score.get("value")
        for key, part in (value if isinstance(value, dict) else {"": value}).items():
            number = _read_number(part)
            yield StudyScore(
                scorer=name_part(scorer or name, key),
                value=number,
                raw=str(score.get("answer") or "" if number is not None else part)[:2000],
                error="" if number is not None else "not_a_number",
                reasoning=str(score.get("explanation") or ""),
                verdict=verdict,
            )
            verdict = None


def name_part(name: str, key: str) -> str:
    """Return the name of a scorer, or of its score with this key."""
    return f"{name}-{key}" if key else name


def _build_verdict(where: str, scorer: str, sample: Log, events: Sequence[Log], score: Log) -> StudyTrial:
    """Return the calls of a judge as a trial. Without events, its reply is the explanation of the score."""
    calls = tuple(map(build_call, events)) or (StudyCall(),)
    replies = [_get_reply(event) for event in events]
    messages = [
        build_turn(message, sample)
        for event, reply in zip(events, replies, strict=True)
        for message in (*_read_input(event, sample), reply)
    ]
    text = _read_text(replies[-1].get("content"), sample) if replies else str(score.get("explanation") or "")
    return StudyTrial(
        where=where,
        condition=scorer,
        item=read_key(sample),
        sample_idx=0,
        is_done=True,
        answer=text,
        raw_response=text,
        reasoning=_read_text(replies[-1].get("content"), sample, kind="reasoning") if replies else "",
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


def _read_number(value: Any) -> float | None:
    if isinstance(value, str) and value in GRADES:
        return GRADES[value]
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    return None


# --- messages ---------------------------------------------------------------------------------------------------------


def build_turn(message: Log, sample: Log) -> dict[str, Any]:
    """Return a message as `Trial.messages` has it. `image` marks the item's image, `left_out` names other media."""
    content = message.get("content")
    parts = [] if isinstance(content, str) else [part for part in content or [] if isinstance(part, dict)]
    kinds = [str(part.get("type")) for part in parts if not _is_item_image(part, sample)]
    left_out = [kind for kind in kinds if kind not in ("text", "reasoning")]
    calls = [
        {"function": str(call.get("function")), "arguments": _replace_non_finite(call.get("arguments"))}
        for call in message.get("tool_calls") or ()
    ]
    failure = message.get("error") or {}
    texts = [_read_text(content, sample), str(failure.get("message") or "") if isinstance(failure, dict) else ""]
    extra = {
        "reasoning": _read_text(content, sample, kind="reasoning"),
        "function": message.get("function"),
        "tool_calls": calls,
        "image": len(kinds) < len(parts),
        "left_out": left_out,
    }
    turn = {"role": str(message.get("role")), "content": "\n".join(filter(None, texts))}
    return {**turn, **{name: value for name, value in extra.items() if value}}


def read_image(sample: Log) -> bytes | None:
    """Return the first image of the input, which is the item's. An image outside of the log cannot be read."""
    url = _find_item_image(sample)
    prefix = DATA_URL.match(url)
    try:
        return base64.b64decode(url[prefix.end() :], validate=True) if prefix else None
    except binascii.Error:
        return None


def _find_item_image(sample: Log) -> str:
    turns = sample.get("input")
    for turn in turns if isinstance(turns, list) else ():
        for part in turn["content"] if isinstance(turn.get("content"), list) else ():
            if part.get("type") == "image":
                return _resolve_attachment(str(part.get("image")), sample)
    return ""


def _is_item_image(part: Log, sample: Log) -> bool:
    if part.get("type") != "image":
        return False
    url = _resolve_attachment(str(part.get("image")), sample)
    return url == _find_item_image(sample) and DATA_URL.match(url) is not None


def _get_reply(event: Log) -> Log:
    choices: Sequence[Log] = (event.get("output") or {}).get("choices") or [{}]
    return choices[0].get("message") or {"role": "assistant", "content": ""}


def _read_input(event: Log, sample: Log) -> list[Log]:
    """Return the messages that a call sent. Most logs have them in a pool of the sample's messages."""
    pool = (sample.get("events_data") or {}).get("messages") or []
    pooled = [message for start, end in event.get("input_refs") or () for message in pool[start:end]]
    return pooled or list(event.get("input") or ())


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


def read_time(text: Any) -> datetime | None:
    time = datetime.fromisoformat(text) if isinstance(text, str) and text else None
    return time.replace(tzinfo=UTC) if time and time.tzinfo is None else time


def _replace_non_finite(value: Any) -> Any:
    """Return the value with NaN and infinity as text, because JSON columns cannot hold them."""
    if isinstance(value, dict):
        return {str(name): _replace_non_finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_replace_non_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
