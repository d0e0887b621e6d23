"""OpenAI Evals: the log of a run (JSON lines of events) as a study, and an eval of a registry as a design.

A sample is an item, a run is a condition. The first reply in a sample is the answer. In a model-graded eval, the last
one is the judge's verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalsite.lib.text.hashing import slugify_name
from grading_app.publish.export.row_shapes import Shape
from grading_app.study_import.stored_tables import KeyIndex
from grading_app.study_import.study import (
    Object,
    StudyCall,
    StudyCondition,
    StudyDesign,
    StudyError,
    StudyItem,
    StudyJudge,
    StudyScore,
    StudyTrial,
    build_condition,
    check_shape,
    dig,
    dig_counts,
    make_metric_score,
    read_time,
    refuse_unreadable,
    replace_non_finite,
    split_model,
    sum_calls,
)
from grading_app.study_import.study_draft import DesignFile, StudyDraft, StudyFormat
from grading_app.study_import.text_files import (
    find_files,
    read_first_object,
    read_objects,
    read_objects_at,
    read_placed_objects,
)

SCORES = ("match", "metrics")
JUDGE = "model-graded"
# Eval classes with a rule that a scorer of this site has.
SCORERS = {"Match": "exact_match"}
TOKENS = {
    "input_tokens": "data.usage.prompt_tokens",
    "output_tokens": "data.usage.completion_tokens",
    "reasoning_tokens": "data.usage.completion_tokens_details.reasoning_tokens",
    "cache_read_tokens": "data.usage.prompt_tokens_details.cached_tokens",
}
Row = Mapping[str, Any]


class PromptTurn(Shape):
    role: Any


class EventData(Shape):
    prompt: list[PromptTurn] | str | Object | None = None


class EventRow(Shape):
    """A line of a log, beside those of the run itself."""

    sample_id: Any
    data: EventData


class RunSpec(Shape):
    completion_fns: list[Any] | None = None


class RegistrySample(Shape):
    """A line of a registry's data."""

    input: list[PromptTurn] | str | Object | None


def _find_logs(path: Path) -> list[Path]:
    return [
        file for file in find_files(path, ".jsonl")
        if isinstance(spec := read_first_object(file).get("spec"), dict) and "completion_fns" in spec
    ]  # fmt: skip


def read_openai_evals(files: Sequence[Path], draft: StudyDraft) -> None:
    """Add the samples of all logs."""
    evals: set[str] = set()
    for file in files:
        spec = read_first_object(file)["spec"]
        draft.where = file.name
        check_shape(spec, RunSpec)
        offsets = KeyIndex()  # Of the events of each sample.
        samples: dict[str, None] = {}
        for offset, row in draft.follow(read_placed_objects(file)):
            draft.count("reports", "final_report" in row)
            if "final_report" in row or "type" not in row:
                continue
            if not isinstance(row.get("data"), dict) or "sample_id" not in row:
                raise StudyError([f"{draft.where}: an event needs sample_id and data"])
            check_shape(row, EventRow)
            is_taken = row["type"] in ("sampling", "error", *SCORES)
            draft.count("errors", row["type"] == "error")
            draft.count("others", not is_taken)
            if is_taken:
                samples.setdefault(str(row["sample_id"]))
                offsets.append_number((str(row["sample_id"]),), offset)
        draft.where = file.name
        evals.add(str(spec.get("base_eval") or draft.path.stem))
        model = "+".join(map(str, spec.get("completion_fns") or ["unknown"]))
        prompt = f"openai-evals-{slugify_name(str(spec.get('base_eval') or 'eval'))}"[:70]
        condition = draft.add_condition(
            build_condition("openai-evals", str(spec.get("run_id") or file.name), model, prompt)
        )
        for sample in samples:
            draft.where = f"{file.name}, sample {sample}"
            _add_sample(draft, spec, condition, sample, read_objects_at(file, offsets.list_numbers((sample,))))
    draft.name = ", ".join(sorted(evals))[:200]


