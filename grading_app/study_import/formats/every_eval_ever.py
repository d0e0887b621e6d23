"""Every Eval Ever: the JSON of an evaluation, with the JSON lines of its samples beside it.

A sample is an item, an evaluation is a condition. The samples file has a row for each sample and metric: the metrics
are scores of one answer. An evaluation without samples has only means, which are no answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grading_app.study_import.stored_tables import KeyIndex
from grading_app.study_import.study import (
    INPUT_TURN,
    Study,
    StudyCondition,
    StudyDraft,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyTrial,
    make_metric_score,
    name_sampler,
    read_settings,
    read_time,
    refuse_unreadable,
    replace_non_finite,
    split_model,
)
from grading_app.study_import.text_files import (
    find_files,
    read_first_object,
    read_json,
    read_objects,
    read_objects_at,
    read_placed_objects,
)

TOOL = "every-eval-ever"
AGGREGATE = {"schema_version", "evaluation_id", "model_info", "evaluation_results"}
REQUIRED = ("schema_version", "evaluation_id", "model_id", "evaluation_name", "sample_id", "input", "evaluation")
Row = Mapping[str, Any]
# A file of samples, with the time of its evaluation and the offsets of the rows of each sample.
SamplesFile = tuple[Path, Any, KeyIndex]


def _find_aggregates(path: Path) -> list[Path]:
    found = []
    for file in find_files(path, ".json"):
        with file.open("rb") as start:
            if b'"evaluation_id"' in start.read(2_000) and read_json(file).keys() >= AGGREGATE:
                found.append(file)
    return found


def _find_samples(path: Path) -> list[Path]:
    return [file for file in find_files(path, ".jsonl") if read_first_object(file).keys() >= set(REQUIRED)]


def read_every_eval_ever(path: Path) -> Study:
    """Return the study of all evaluations with samples in a folder. Raise StudyError, which names file and line."""
    evaluations = {str(content["evaluation_id"]): content for content in map(read_json, _find_aggregates(path))}
    draft = StudyDraft(TOOL)
    files: list[SamplesFile] = []
    seen: set[str] = set()
    for file in _find_samples(path):
        index, time = KeyIndex(), None
        for where, offset, row in read_placed_objects(file):
            if missing := [name for name in REQUIRED if name not in row]:
                raise StudyError([f"{where}: {', '.join(missing)} missing"])
            with refuse_unreadable(where):
                evaluation = evaluations.get(str(row["evaluation_id"]), {})
                seen.add(str(row["evaluation_id"]))
                draft.counts["without evaluation"] += not evaluation
                stamp = evaluation.get("evaluation_timestamp")
                time = read_time(float(stamp)) if stamp else None
                item = _build_item(row)
                if draft.items.setdefault(item.key, item).input != item.input:
                    raise StudyError([f"{where}: sample {row['sample_id']} has another input than in an earlier file"])
                draft.conditions.setdefault(str(row["evaluation_id"]), _build_condition(row, evaluation))
                draft.counts["several"] += len((row.get("output") or {}).get("raw") or ()) > 1
                index.append_number((row["evaluation_id"], row["sample_id"]), offset)
        files.append((file, time, index))
    draft.counts["means"] = len(evaluations.keys() - seen)
    if not draft.items:
        raise StudyError(
            [f"{path.name}: {len(evaluations)} evaluations have only means, without samples: nothing to import"]
        )
    return draft.build(
        ", ".join(sorted({item.category for item in draft.items.values()}))[:200],
        partial(_read_trials, files),
        ["Costs are not in the format: they stay unknown."],
        {
            "means": "{} evaluations have only means, without samples: they are not taken.",
            "without evaluation": "{} rows name an evaluation whose file is not here: its settings are unknown.",
            "several": "{} samples have several responses: each is a repetition, and the scores are of the first.",
        },
    )


def _name_benchmark(row: Row) -> str:
    """Return the name of the benchmark: the start of the evaluation's id, before the model."""
    evaluation, model = str(row["evaluation_id"]), str(row["model_id"])
    return evaluation.partition(f"/{model}")[0] or str(row["evaluation_name"])


def _build_item_key(row: Row) -> str:
    return f"{_name_benchmark(row)}-{row['sample_id']}"[:200]


