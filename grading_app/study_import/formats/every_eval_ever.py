"""Every Eval Ever: the JSON of an evaluation, with the JSON lines of its samples beside it.

A sample is an item, an evaluation is a condition. The samples file has a row for each sample and metric: the metrics
are scores of one answer. An evaluation without samples has only means, which are no answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grading_app.publish.export.row_shapes import Shape
from grading_app.study_import.stored_tables import KeyIndex
from grading_app.study_import.study import (
    Finite,
    Object,
    StudyCondition,
    StudyError,
    StudyItem,
    build_condition,
    check_shape,
    dig,
    dig_counts,
    make_metric_score,
    name_choice,
    read_float,
    read_settings,
    read_time,
    replace_non_finite,
)
from grading_app.study_import.study_draft import StudyDraft, StudyFormat
from grading_app.study_import.text_files import (
    find_files,
    read_first_object,
    read_json,
    read_objects,
    read_objects_at,
    read_placed_objects,
)

AGGREGATE = {"schema_version", "evaluation_id", "model_info", "evaluation_results"}
REQUIRED = ("schema_version", "evaluation_id", "model_id", "evaluation_name", "sample_id", "input", "evaluation")
TOKENS = {
    "input_tokens": "token_usage.input_tokens",
    "output_tokens": "token_usage.output_tokens",
    "reasoning_tokens": "token_usage.reasoning_tokens",
    "cache_read_tokens": "token_usage.input_tokens_cache_read",
    "cache_write_tokens": "token_usage.input_tokens_cache_write",
}
Row = Mapping[str, Any]


class SampleInput(Shape):
    choices: list[Any] | None = None
    reference: list[Any] | None = None


class SampleOutput(Shape):
    raw: list[Any] | None = None
    reasoning_trace: list[str | None] | None = None


class Performance(Shape):
    latency_ms: Finite | None = None


class SampleTurn(Shape):
    role: Any
    tool_calls: list[Object] | None = None


class MetricScore(Shape):
    score: Any


class SampleRow(Shape):
    """A line of a samples file."""

    input: SampleInput
    output: SampleOutput | None = None
    messages: list[SampleTurn] | None = None
    performance: Performance | None = None
    evaluation: MetricScore
    answer_attribution: list[Object] | None = None


class GenerationConfig(Shape):
    generation_args: Object | None = None


class EvaluationResult(Shape):
    generation_config: GenerationConfig | None = None


class EvaluationFile(Shape):
    model_info: Object | None = None
    evaluation_results: list[EvaluationResult] | None = None


def _find_files(path: Path) -> list[Path]:
    """Return the evaluations and the files of samples at the path."""
    found = []
    for file in find_files(path, ".json", ".jsonl"):
        if file.suffix.lower() == ".jsonl":
            is_part = read_first_object(file).keys() >= set(REQUIRED)
        else:
            with file.open("rb") as start:
                is_part = b'"evaluation_id"' in start.read(2_000) and read_json(file).keys() >= AGGREGATE
        found += [file] if is_part else []
    return found


def read_every_eval_ever(files: Sequence[Path], draft: StudyDraft) -> None:
    """Add the samples. A sample has a row for each of its metrics, anywhere in its file."""
    evaluations: dict[str, Row] = {}
    for content in draft.follow((file.name, read_json(file)) for file in files if file.suffix.lower() == ".json"):
        check_shape(content, EvaluationFile)
        evaluations[str(content["evaluation_id"])] = content
    seen: set[str] = set()
    for file in (file for file in files if file.suffix.lower() == ".jsonl"):
        places = KeyIndex()
        for offset, row in draft.follow(read_placed_objects(file)):
            if missing := [name for name in REQUIRED if name not in row]:
                raise StudyError([f"{draft.where}: {', '.join(missing)} missing"])
            check_shape(row, SampleRow)
            seen.add(str(row["evaluation_id"]))
            draft.count("without evaluation", str(row["evaluation_id"]) not in evaluations)
            draft.count("several", len(dig(row, "output.raw") or ()) > 1)
            places.append_number((row["evaluation_id"], row["sample_id"]), offset)
        added = KeyIndex()
        for row in draft.follow(read_objects([file])):
            identity = (row["evaluation_id"], row["sample_id"])
            item = _build_item(row)
            if draft.add_item(item).input != item.input:
                raise StudyError(
                    [f"{draft.where}: sample {row['sample_id']} has another input than in an earlier file"]
                )
            if added.add(identity):
                evaluation = evaluations.get(str(row["evaluation_id"]), {})
                condition = draft.add_condition(_build_evaluation_condition(row, evaluation))
                rows = read_objects_at(file, places.list_numbers(identity))
                _add_trials(draft, condition, item.key, rows, evaluation.get("evaluation_timestamp"))
    draft.counts["means"] = len(evaluations.keys() - seen)
    if not draft.items:
        raise StudyError(
            [f"{draft.path.name}: {len(evaluations)} evaluations have only means, without samples: nothing to import"]
        )
    draft.name = ", ".join(sorted({item.category for item in draft.items.values()}))[:200]


def _name_benchmark(row: Row) -> str:
    """Return the name of the benchmark: the start of the evaluation's id, before the model."""
    evaluation, model = str(row["evaluation_id"]), str(row["model_id"])
    return evaluation.partition(f"/{model}")[0] or str(row["evaluation_name"])