def _list_turns(prompt: Any) -> list[dict[str, str]]:
    """Return the turns of a prompt, which is a text or a list of messages."""
    if isinstance(prompt, list):
        return [{"role": str(turn["role"]), "content": _to_text(turn.get("content"))} for turn in prompt]
    return [{"role": "user", "content": _to_text(prompt)}]


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _describe_ideal(ideal: Any) -> str:
    return "\n".join(map(_to_text, ideal)) if isinstance(ideal, list) else _to_text(ideal)


def _add_sample(draft: StudyDraft, spec: Row, condition: str, sample: str, events: Sequence[Row]) -> None:
    """Add a sample as an item, with the last reply of the model as its answer."""
    calls = [event for event in events if event["type"] == "sampling"]
    errors = [event for event in events if event["type"] == "error"]
    is_graded = "modelgraded" in str(dig(spec, "run_config.eval_spec.cls"))
    item = StudyItem(
        key=sample[:200],
        input="\n\n".join(turn["content"] for turn in _list_turns(calls[0]["data"].get("prompt"))) if calls else "",
        target=_describe_ideal(
            next((event["data"]["expected"] for event in events if "expected" in event["data"]), None)
        ),
        category=str(spec.get("base_eval") or "")[:200],
        metadata={"eval": str(spec.get("eval_name") or "")},
    )
    draft.count("other prompt", draft.add_item(item).input != item.input)
    draft.count("no prompt", not calls)
    draft.count("several calls", len(calls) > 1 + is_graded)
    verdict = None
    if is_graded and len(calls) > 1:
        verdict = _build_verdict(draft, item.key, calls.pop())
    matches = (event["data"] for event in events if event["type"] == "match")
    sampled = next((_to_text(match["sampled"]) for match in matches if "sampled" in match), "")
    is_done = bool(calls or events[0]["type"] in SCORES) and not errors
    answer = _read_reply(calls[-1]["data"]) if calls else sampled
    built_calls = tuple(map(_build_call, calls))
    draft.add_trial(
        condition,
        item.key,
        sample_idx=0,
        is_done=is_done,
        answer=answer if is_done else "",
        messages=_build_messages(calls[-1]["data"]) if calls else None,
        served_model=built_calls[-1].served_model if built_calls else "",
        error="" if is_done else _to_text(errors[0]["data"])[:2000] if errors else "no reply",
        completed_at=read_time(events[-1].get("created_at")),
        calls=built_calls,
        scores=tuple(_list_scores(events, verdict)) if is_done else (),
        **sum_calls(built_calls),
    )


def _build_verdict(draft: StudyDraft, item: str, event: Row) -> StudyTrial:
    """Return the call of the judge as a trial, and add the judge."""
    call = _build_call(event)
    model = str(event["data"].get("model") or "unknown")
    part = StudyCondition(JUDGE, **split_model(model), prompt="openai-evals-judge", sampler="openai-evals-judge")
    draft.judges.setdefault(JUDGE, StudyJudge(model, part))
    return StudyTrial(
        where=draft.where,
        condition=JUDGE,
        item=item,
        sample_idx=0,
        is_done=True,
        answer=_read_reply(event["data"]),
        messages=_build_messages(event["data"]),
        served_model=call.served_model,
        completed_at=call.completed_at,
        calls=(call,),
        **sum_calls([call]),
    )


def _list_scores(events: Sequence[Row], verdict: StudyTrial | None) -> Iterator[StudyScore]:
    """Yield a score for each match, and for each metric that is a number or the choice of the judge."""
    for event in events:
        if event["type"] == "match":
            yield make_metric_score("match", event["data"].get("correct"), _to_text(event["data"].get("picked")))
        for name, value in event["data"].items() if event["type"] == "metrics" else ():
            if name == "choice":
                yield make_metric_score(JUDGE, value, _to_text(value), verdict=verdict)
            elif isinstance(value, bool | int | float):
                yield make_metric_score(name, value, _to_text(value))


