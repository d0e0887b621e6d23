"""Label Studio: the JSON export of tasks with annotations and predictions.

A task is an item. If a task has an answer of a model (in its data, or as predictions), people's annotations are scores
of it. Else each person is a condition, whose annotations are answers, and the means of ratings are norms of the items.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from grading_app.study_import.study import (
    INPUT_TURN,
    HumanNorm,
    Study,
    StudyCondition,
    StudyDraft,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyScore,
    StudyTrial,
    describe_kinds,
    read_time,
    refuse_unreadable,
    replace_non_finite,
)
from grading_app.study_import.text_files import find_files, read_json_list

TOOL = "label-studio"
ANSWERS = ("response", "answer", "output", "completion", "model_output", "generated_text")  # Fields of a task's data.
MODELS = ("model", "model_name", "model_id", "model_version")
INPUTS = ("prompt", "question", "input", "instruction", "query", "text")
TARGETS = ("target", "ideal", "reference", "expected", "gold")
TAKEN = ("rating", "number", "choices", "textarea", "taxonomy", "pairwise", "labels")
Row = Mapping[str, Any]


@dataclass
class ExportDraft(StudyDraft):
    """The study of an export. regions: results that are not taken, by type."""

    regions: Counter[str] = field(default_factory=Counter)


def _find_exports(path: Path) -> list[Path]:
    found = []
    for file in find_files(path, ".json"):
        with file.open("rb") as start:
            head = start.read(200_000)
        if head.lstrip()[:1] == b"[" and b'"data"' in head and (b'"annotations"' in head or b'"predictions"' in head):
            found.append(file)
    return found


def read_label_studio(path: Path) -> Study:
    """Return the study of an export, or of all in a folder. Raise StudyError, which names file and task."""
    files = _find_exports(path)
    if not files:
        raise StudyError([f"{path.name}: no JSON export of tasks with annotations"])
    draft = ExportDraft(TOOL)
    for file in files:
        for where, task in _list_tasks(file):
            with refuse_unreadable(where):
                draft.items[_build_key(task)] = _build_item(task, draft)
                for trial in _build_trials(where, task, draft):
                    draft.counts["scores"] += len(trial.scores)
                    name = trial.condition
                    model = name.rpartition("/")[2]
                    provider = "person" if name.startswith("rater-") else name.rpartition("/")[0]
                    condition = StudyCondition(
                        key=name,
                        model=model,
                        model_id=name,
                        provider=provider,
                        prompt="label-studio-task",
                        messages=INPUT_TURN,
                        sampler="label-studio-default",
                    )
                    draft.conditions.setdefault(trial.condition, condition)
    if not draft.conditions:
        raise StudyError([f"{path.name}: no annotation or prediction that can be imported"])
    regions = describe_kinds(draft.regions)
    return draft.build(
        path.stem if path.is_file() else path.name,
        partial(_read_trials, files),
        [
            "People are named by their number in the export; names and addresses are not taken.",
            "Costs and tokens are not in the export: they stay unknown.",
            *([f"Regions and other results are not taken: {regions}."] if regions else []),
        ],
        {
            "scores": "{} results of annotations are scores of an answer, one scorer for each question and person.",
            "people": "{} annotations are answers of people: each person is a condition. Means are norms.",
            "cancelled": "{} annotations were skipped in the tool: they are left out.",
            "drafts": "{} drafts are not taken.",
            "unmatched": "{} annotations are of tasks with several answers, and do not say of which: left out.",
            "repeated": "{} results repeat a question that a person answered before: the first counts.",
            "labels": "{} labels have no number: the label is in the detail of the score.",
            "media": "{} tasks refer to images or other files, which are not in the export.",
        },
    )


def _list_tasks(file: Path) -> Iterator[tuple[str, Row]]:
    for number, task in enumerate(read_json_list(file), start=1):
        where = f"{file.name}, task {number}"
        if not isinstance(task.get("data"), dict):
            raise StudyError([f"{where}: data is missing"])
        yield where, task


def _build_key(task: Row) -> str:
    return str(task["data"].get("key") or f"task-{task.get('id') or task['data'].get('id')}")[:200]


def _find_text(data: Row, names: Sequence[str]) -> str:
    return next((str(data[name]) for name in names if isinstance(data.get(name), str | int | float)), "")


def _build_item(task: Row, draft: ExportDraft) -> StudyItem:
    """Return the item of a task. Norms are means of the ratings and numbers that people gave."""
    data = task["data"]
    texts = [str(value) for value in data.values() if isinstance(value, str)]
    draft.counts["media"] += any(text.startswith(("http://", "https://", "/data/", "s3://", "gs://")) for text in texts)
    values: dict[str, list[float]] = defaultdict(list)
    right = ""
    for annotation in _list_annotations(task):
        for result in annotation.get("result") or ():
            number, text = _read_result(result)
            if number is not None:
                values[str(result["from_name"])].append(number)
            if annotation.get("ground_truth"):
                right = right or text
    norms = tuple(
        HumanNorm(
            name[:80], statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None, len(numbers)
        )
        for name, numbers in values.items()
        if not _has_answers(task)
    )
    return StudyItem(
        key=_build_key(task),
        input=_find_text(data, INPUTS) or "\n\n".join(texts),
        target=_find_text(data, TARGETS) or right,
        category=str(data.get("category") or "")[:200],
        metadata=replace_non_finite(dict(data)),
        norms=norms,
    )


def _has_answers(task: Row) -> bool:
    return bool(task.get("predictions")) or any(task["data"].get(name) for name in ANSWERS)


def _list_annotations(task: Row) -> list[Row]:
    annotations = task.get("annotations") or task.get("completions") or []
    return [one for one in annotations if isinstance(one, dict) and not one.get("was_cancelled")]


def _name_person(annotation: Row) -> str:
    person = annotation.get("completed_by")
    number = person.get("id") if isinstance(person, dict) else person
    return f"rater-{number if isinstance(number, int) else 'unknown'}"


def _read_result(result: Row) -> tuple[float | None, str]:
    """Return a result as a number, if it is one, and as text."""
    kind, value = str(result.get("type")), result.get("value") or {}
    part = value.get("text") if kind == "textarea" else value.get("selected") if kind == "pairwise" else value.get(kind)
    if kind not in TAKEN or part is None:
        return None, ""
    if isinstance(part, int | float) and not isinstance(part, bool) and math.isfinite(part):
        return float(part), f"{part:g}"
    flat = (
        [" / ".join(map(str, one)) if isinstance(one, list) else str(one) for one in part]
        if isinstance(part, list)
        else [str(part)]
    )
    return None, "\n".join(flat)


def _read_trials(files: Sequence[Path]) -> Iterator[StudyTrial]:
    draft = ExportDraft(TOOL)
    for file in files:
        for where, task in _list_tasks(file):
            with refuse_unreadable(where):
                trials = list(_build_trials(where, task, draft))
            yield from trials


def _build_trials(where: str, task: Row, draft: ExportDraft) -> Iterator[StudyTrial]:
    """Yield the answers of models with people's scores, or the annotations as answers of people."""
    key, data, annotations = _build_key(task), task["data"], _list_annotations(task)
    every = task.get("annotations") or []
    draft.counts["cancelled"] += sum(bool(one.get("was_cancelled")) for one in every)
    draft.counts["drafts"] += len(task.get("drafts") or ())
    if not _has_answers(task):
        times: Counter[str] = Counter()
        for annotation in annotations:
            texts = [text for result in annotation.get("result") or () if (text := _take(result, draft))]
            person, lead = _name_person(annotation), annotation.get("lead_time")
            draft.counts["people"] += 1
            yield StudyTrial(
                where=where, condition=person, item=key, sample_idx=times[person], is_done=True,
                answer="\n".join(texts),
                latency_ms=None if lead is None else min(round(1000 * lead), 2**31 - 1),
                completed_at=read_time(annotation.get("updated_at") or annotation.get("created_at")),
            )  # fmt: skip
            times[person] += 1
        return
    answers: list[tuple[Any, str, str]] = []  # The prediction's key, the model, the answer.
    if own := _find_text(data, ANSWERS):
        answers.append((None, _find_text(data, MODELS) or "unknown", own))
    for prediction in task.get("predictions") or ():
        texts = [text for result in prediction.get("result") or () if (text := _take(result, draft))]
        answers.append((prediction.get("id"), str(prediction.get("model_version") or "unknown"), "\n".join(texts)))
    scores: dict[int, list[StudyScore]] = defaultdict(list)
    for annotation in annotations:
        parent = annotation.get("parent_prediction")
        parents = [
            place for place, (prediction, _, _) in enumerate(answers) if parent is not None and prediction == parent
        ]
        places = parents or ([0] if own or len(answers) == 1 else [])
        draft.counts["unmatched"] += not places
        for place in places[:1]:
            scores[place] += _build_scores(annotation, draft)
    numbers: Counter[str] = Counter()
    for place, (_, model, text) in enumerate(answers):
        distinct: dict[str, StudyScore] = {}
        for score in scores[place]:
            draft.counts["repeated"] += distinct.setdefault(score.scorer, score) is not score
        yield StudyTrial(
            where=where, condition=model, item=key, sample_idx=numbers[model], is_done=True, answer=text,
            completed_at=read_time(task.get("created_at")), scores=tuple(distinct.values()),
        )  # fmt: skip
        numbers[model] += 1


def _take(result: Row, draft: ExportDraft) -> str:
    """Return a result as text, or count it as not taken."""
    text = _read_result(result)[1]
    if not text:
        draft.regions[str(result.get("type"))] += 1
    return text


def _build_scores(annotation: Row, draft: ExportDraft) -> Iterator[StudyScore]:
    person = _name_person(annotation)
    for result in annotation.get("result") or ():
        number, text = _read_result(result)
        if not text:
            draft.regions[str(result.get("type"))] += 1
            continue
        draft.counts["labels"] += number is None
        yield StudyScore(
            scorer=f"{result['from_name']}-{person}",
            value=number,
            raw=text[:2000],
            error="" if number is not None else "label",
            detail=None if number is not None else {"label": text[:200]},
        )


LABEL_STUDIO = StudyFormat(
    name=TOOL,
    label="Label Studio",
    recognises=lambda path: bool(_find_exports(path)),
    read=read_label_studio,
    content="the JSON export of a project (not JSON-MIN), or a folder of exports",
    suffixes=(".json",),
)
