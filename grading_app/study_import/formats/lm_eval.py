"""lm-evaluation-harness: `results_*.json` of runs, with the samples of each task beside it (`samples_TASK_*.jsonl`).

A document of a task is an item, a run is a condition, a response is a trial. A samples file has each document once for
each filter: the metrics of all filters are scores of the same answer.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from grading_app.study_import.stored_tables import KeyIndex
from grading_app.study_import.study import (
    INPUT_TURN,
    MAX_PROBLEMS,
    Study,
    StudyCondition,
    StudyDraft,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyTrial,
    make_metric_score,
    name_sampler,
    read_number,
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

TOOL = "lm-eval"
REQUIRED = ("doc_id", "doc", "target", "arguments", "resps", "filtered_resps")
KNOWN = {*REQUIRED, "filter", "metrics", "doc_hash", "prompt_hash", "target_hash"}
RESULTS = re.compile(r"results_(?P<date>.+)\.json\Z")
SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT.+)\.jsonl\Z")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class SamplesFile:
    """The samples of a task in a run. filters: of its documents; the first one's rows are the trials."""

    path: Path
    task: str
    condition: str
    started_at: datetime | None
    filters: tuple[str, ...] = ()


def is_lm_eval(path: Path) -> bool:
    return any(read_first_object(file).keys() >= set(REQUIRED) for file in find_files(path, ".jsonl"))


def read_lm_eval(path: Path) -> Study:
    """Return the study of all runs in a folder. Raise StudyError, which names file and line."""
    files = [file for file in find_files(path, ".jsonl") if read_first_object(file).keys() >= set(REQUIRED)]
    if not files:
        raise StudyError([f"{path.name}: no samples; run lm_eval with --log_samples, and choose its output folder"])
    runs = {}  # Results by folder and date.
    for file in find_files(path, ".json"):
        if match := RESULTS.match(file.name):
            runs[file.parent, match["date"]] = read_json(file)
    draft = StudyDraft(TOOL)
    hashes: dict[str, str] = {}
    samples: list[SamplesFile] = []
    notes: list[str] = []
    tasks_by_run: dict[tuple[Path, str], set[str]] = defaultdict(set)
    for file in files:
        match = SAMPLES.match(file.name)
        task, date = (match["task"], match["date"]) if match else (file.stem, "")
        run = runs.get((file.parent, date), {})
        draft.counts["without results"] += not run
        tasks_by_run[file.parent, date].add(task)
        with refuse_unreadable(file.name):
            condition = _build_condition(date or file.stem, file, run)
        draft.conditions.setdefault(condition.key, condition)
        filters = _add_items(file, task, draft, hashes)
        samples.append(SamplesFile(file, task, condition.key, read_time(run.get("date")), filters))
    for (folder, date), run in runs.items():
        names = (run.get("results") or {}).keys() - tasks_by_run[folder, date]
        if names:
            shown = ", ".join(sorted(map(str, names)))[:300]
            notes.append(f"{len(names)} tasks or groups have no samples, only means, which are not taken: {shown}.")
    return draft.build(
        ", ".join(sorted({one.task for one in samples}))[:200],
        partial(_read_trials, samples),
        ["Tokens, costs, times and failed calls are not in the samples: they stay unknown.", *notes],
        {
            "without results": "{} files of samples have no results of the same date: their settings are unknown.",
            "other prompt": "{} documents were asked with another text in another run: the item has the first one.",
            "ranked": "{} answers are the choice with the highest log-likelihood. The raw reply has them all.",
            "likelihoods": "{} answers are log-likelihoods of a given text: the models wrote nothing.",
            "repeated": "{} documents have several responses: each is a repetition. Scores are of the first.",
            "not numbers": "{} metrics are no numbers, such as pairs for a perplexity: they have no value.",
        },
    )


def _build_condition(date: str, file: Path, run: Row) -> StudyCondition:
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
    settings = {
        name: float(value) if name in ("temperature", "top_p") else int(value)
        for name, value in read_settings(shared).items()
    }
    system = run.get("system_instruction")
    turns = ({"role": "system", "content": str(system)},) if system else ()
    return StudyCondition(
        key=f"{model}, {date}",
        **split_model(model),
        prompt="lm-eval",
        messages=(*turns, *INPUT_TURN),
        sampler=name_sampler("lm-eval", settings),
        settings=settings,
    )