def _read_reply(data: Row) -> str:
    sampled = data.get("sampled")
    return _to_text(sampled[0] if isinstance(sampled, list) and sampled else sampled)


def _build_messages(data: Row) -> tuple[Mapping[str, str], ...]:
    return (*_list_turns(data.get("prompt")), {"role": "assistant", "content": _read_reply(data)})


def _build_call(event: Row) -> StudyCall:
    return StudyCall(
        **dig_counts(event, TOKENS),
        served_model=str(event["data"].get("model") or "")[:200],
        completed_at=read_time(event.get("created_at")),
    )


# --- the design -------------------------------------------------------------------------------------------------------


def _list_evals(registry: Row) -> dict[str, Row]:
    return {
        str(name): entry
        for name, entry in registry.items()
        if isinstance(entry, dict)
        and ":" in str(entry.get("class") or "")
        and isinstance(entry.get("args"), dict)
        and isinstance(entry["args"].get("samples_jsonl"), str)
    }


def read_registry(design: DesignFile) -> StudyDesign:
    """Return the design of the first eval of a registry, with its samples as items.

    Raise StudyError if the samples are not in the folder.
    """
    evals = _list_evals(design.content)
    name, entry = next(iter(evals.items()))
    samples = str(entry["args"]["samples_jsonl"])
    places = [
        place for place in find_files(design.root, ".jsonl") if place.as_posix().endswith(samples.rpartition("/")[2])
    ]
    exact = [place for place in places if place.as_posix().endswith(samples)] or places
    if not exact:
        raise StudyError(
            [f"{design.file.name}: {samples} is not here: choose the folder with the registry and its data"]
        )
    items = []
    for number, (where, row) in enumerate(read_objects(exact[:1])):
        if "input" not in row:
            raise StudyError([f"{where}: input is missing"])
        with refuse_unreadable(where):
            check_shape(row, RegistrySample)
            text = "\n\n".join(turn["content"] for turn in _list_turns(row["input"]))
            extra = {key: value for key, value in row.items() if key not in ("input", "ideal")}
            key, target = f"{name}.{number}"[:200], _describe_ideal(row.get("ideal"))
            items.append(StudyItem(key, text, target, metadata=replace_non_finite(extra)))
    rule = str(entry["class"]).rpartition(":")[2]
    notes = [f"{len(items)} samples of {samples} are the items. A sample's system turns are part of its text."]
    if len(evals) > 1:
        notes.append(f"Other evals of the file are not taken: {', '.join(list(evals)[1:])[:300]}.")
    if rule not in SCORERS:
        notes.append(f"The rule {rule} is not taken: choose a scorer or a judge.")
    content = {
        "prompts": [{"name": "openai-evals-input", "messages": [{"role": "user", "content": "{{input}}"}]}],
        "samplers": [{"name": "openai-evals-default"}],
        "samples": 1,
        **({"grade": {"scorers": [SCORERS[rule]]}} if rule in SCORERS else {}),
    }
    return design.build("OpenAI Evals", name, content, notes, items)


OPENAI_EVALS = StudyFormat(
    name="openai-evals",
    label="OpenAI Evals",
    content="the log of a run (--record_path), or a folder of logs; for a design, a registry's YAML with its data",
    suffixes=(".jsonl",),
    find=_find_logs,
    missing="no log of a run (JSON lines whose first line has the spec)",
    read=read_openai_evals,
    is_design=lambda content: bool(_list_evals(content)),
    read_design=read_registry,
    notes=("Costs, times of answers and settings of the models are not in the logs: they stay unknown.",),
    count_notes={
        "reports": "{} final reports have means of the scores, which are computed here again.",
        "no prompt": "{} samples have no recorded prompt: items have no text, and answers no usage.",
        "several calls": "{} samples have several replies: the last one of the model is the answer.",
        "other prompt": "{} samples were asked with another text in another run: the item has the first one.",
        "errors": "{} recorded errors have no answer: failed trials.",
        "others": "{} other events are not taken.",
    },
)