def _build_item(row: Row) -> StudyItem:
    question, benchmark = row["input"], _name_benchmark(row)
    choices = tuple(map(str, question.get("choices") or ()))
    references = [str(one) for one in question.get("reference") or ()]
    return StudyItem(
        key=f"{benchmark}-{row['sample_id']}"[:200],
        input=str(question.get("raw") or ""),
        target="\n".join(name_choice(one, choices) for one in references),
        category=benchmark[:200],
        choices=choices,
        metadata=replace_non_finite({"benchmark": benchmark, "sample": str(row["sample_id"])}),
    )


def _build_evaluation_condition(row: Row, evaluation: Row) -> StudyCondition:
    """Return the condition of an evaluation. Its settings are those that all of its results have in common."""
    model = evaluation.get("model_info") or {}
    arguments = [
        ((result.get("generation_config") or {}).get("generation_args") or {})
        for result in evaluation.get("evaluation_results") or ()
    ]
    settings = read_settings(arguments[0] if arguments and all(one == arguments[0] for one in arguments) else {})
    model_id, platform = str(model.get("id") or row["model_id"]), str(model.get("inference_platform") or "")
    prompt = f"every-eval-ever-{_name_benchmark(row)}".replace("/", "-")[:70]
    provider = {"provider": platform} if platform else {}
    return build_condition("every-eval-ever", str(row["evaluation_id"]), model_id, prompt, settings, **provider)


def _add_trials(draft: StudyDraft, condition: str, item: str, rows: Sequence[Row], timestamp: Any) -> None:
    """Add the responses to a sample. rows: one for each metric. Usage and scores are of the first response."""
    row = rows[0]
    error = row.get("error")
    turns = [_build_turn(turn) for turn in row.get("messages") or ()]
    replies = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    latency = dig(row, "performance.latency_ms")
    scores = []
    names: Counter[str] = Counter()
    for one in rows:
        name = str(one.get("evaluation_result_id") or one["evaluation_name"])
        names[name] += 1
        scorer = name if names[name] == 1 else f"{name}-{names[name]}"
        extracted = [part for part in one.get("answer_attribution") or () if part.get("is_terminal")]
        raw = str(extracted[-1].get("extracted_value")) if extracted else ""
        scores.append(make_metric_score(scorer, one["evaluation"]["score"], raw))
    facts: dict[str, Any] = {
        "reasoning": "\n".join(filter(None, dig(row, "output.reasoning_trace") or ())),
        **dig_counts(row, TOKENS),
        "latency_ms": None if latency is None else round(latency),
        "scores": () if error else tuple(scores),
    }
    for answer in dig(row, "output.raw") or replies[-1:] or [""]:
        draft.add_trial(
            condition,
            item,
            is_done=not error,
            answer=str(answer) if not error else "",
            messages=tuple(turns) or None,
            error=str(error or ""),
            completed_at=read_time(read_float(timestamp)) if timestamp else None,
            **facts,
        )
        facts = {}


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
    name="every-eval-ever",
    label="Every Eval Ever",
    content="a folder with evaluations (.json) and their samples (_samples.jsonl)",
    find=_find_files,
    missing="0 evaluations have only means, without samples: nothing to import",
    read=read_every_eval_ever,
    notes=("Costs are not in the format: they stay unknown.",),
    count_notes={
        "means": "{} evaluations have only means, without samples: they are not taken.",
        "without evaluation": "{} rows name an evaluation whose file is not here: its settings are unknown.",
        "several": "{} samples have several responses: each is a repetition, and the scores are of the first.",
    },
)
