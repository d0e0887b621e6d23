"""OpenAI Evals: the log of a run (JSON lines of events) as a study, and an eval of a registry as a design.

A sample is an item, a run is a condition. The first reply in a sample is the answer. In a model-graded eval, the last
one is the judge's verdict.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from evalsite.lib.text.hashing import slugify_name
from grading_app.study_import.stored_tables import KeyIndex
from grading_app.study_import.study import (
    INPUT_TURN,
    DesignNames,
    Study,
    StudyCall,
    StudyCondition,
    StudyDesign,
    StudyDraft,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyJudge,
    StudyTrial,
    make_metric_score,
    read_time,
    refuse_unreadable,
    replace_non_finite,
    split_model,
    sum_calls,
)
from grading_app.study_import.text_files import (
    find_files,
    read_first_object,
    read_objects,
    read_objects_at,
    read_placed_objects,
    read_yaml_files,
)

TOOL = "openai-evals"
SCORES = ("match", "metrics")
JUDGE = "model-graded"
# Eval classes with a rule that a scorer of this site has.
SCORERS = {"Match": "exact_match"}
Row = Mapping[str, Any]


@dataclass
class RunLog:
    """A log with the offsets of the events of each sample."""

    file: Path
    spec: Row
    condition: str
    samples: dict[str, None] = field(default_factory=dict)
    offsets: KeyIndex = field(default_factory=KeyIndex)

    @property
    def is_graded(self) -> bool:
        return "modelgraded" in str(((self.spec.get("run_config") or {}).get("eval_spec") or {}).get("cls"))

    def read_events(self, sample: str) -> list[dict[str, Any]]:
        return read_objects_at(self.file, self.offsets.list_numbers((sample,)))


def _find_logs(path: Path) -> list[Path]:
    return [
        file for file in find_files(path, ".jsonl")
        if isinstance(spec := read_first_object(file).get("spec"), dict) and "completion_fns" in spec
    ]  # fmt: skip


def read_openai_evals(path: Path) -> Study:
    """Return the study of one log, or of all in a folder. Raise StudyError, which names file and line."""
    files = _find_logs(path)
    if not files:
        raise StudyError([f"{path.name}: no log of a run (JSON lines whose first line has the spec)"])
    draft = StudyDraft(TOOL)
    counts, logs = draft.counts, []
    judges: dict[str, StudyJudge] = {}
    for file in files:
        log = _index_log(file, counts)
        with refuse_unreadable(file.name):
            draft.conditions.setdefault(log.condition, _build_condition(log))
        logs.append(log)
        for sample in log.samples:
            events = log.read_events(sample)
            with refuse_unreadable(f"{file.name}, sample {sample}"):
                item = _build_item(log, sample, events)
                if draft.items.setdefault(item.key, item).input != item.input:
                    counts["other prompt"] += 1
                calls = [event for event in events if event["type"] == "sampling"]
                counts["no prompt"] += not calls
                counts["several calls"] += len(calls) > 1 + log.is_graded
                if log.is_graded and len(calls) > 1:
                    model = str(calls[-1]["data"].get("model") or "unknown")
                    judges.setdefault(JUDGE, StudyJudge(
                        model, StudyCondition(
                            key=JUDGE, **split_model(model), prompt="openai-evals-judge", sampler="openai-evals-judge"
                        ),
                    ))  # fmt: skip
    return draft.build(
        ", ".join(sorted({str(log.spec.get("base_eval") or path.stem) for log in logs}))[:200],
        partial(_read_trials, logs),
        ["Costs, times of answers and settings of the models are not in the logs: they stay unknown."],
        {
            "reports": "{} final reports have means of the scores, which are computed here again.",
            "no prompt": "{} samples have no recorded prompt: items have no text, and answers no usage.",
            "several calls": "{} samples have several replies: the last one of the model is the answer.",
            "other prompt": "{} samples were asked with another text in another run: the item has the first one.",
            "errors": "{} recorded errors have no answer: failed trials.",
            "others": "{} other events are not taken.",
        },
        judges=judges,
    )


def _index_log(file: Path, counts: Counter[str]) -> RunLog:
    """Return the log with the places of its events. Raise StudyError for a line that is no object."""
    log = RunLog(file, read_first_object(file)["spec"], "")
    log.condition = str(log.spec.get("run_id") or file.name)
    for where, offset, row in read_placed_objects(file):
        if "final_report" in row:
            counts["reports"] += 1
        elif "type" in row:
            if not isinstance(row.get("data"), dict) or "sample_id" not in row:
                raise StudyError([f"{where}: an event needs sample_id and data"])
            if row["type"] in ("sampling", "error", *SCORES):
                log.samples.setdefault(str(row["sample_id"]))
                log.offsets.append_number((str(row["sample_id"]),), offset)
                counts["errors"] += row["type"] == "error"
            else:
                counts["others"] += 1
    return log


def _build_condition(log: RunLog) -> StudyCondition:
    model = "+".join(map(str, log.spec.get("completion_fns") or ["unknown"]))
    return StudyCondition(
        key=log.condition,
        **split_model(model),
        prompt=f"openai-evals-{slugify_name(str(log.spec.get('base_eval') or 'eval'))}"[:70],
        messages=INPUT_TURN,
        sampler="openai-evals-default",
    )


def _list_turns(prompt: Any) -> list[dict[str, str]]:
    """Return the turns of a prompt, which is a text or a list of messages."""
    if isinstance(prompt, list):
        return [{"role": str(turn["role"]), "content": _to_text(turn.get("content"))} for turn in prompt]
    return [{"role": "user", "content": _to_text(prompt)}]


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _describe_ideal(ideal: Any) -> str:
    return "\n".join(map(_to_text, ideal)) if isinstance(ideal, list) else _to_text(ideal)


def _build_item(log: RunLog, sample: str, events: Sequence[Row]) -> StudyItem:
    calls = [event["data"] for event in events if event["type"] == "sampling"]
    expected = next((event["data"]["expected"] for event in events if "expected" in event["data"]), None)
    return StudyItem(
        key=sample[:200],
        input="\n\n".join(turn["content"] for turn in _list_turns(calls[0].get("prompt"))) if calls else "",
        target=_describe_ideal(expected),
        category=str(log.spec.get("base_eval") or "")[:200],
        metadata={"eval": str(log.spec.get("eval_name") or "")},
    )


def _read_trials(logs: Sequence[RunLog]) -> Iterator[StudyTrial]:
    for log in logs:
        for sample in log.samples:
            where = f"{log.file.name}, sample {sample}"
            with refuse_unreadable(where):
                trial = _build_trial(where, log, sample, log.read_events(sample))
            yield trial


def _build_trial(where: str, log: RunLog, sample: str, events: Sequence[Row]) -> StudyTrial:
    calls = [event for event in events if event["type"] == "sampling"]
    verdict_call = calls.pop() if log.is_graded and len(calls) > 1 else None
    errors = [event for event in events if event["type"] == "error"]
    sampled = next(
        (
            _to_text(event["data"]["sampled"])
            for event in events
            if event["type"] == "match" and "sampled" in event["data"]
        ),
        "",
    )
    text = _read_reply(calls[-1]["data"]) if calls else sampled
    is_done = bool(calls or events[0]["type"] in SCORES) and not errors
    verdict = None
    if verdict_call is not None:
        reply, call = _read_reply(verdict_call["data"]), _build_call(verdict_call)
        verdict = StudyTrial(
            where=where, condition=JUDGE, item=sample[:200], sample_idx=0, is_done=True, answer=reply,
            messages=_build_messages(verdict_call["data"]), served_model=call.served_model,
            completed_at=call.completed_at, calls=(call,), **sum_calls([call]),
        )  # fmt: skip
    scores = []
    for event in (event for event in events if event["type"] in SCORES):
        for name, value in (
            {"match": event["data"].get("correct")} if event["type"] == "match" else event["data"]
        ).items():
            if event["type"] == "metrics" and not (isinstance(value, bool | int | float) or name == "choice"):
                continue
            raw = _to_text(event["data"].get("picked") if event["type"] == "match" else value)
            is_verdict = name == "choice"
            scores.append(
                make_metric_score(JUDGE if is_verdict else name, value, raw, verdict=verdict if is_verdict else None)
            )
    built_calls = tuple(map(_build_call, calls))
    return StudyTrial(
        where=where,
        condition=log.condition,
        item=sample[:200],
        sample_idx=0,
        is_done=is_done,
        answer=text if is_done else "",
        messages=_build_messages(calls[-1]["data"]) if calls else None,
        served_model=built_calls[-1].served_model if built_calls else "",
        error="" if is_done else _to_text(errors[0]["data"])[:2000] if errors else "no reply",
        completed_at=read_time(events[-1].get("created_at")),
        calls=built_calls,
        scores=tuple(scores) if is_done else (),
        **sum_calls(built_calls),
    )


def _read_reply(data: Row) -> str:
    sampled = data.get("sampled")
    return _to_text(sampled[0] if isinstance(sampled, list) and sampled else sampled)


def _build_messages(data: Row) -> tuple[Mapping[str, str], ...]:
    return (*_list_turns(data.get("prompt")), {"role": "assistant", "content": _read_reply(data)})


def _build_call(event: Row) -> StudyCall:
    usage = event["data"].get("usage") or {}
    details, prompt_details = usage.get("completion_tokens_details") or {}, usage.get("prompt_tokens_details") or {}
    return StudyCall(
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        reasoning_tokens=details.get("reasoning_tokens"),
        cache_read_tokens=prompt_details.get("cached_tokens"),
        served_model=str(event["data"].get("model") or "")[:200],
        completed_at=read_time(event.get("created_at")),
    )


# --- the design -------------------------------------------------------------------------------------------------------


def find_design(path: Path, names: DesignNames) -> StudyDesign | None:
    """Return the design of the first eval of a registry, with its samples as items; None for another file.

    Raise StudyError if the samples are not in the folder.
    """
    for file, registry in read_yaml_files(path):
        with refuse_unreadable(file.name):
            entries = {str(name): entry for name, entry in registry.items() if isinstance(entry, dict)}
            evals = {
                name: entry
                for name, entry in entries.items()
                if ":" in str(entry.get("class") or "")
                and isinstance((entry.get("args") or {}).get("samples_jsonl"), str)
            }
            if evals:
                return _build_design(path, file, evals, names)
    return None


def _build_design(path: Path, file: Path, evals: Mapping[str, Row], names: DesignNames) -> StudyDesign:
    name, entry = next(iter(evals.items()))
    samples = str(entry["args"]["samples_jsonl"])
    places = [place for place in find_files(path, ".jsonl") if place.as_posix().endswith(samples.rpartition("/")[2])]
    exact = [place for place in places if place.as_posix().endswith(samples)] or places
    if not exact:
        raise StudyError([f"{file.name}: {samples} is not here: choose the folder with the registry and its data"])
    items = []
    for number, (where, row) in enumerate(read_objects(exact[:1])):
        if "input" not in row:
            raise StudyError([f"{where}: input is missing"])
        with refuse_unreadable(where):
            text = "\n\n".join(turn["content"] for turn in _list_turns(row["input"]))
            extra = {key: value for key, value in row.items() if key not in ("input", "ideal")}
            items.append({
                "key": f"{name}.{number}"[:200], "input": text, "target": _describe_ideal(row.get("ideal")),
                "metadata": replace_non_finite(extra),
            })  # fmt: skip
    rule = str(entry["class"]).rpartition(":")[2]
    notes = [f"{len(items)} samples of {samples} are the items. A sample's system turns are part of its text."]
    if len(evals) > 1:
        notes.append(f"Other evals of the file are not taken: {', '.join(list(evals)[1:])[:300]}.")
    if rule not in SCORERS:
        notes.append(f"The rule {rule} is not taken: choose a scorer or a judge.")
    content = {
        "experiment": names.experiment or slugify_name(name),
        "title": name[:200],
        "dataset": names.dataset or slugify_name(name),
        "prompts": [{"name": "openai-evals-input", "messages": [{"role": "user", "content": "{{input}}"}]}],
        "samplers": [{"name": "openai-evals-default"}],
        "samples": 1,
        **({"grade": {"scorers": [SCORERS[rule]]}} if rule in SCORERS else {}),
    }
    return StudyDesign("OpenAI Evals", content, notes, items)


OPENAI_EVALS = StudyFormat(
    name=TOOL,
    label="OpenAI Evals",
    recognises=lambda path: bool(_find_logs(path)),
    read=read_openai_evals,
    content="the log of a run (--record_path), or a folder of logs; for a design, a registry's YAML with its data",
    suffixes=(".jsonl",),
    find_design=find_design,
)