def _build_item(row: Row) -> StudyItem:
    question, benchmark = row["input"], _name_benchmark(row)
    choices = tuple(map(str, question.get("choices") or ()))
    references = [str(one) for one in question.get("reference") or ()]
    return StudyItem(
        key=_build_item_key(row),
        input=str(question.get("raw") or ""),
        target="\n".join(choices[int(one)] if one.isdigit() and int(one) < len(choices) else one for one in references),
        category=benchmark[:200],
        choices=choices,
        metadata=replace_non_finite({"benchmark": benchmark, "sample": str(row["sample_id"])}),
    )


def _build_condition(row: Row, evaluation: Row) -> StudyCondition:
    """Return the condition of an evaluation. Its settings are those that all of its results have in common."""
    model = evaluation.get("model_info") or {}
    arguments = [
        ((result.get("generation_config") or {}).get("generation_args") or {})
        for result in evaluation.get("evaluation_results") or ()
    ]
    settings = read_settings(arguments[0] if arguments and all(one == arguments[0] for one in arguments) else {})
    fields = split_model(str(model.get("id") or row["model_id"]))
    return StudyCondition(
        key=str(row["evaluation_id"]),
        **{**fields, "provider": str(model.get("inference_platform") or fields["provider"])},
        prompt=f"every-eval-ever-{_name_benchmark(row)}".replace("/", "-")[:70],
        messages=INPUT_TURN,
        sampler=name_sampler("every-eval-ever", settings),
        settings=settings,
    )


def _read_trials(files: Sequence[SamplesFile]) -> Iterator[StudyTrial]:
    for file, time, index in files:
        done = KeyIndex()
        for where, row in read_objects([file]):
            identity = (row["evaluation_id"], row["sample_id"])
            if done.add(identity):
                with refuse_unreadable(where):
                    yield from _build_trials(where, read_objects_at(file, index.list_numbers(identity)), time)


def _build_trials(where: str, rows: Sequence[Row], time: Any) -> Iterator[StudyTrial]:
    row = rows[0]
    output, usage, error = row.get("output") or {}, row.get("token_usage") or {}, row.get("error")
    turns = [_build_turn(turn) for turn in row.get("messages") or ()]
    replies = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    answers = [str(text) for text in output.get("raw") or replies[-1:] or [""]]
    reasoning = "\n".join(filter(None, output.get("reasoning_trace") or ()))
    latency = (row.get("performance") or {}).get("latency_ms")
    scores = []
    names: Counter[str] = Counter()
    for one in rows:
        name = str(one.get("evaluation_result_id") or one["evaluation_name"])
        names[name] += 1
        scorer = name if names[name] == 1 else f"{name}-{names[name]}"
        extracted = [part for part in one.get("answer_attribution") or () if part.get("is_terminal")]
        raw = str(extracted[-1].get("extracted_value")) if extracted else ""
        scores.append(make_metric_score(scorer, one["evaluation"]["score"], raw))
    for repetition, answer in enumerate(answers):
        yield StudyTrial(
            where=where,
            condition=str(row["evaluation_id"]),
            item=_build_item_key(row),
            sample_idx=repetition,
            is_done=not error,
            answer=answer if not error else "",
            reasoning=reasoning if repetition == 0 else "",
            messages=tuple(turns) or None,
            input_tokens=usage.get("input_tokens") if repetition == 0 else None,
            output_tokens=usage.get("output_tokens") if repetition == 0 else None,
            reasoning_tokens=usage.get("reasoning_tokens") if repetition == 0 else None,
            cache_read_tokens=usage.get("input_tokens_cache_read") if repetition == 0 else None,
            cache_write_tokens=usage.get("input_tokens_cache_write") if repetition == 0 else None,
            latency_ms=None if latency is None or repetition else round(latency),
            error=str(error or ""),
            completed_at=time,
            scores=tuple(scores) if repetition == 0 and not error else (),
        )


def _build_turn(turn: Row) -> dict[str, Any]:
    calls = [
        {"function": str(call.get("name")), "arguments": replace_non_finite(call.get("arguments"))}
        for call in turn.get("tool_calls") or ()
    ]
    reasoning = turn.get("reasoning_trace")
    extra = {"reasoning": str(reasoning) if reasoning else "", "tool_calls": calls}
    content = {"role": str(turn["role"]), "content": str(turn.get("content") or "")}
    return {**content, **{name: value for name, value in extra.items() if value}}


EVERY_EVAL_EVER = StudyFormat(
    name=TOOL,
    label="Every Eval Ever",
    recognises=lambda path: bool(_find_samples(path) or _find_aggregates(path)),
    read=read_every_eval_ever,
    content="a folder with evaluations (.json) and their samples (_samples.jsonl)",
)