def _parse_arguments(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return dict(part.partition("=")[::2] for part in value.split(",") if part)
    return dict(value or {})


def _add_items(file: Path, task: str, draft: StudyDraft, hashes: dict[str, str]) -> tuple[str, ...]:
    """Add the documents of a file. Return its filters. Raise StudyError for rows that cannot be read."""
    filters: dict[str, None] = {}
    problems: list[str] = []
    for where, row in read_objects([file]):
        if missing := [name for name in REQUIRED if name not in row]:
            problems.append(f"{where}: {', '.join(missing)} missing")
            if len(problems) > MAX_PROBLEMS:
                break
            continue
        filters.setdefault(str(row.get("filter") or "none"))
        with refuse_unreadable(where):
            draft.counts["not numbers"] += sum(read_number(value) is None for value in _read_metrics(row).values())
            if len(filters) > 1:
                continue
            key, calls = f"{task}-{row['doc_id']}"[:200], _list_arguments(row)
            choices = tuple(str(call[1]).strip() for call in calls) if _is_ranking(row) else ()
            draft.counts["ranked"] += bool(choices)
            draft.counts["likelihoods"] += not choices and _has_likelihoods(row)
            draft.counts["repeated"] += not choices and len(row["resps"][0]) > 1
            text = calls[0][0] if isinstance(calls[0][0], str) else json.dumps(calls[0][0])
            target = row["target"]
            if choices and str(target).isdigit() and int(target) < len(choices):
                target = choices[int(target)]  # In a ranking, the right answer may be the place of a choice.
            item = StudyItem(
                key, input=text, target=target if isinstance(target, str) else json.dumps(target), category=task[:200],
                choices=choices,
                metadata={"task": task, "doc": replace_non_finite(row["doc"])},
            )  # fmt: skip
            digest = str(row.get("doc_hash") or json.dumps(row["doc"], sort_keys=True))
            if hashes.setdefault(key, digest) != digest:
                raise StudyError(
                    [f"{where}: document {row['doc_id']} of {task} has another content than in another run"]
                )
            draft.counts["other prompt"] += draft.items.setdefault(key, item).input != text
    if problems:
        raise StudyError(problems)
    return tuple(filters)


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


def _read_trials(files: Sequence[SamplesFile]) -> Iterator[StudyTrial]:
    for samples in files:
        others = KeyIndex()  # The offsets of the rows of the other filters, by document.
        if len(samples.filters) > 1:
            for _, offset, row in read_placed_objects(samples.path):
                if str(row.get("filter") or "none") != samples.filters[0]:
                    others.append_number((row["doc_id"],), offset)
        for where, row in read_objects([samples.path]):
            if str(row.get("filter") or "none") == samples.filters[0]:
                others_of_row = others.list_numbers((row["doc_id"],))
                rows = [row, *(read_objects_at(samples.path, others_of_row) if others_of_row else ())]
                with refuse_unreadable(where):
                    yield from _build_trials(where, samples, rows)


def _build_trials(where: str, samples: SamplesFile, rows: Sequence[Row]) -> Iterator[StudyTrial]:
    """Yield the responses to a document. rows: those of its filters."""
    row = rows[0]
    if _is_ranking(row):
        likelihoods = [float(one[0][0] if isinstance(one[0], list) else one[0]) for one in row["resps"]]
        choices = [str(call[1]).strip() for call in _list_arguments(row)]
        best = max(range(len(likelihoods)), key=likelihoods.__getitem__)
        answers = [(choices[best], json.dumps(dict(zip(choices, likelihoods, strict=False))))]
    elif _has_likelihoods(row):
        answers = [(json.dumps(one), json.dumps(one)) for one in row["resps"][0]]
    else:
        answers = [(str(one), str(one)) for one in row["resps"][0]]
    scores = []
    for one in rows:
        name = str(one.get("filter") or "none")
        for metric, value in _read_metrics(one).items():
            scorer = metric if len(samples.filters) == 1 else f"{metric}-{name}"
            raw = value if read_number(value) is None else one["filtered_resps"]
            scores.append(make_metric_score(scorer, value, json.dumps(raw)))
    for repetition, (answer, raw) in enumerate(answers):
        yield StudyTrial(
            where=where,
            condition=samples.condition,
            item=f"{samples.task}-{row['doc_id']}"[:200],
            sample_idx=repetition,
            is_done=True,
            answer=answer,
            raw_response=raw,
            completed_at=samples.started_at,
            scores=tuple(scores) if repetition == 0 else (),
        )


LM_EVAL = StudyFormat(
    name=TOOL,
    label="lm-evaluation-harness",
    recognises=is_lm_eval,
    read=read_lm_eval,
    content="the output folder of runs with --log_samples: results_*.json and samples_*.jsonl",
)
