"""lm-evaluation-harness: `results_*.json` of runs, with the samples of each task beside it (`samples_TASK_*.jsonl`).

A document of a task is an item, a run is a condition, a response is a trial. A samples file has each document once for
each filter: the metrics of all filters are scores of the same answer.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from grading_app.publish.export.row_shapes import Shape
from grading_app.study_import.stored_tables import KeyIndex
from grading_app.study_import.study import (
    ContentError,
    Object,
    StudyCondition,
    StudyError,
    StudyItem,
    build_condition,
    check_shape,
    make_metric_score,
    name_choice,
    read_float,
    read_number,
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

REQUIRED = ("doc_id", "doc", "target", "arguments", "resps", "filtered_resps")
KNOWN = {*REQUIRED, "filter", "metrics", "doc_hash", "prompt_hash", "target_hash"}
RESULTS = re.compile(r"results_(?P<date>.+)\.json\Z")
SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT.+)\.jsonl\Z")
Row = Mapping[str, Any]
Some = Annotated[list[Any], Field(min_length=1)]


class DocumentRow(Shape):
    """A line of a samples file."""

    arguments: Annotated[dict[str, Annotated[Object, Field(min_length=1)]] | list[Some], Field(min_length=1)]
    resps: Annotated[list[Some], Field(min_length=1)]
    metrics: list[str] | None = None


class TaskConfig(Shape):
    generation_kwargs: Object | None = None


class RunConfig(Shape):
    model_args: Object | str | None = None
    gen_kwargs: Object | str | None = None


class RunResults(Shape):
    """A file `results_*.json`."""

    config: RunConfig | None = None
    configs: dict[str, TaskConfig] | None = None
    results: Object | None = None


def read_lm_eval(files: Sequence[Path], draft: StudyDraft) -> None:
    """Add the samples of all runs."""
    runs = {}  # Results by folder and date.
    for file in find_files(draft.path, ".json"):
        if match := RESULTS.match(file.name):
            draft.where = file.name
            runs[file.parent, match["date"]] = run = read_json(file)
            check_shape(run, RunResults)
    hashes: dict[str, str] = {}
    tasks_by_run: dict[tuple[Path, str], set[str]] = defaultdict(set)
    for file in files:
        match = SAMPLES.match(file.name)
        task, date = (match["task"], match["date"]) if match else (file.stem, "")
        run = runs.get((file.parent, date), {})
        draft.where = file.name
        draft.count("without results", not run)
        tasks_by_run[file.parent, date].add(task)
        condition = draft.add_condition(_build_run_condition(date or file.stem, file, run))
        _add_samples(draft, file, task, condition, read_time(run.get("date")), hashes)
    for (folder, date), run in runs.items():
        names = (run.get("results") or {}).keys() - tasks_by_run[folder, date]
        if names:
            shown = ", ".join(sorted(map(str, names)))[:300]
            draft.notes.append(
                f"{len(names)} tasks or groups have no samples, only means, which are not taken: {shown}."
            )
    draft.name = ", ".join(sorted(set().union(*tasks_by_run.values())))[:200]


def _build_run_condition(date: str, file: Path, run: Row) -> StudyCondition:
    """Return the condition of a run. Its settings are those that all of its generating tasks have in common."""
    config = run.get("config") or {}
    arguments = _parse_arguments(config.get("model_args"))
    named = run.get("model_name") or arguments.get("model") or arguments.get("pretrained")
    model = str(named or file.parent.name.replace("__", "/"))
    per_task = [
        {**task["generation_kwargs"], **_parse_arguments(config.get("gen_kwargs"))}
        for task in (run.get("configs") or {}).values()
        if task.get("generation_kwargs")
    ]
    shared = {
        name: value for name, value in (per_task or [{}])[0].items() if all(value == one.get(name) for one in per_task)
    }
    if "max_gen_toks" in shared:
        shared["max_tokens"] = shared["max_gen_toks"]
    settings: dict[str, float] = {}
    for name, value in read_settings(shared).items():  # In a list of arguments, a number is text.
        try:
            settings[name] = float(value) if name in ("temperature", "top_p") else int(value)
        except (TypeError, ValueError, OverflowError):
            raise ContentError(f"{name} is {value!r:.60}, not a number") from None
    system = [str(run["system_instruction"])] if run.get("system_instruction") else []
    return build_condition("lm-eval", f"{model}, {date}", model, "lm-eval", settings, system)


def _parse_arguments(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return dict(part.partition("=")[::2] for part in value.split(",") if part)
    return dict(value or {})


def _add_samples(
    draft: StudyDraft, file: Path, task: str, condition: str, time: datetime | None, hashes: dict[str, str]
) -> None:
    """Add the documents of a file with their responses. hashes: of the documents of all files, by key."""
    filters: dict[str, None] = {}
    others = KeyIndex()  # The offsets of the rows of the other filters, by document.
    for offset, row in draft.follow(read_placed_objects(file)):
        if missing := [name for name in REQUIRED if name not in row]:
            draft.refuse(f"{', '.join(missing)} missing")
            continue
        check_shape(row, DocumentRow)
        filters.setdefault(_name_filter(row))
        draft.count("not numbers", sum(read_number(value) is None for value in _read_metrics(row).values()))
        if _name_filter(row) != next(iter(filters)):
            others.append_number((row["doc_id"],), offset)
    for row in draft.follow(read_objects([file])):
        if draft.has_problems or _name_filter(row) != next(iter(filters)):
            continue
        item = _build_item(task, row)
        digest = str(row.get("doc_hash") or json.dumps(row["doc"], sort_keys=True))
        if hashes.setdefault(item.key, digest) != digest:
            problem = f"document {row['doc_id']} of {task} has another content than in another run"
            raise StudyError([f"{draft.where}: {problem}"])
        draft.count("other prompt", draft.add_item(item).input != item.input)
        draft.count("ranked", _is_ranking(row))
        draft.count("likelihoods", not _is_ranking(row) and _has_likelihoods(row))
        answers = _read_answers(row)
        draft.count("repeated", len(answers) > 1)
        scores = []
        for one in [row, *read_objects_at(file, others.list_numbers((row["doc_id"],)))]:
            for metric, value in _read_metrics(one).items():
                scorer = metric if len(filters) == 1 else f"{metric}-{_name_filter(one)}"
                raw = value if read_number(value) is None else one["filtered_resps"]
                scores.append(make_metric_score(scorer, value, json.dumps(raw)))
        for repetition, (answer, raw) in enumerate(answers):
            draft.add_trial(
                condition,
                item.key,
                sample_idx=repetition,
                is_done=True,
                answer=answer,
                raw_response=raw,
                completed_at=time,
                scores=() if repetition else tuple(scores),
            )


def _build_item(task: str, row: Row) -> StudyItem:
    calls, target = _list_arguments(row), row["target"]
    choices = _list_choices(row) if _is_ranking(row) else ()
    if choices and type(target) in (str, int):
        target = name_choice(str(target), choices)  # In a ranking, the right answer may be the place of a choice.
    return StudyItem(
        key=f"{task}-{row['doc_id']}"[:200],
        input=calls[0][0] if isinstance(calls[0][0], str) else json.dumps(calls[0][0]),
        target=target if isinstance(target, str) else json.dumps(target),
        category=task[:200],
        choices=choices,
        metadata={"task": task, "doc": replace_non_finite(row["doc"])},
    )


def _read_answers(row: Row) -> list[tuple[str, str]]:
    """Return the responses to a document, each with the raw reply. In a ranking, the choice with the highest one."""
    if not _is_ranking(row):
        texts = [json.dumps(one) if _has_likelihoods(row) else str(one) for one in row["resps"][0]]
        return [(text, text) for text in texts]
    likelihoods = [read_float(one[0][0] if isinstance(one[0], list) and one[0] else one[0]) for one in row["resps"]]
    choices = _list_choices(row)
    if len(choices) < len(likelihoods):
        raise ContentError(f"{len(likelihoods)} responses, but {len(choices)} arguments")
    best = max(range(len(likelihoods)), key=likelihoods.__getitem__)
    return [(choices[best], json.dumps(dict(zip(choices, likelihoods, strict=False))))]


def _name_filter(row: Row) -> str:
    return str(row.get("filter") or "none")


def _list_choices(row: Row) -> tuple[str, ...]:
    calls = _list_arguments(row)
    if any(len(call) < 2 for call in calls):
        raise ContentError("arguments: a call needs a text and its continuation")
    return tuple(str(call[1]).strip() for call in calls)


def _list_arguments(row: Row) -> list[Sequence[Any]]:
    """Return the arguments of each call of a document: the text, then its continuation or its settings."""
    arguments = row["arguments"]
    if isinstance(arguments, dict):
        return [list(call.values()) for call in arguments.values()]
    return list(arguments)


def _has_likelihoods(row: Row) -> bool:
    """Return whether the responses are log-likelihoods: a number, or one with whether the text is the most likely."""
    first = row["resps"][0][0]
    return not isinstance(first, str)


def _is_ranking(row: Row) -> bool:
    return len(row["resps"]) > 1 and _has_likelihoods(row)


def _read_metrics(row: Row) -> dict[str, Any]:
    names = row.get("metrics") or [name for name in row if name not in KNOWN]
    return {str(name): row[name] for name in names if name in row}


LM_EVAL = StudyFormat(
    name="lm-eval",
    label="lm-evaluation-harness",
    content="the output folder of runs with --log_samples: results_*.json and samples_*.jsonl",
    find=lambda path: [file for file in find_files(path, ".jsonl") if read_first_object(file).keys() >= set(REQUIRED)],
    missing="no samples; run lm_eval with --log_samples, and choose its output folder",
    read=read_lm_eval,
    notes=("Tokens, costs, times and failed calls are not in the samples: they stay unknown.",),
    count_notes={
        "without results": "{} files of samples have no results of the same date: their settings are unknown.",
        "other prompt": "{} documents were asked with another text in another run: the item has the first one.",
        "ranked": "{} answers are the choice with the highest log-likelihood. The raw reply has them all.",
        "likelihoods": "{} answers are log-likelihoods of a given text: the models wrote nothing.",
        "repeated": "{} documents have several responses: each is a repetition. Scores are of the first.",
        "not numbers": "{} metrics are no numbers, such as pairs for a perplexity: they have no value.",
    },
)
