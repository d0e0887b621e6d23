"""ReasonScape: results as NDJSON, one record per answer, in one file or in the folders of a results folder.

A record's item is its task, its parameters and its place in the task's stream; model, template and sampler are its
condition. What a record says of the point beyond that (its number in the run, `step`, `count`, unknown fields) is kept
in the detail of the grading, so that an export gives the record back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalsite.lib.text.hashing import slugify_name
from grading_app.study_import.study import (
    StudyCondition,
    StudyDesign,
    StudyError,
    StudyItem,
    StudyScore,
    dig,
    read_float,
)
from grading_app.study_import.study_draft import DesignFile, StudyDraft, StudyFormat
from grading_app.study_import.text_files import find_files, read_first_object, read_lines, read_yaml_files

SCORER = "final_answer"
Record = Mapping[str, Any]
TEXTS = (
    "task", "base_task", "key", "input", "target", "answer", "model", "template", "sampler",
)  # fmt: skip
KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(TEXTS, (str,)),
    "params": (dict,),
    "messages": (list,),
    "is_valid": (bool,),
    "is_correct": (bool,),
    "is_truncated": (bool,),
    "guess_chance": (int, float),
}
OPTIONAL: Mapping[str, tuple[type, ...]] = {
    "response_enum": (list,),
    "genresult": (dict,),
    "usage": (dict,),
    "timings": (dict,),
    "normalized_answer": (str,),
    "extracted_answer": (str,),
    "step": (int,),
    "version": (int,),
}
KNOWN = frozenset(KINDS) | frozenset(OPTIONAL)
NUMBER = re.compile(r"-([0-9]{1,9})\Z")
LONGEST_KEY = 200
SUFFIXES = (".ndjson", ".jsonl")
SPACE_KEYS = frozenset({"params", "manifold", "manifolds", "mode", "file"})  # Of a task in an experiment file.
SPACE = (
    "Generate its dataset first (Datasets, Generate dataset, or `dataset parametric FILE`). Then create an experiment "
    "over it, with the stopping rules of the dataset (`adaptive: dataset`)"
)
REQUIRED_TO_RECOGNISE = frozenset({"base_task", "params", "template", "sampler", "is_truncated"})


def read_reasonscape(files: Sequence[Path], draft: StudyDraft) -> None:
    """Add a trial for each record. A repeated case of a condition is its next repetition."""
    facts: dict[str, dict[str, Any]] = {}  # The metadata of the items.
    for record in draft.follow((where, record) for file in files for where, _, record in read_lines(file)):
        if problems := list(_find_problems(record)):
            draft.refuse(*problems)
            continue
        item = _add_item(record, draft, facts)
        draft.add_trial(
            draft.add_condition(_build_condition(record)),
            item,
            is_done=True,
            answer=record["answer"],
            finish_reason=str(dig(record, "timings.finish_reason") or ("length" if record["is_truncated"] else ""))[
                :40
            ],
            is_truncated=record["is_truncated"],
            input_tokens=_read_count(dig(record, "usage.prompt_tokens")),
            output_tokens=_read_count(dig(record, "usage.completion_tokens")),
            scores=(_build_score(record),),
        )
    if not draft.items and not draft.has_problems:
        raise StudyError([f"{draft.path.name}: no record"])
    draft.recipe = {"parametric": True}
    draft.notes += [
        f"{file.name} is not taken: the records have their points. To generate its tasks here, use it for a dataset."
        for file, content in read_yaml_files(draft.path)
        if is_space(content)
    ]


def is_space(content: Mapping[str, Any]) -> bool:
    """Return whether a YAML file is an experiment of ReasonScape. It has tasks, but no models."""
    tasks = content.get("tasks")
    return isinstance(tasks, list) and any(isinstance(task, dict) and SPACE_KEYS & task.keys() for task in tasks)


def refuse_space(design: DesignFile) -> StudyDesign:
    """Raise StudyError for an experiment file of the tool: it is a dataset here, not a design."""
    raise StudyError([f"{design.file.name}: an experiment of ReasonScape has tasks, but no models. {SPACE}"])


def _find_problems(record: Any) -> Iterator[str]:
    if not isinstance(record, dict):
        yield "not a JSON object"
        return
    for name, kinds in KINDS.items():
        if name not in record:
            yield f"{name} is missing"
        elif not _has_kind(record[name], kinds):
            yield f"{name} must be {_describe_kinds(kinds)}, not {json.dumps(record[name])[:60]}"
    for name, kinds in OPTIONAL.items():
        if record.get(name) is not None and not _has_kind(record[name], kinds):
            yield f"{name} must be {_describe_kinds(kinds)}, not {json.dumps(record[name])[:60]}"
    if isinstance(record.get("key"), str) and not NUMBER.search(record["key"]):
        yield f"key must end with the number of the case, not {record['key'][:60]!r}"
    if record.get("input") == "":
        yield "input must not be empty"
    turns = record.get("messages")
    for place, turn in enumerate(turns if isinstance(turns, list) else []):
        if not (isinstance(turn, dict) and all(isinstance(turn.get(part), str) for part in ("role", "content"))):
            yield f"messages[{place}] must have a role and a content"


def _has_kind(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _describe_kinds(kinds: tuple[type, ...]) -> str:
    names = {str: "a text", dict: "an object", list: "a list", bool: "true or false", int: "a number"}
    return names[kinds[0]]


# --- items and conditions ---------------------------------------------------------------------------------------------


def _add_item(record: Record, draft: StudyDraft, facts: dict[str, dict[str, Any]]) -> str:
    """Add the item of a record, and the texts of its messages around the input. Return its key.

    The key is that of generated datasets. A long one ends with its hash.
    """
    params = {name: value for name, value in record["params"].items() if name != "count"}
    match = NUMBER.search(record["key"])
    number = int(match[1]) if match else 0
    point = "_".join([record["base_task"], *(f"{name}-{params[name]}" for name in sorted(params))])
    key = f"{point}-{number}"
    if len(key) > LONGEST_KEY:
        key = f"{key[: LONGEST_KEY - 17]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    metadata = {
        "task": record["base_task"],
        "point": point,
        "params": params,
        "number": number,
        "guess_chance": read_float(record["guess_chance"]),
        "genresult": record.get("genresult") or {},
    }
    item = draft.add_item(
        StudyItem(
            key=key,
            input=record["input"],
            target=record["target"],
            category=record["base_task"][:200],
            choices=tuple(map(str, record.get("response_enum") or ())),
            metadata=facts.setdefault(key, metadata),
        )
    )
    if (item.input, item.target) != (record["input"], record["target"]):
        draft.refuse(f"{key} has another input or target than in an earlier record; another seed?")
        return key
    # The prompt refers to the texts of the messages around the input by these names.
    stem = re.sub(r"\W", "_", record["template"])
    for place, turn in enumerate(record["messages"]):
        before, separator, after = turn["content"].rpartition(record["input"])
        facts[key].setdefault(f"{stem}_{place}", before if separator else turn["content"])
        if separator:
            facts[key].setdefault(f"{stem}_{place}_end", after)
    return key


def _build_condition(record: Record) -> StudyCondition:
    stem, turns = re.sub(r"\W", "_", record["template"]), []
    for place, turn in enumerate(record["messages"]):
        around = f"{{{{meta.{stem}_{place}}}}}"
        has_input = record["input"] in turn["content"]
        content = f"{around}{{{{input}}}}{{{{meta.{stem}_{place}_end}}}}" if has_input else around
        turns.append({"role": turn["role"], "content": content})
    return StudyCondition(
        key=json.dumps([record["model"], slugify_name(record["template"]), slugify_name(record["sampler"])]),
        model=record["model"].rpartition("/")[2],
        model_id=record["model"],
        prompt=record["template"],
        messages=tuple(turns),
        sampler=record["sampler"],
    )


def _build_score(record: Record) -> StudyScore:
    """Return the record's own verdict. A truncated answer has no score."""
    detail = {
        "extracted": record.get("extracted_answer"),
        "normalised": record.get("normalized_answer") or "",
        "valid": record["is_valid"],
        "correct": record["is_correct"],
        "truncated": record["is_truncated"],
        "record": {
            **{name: record.get(name) for name in ("task", "key", "step", "version", "template", "sampler")},
            "count": record["params"].get("count"),
            "prompt_tokens_details": dig(record, "usage.prompt_tokens_details"),
            "termination_reason": dig(record, "timings.termination_reason"),
            "others": {name: value for name, value in record.items() if name not in KNOWN},
        },
    }
    return StudyScore(
        scorer=SCORER,
        value=None if record["is_truncated"] else float(record["is_correct"]),
        raw=str(record.get("extracted_answer") or "")[:2000],
        error="truncated" if record["is_truncated"] else "",
        detail=detail,
    )


def _read_count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


REASONSCAPE = StudyFormat(
    name="reasonscape",
    label="ReasonScape",
    content="a file of records, or a results folder",
    suffixes=SUFFIXES,
    is_at=lambda path: any(
        read_first_object(file).keys() >= REQUIRED_TO_RECOGNISE for file in find_files(path, *SUFFIXES)
    ),
    find=lambda path: find_files(path, *SUFFIXES),
    missing="no file of records (.ndjson or .jsonl)",
    read=read_reasonscape,
    is_design=is_space,
    read_design=refuse_space,
    notes=("Seed, degree, density, costs, times and failed calls are not in the records: they stay unknown.",),
)
