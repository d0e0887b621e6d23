"""Label Studio: the JSON export of tasks with annotations and predictions.

A task is an item. If a task has an answer of a model (in its data, or as predictions), people's annotations are scores
of it. Else each person is a condition, whose annotations are answers, and the means of ratings are norms of the items.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grading_app.publish.export.row_shapes import Shape
from grading_app.study_import.study import (
    ContentError,
    Finite,
    HumanNorm,
    Object,
    StudyError,
    StudyItem,
    StudyScore,
    build_condition,
    check_shape,
    describe_kinds,
    read_number,
    read_time,
    replace_non_finite,
)
from grading_app.study_import.study_draft import StudyDraft, StudyFormat
from grading_app.study_import.text_files import find_files, read_json_list

ANSWERS = ("response", "answer", "output", "completion", "model_output", "generated_text")  # Fields of a task's data.
MODELS = ("model", "model_name", "model_id", "model_version")
INPUTS = ("prompt", "question", "input", "instruction", "query", "text")
TARGETS = ("target", "ideal", "reference", "expected", "gold")
LARGEST = 1e100  # Beyond it, the mean of several numbers may be infinite.
TAKEN = ("rating", "number", "choices", "textarea", "taxonomy", "pairwise", "labels")
Row = Mapping[str, Any]


class TaskResult(Shape):
    """The answer to one question of a task."""

    value: Object | None = None


class TaskAnnotation(Shape):
    result: list[TaskResult] | None = None
    lead_time: Finite | None = None


class ExportedTask(Shape):
    data: Object
    annotations: list[TaskAnnotation] | None = None
    completions: list[TaskAnnotation] | None = None
    predictions: list[TaskAnnotation] | None = None
    drafts: list[Any] | None = None


def _find_exports(path: Path) -> list[Path]:
    found = []
    for file in find_files(path, ".json"):
        with file.open("rb") as start:
            head = start.read(200_000)
        if head.lstrip()[:1] == b"[" and b'"data"' in head and (b'"annotations"' in head or b'"predictions"' in head):
            found.append(file)
    return found


def read_label_studio(files: Sequence[Path], draft: StudyDraft) -> None:
    """Add the tasks of all exports, with the answers of models or of people."""
    regions: Counter[str] = Counter()  # Results that are not taken, by type.
    for file in files:
        tasks = enumerate(read_json_list(file), start=1)
        for task in draft.follow((f"{file.name}, task {number}", task) for number, task in tasks):
            if not isinstance(task.get("data"), dict):
                raise StudyError([f"{draft.where}: data is missing"])
            check_shape(task, ExportedTask)
            item = _build_item(task, draft)
            draft.items[item.key] = item
            every = task.get("annotations") or []
            draft.count("cancelled", sum(bool(one.get("was_cancelled")) for one in every))
            draft.count("drafts", len(task.get("drafts") or ()))
            if _has_answers(task):
                _add_answers(task, item.key, draft, regions)
            else:
                _add_people(task, item.key, draft, regions)
    if not draft.conditions:
        raise StudyError([f"{draft.path.name}: no annotation or prediction that can be imported"])
    if regions:
        draft.notes.append(f"Regions and other results are not taken: {describe_kinds(regions)}.")


def _find_text(data: Row, names: Sequence[str]) -> str:
    return next((str(data[name]) for name in names if isinstance(data.get(name), str | int | float)), "")


def _build_item(task: Row, draft: StudyDraft) -> StudyItem:
    """Return the item of a task. Norms are means of the ratings and numbers that people gave."""
    data = task["data"]
    texts = [str(value) for value in data.values() if isinstance(value, str)]
    draft.count("media", any(text.startswith(("http://", "https://", "/data/", "s3://", "gs://")) for text in texts))
    values: dict[str, list[float]] = defaultdict(list)
    right = ""
    for annotation in _list_annotations(task):
        for result in annotation.get("result") or ():
            number, text = _read_result(result)
            if number is not None:
                values[_name_question(result)].append(number)
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
        key=str(data.get("key") or f"task-{task.get('id') or data.get('id')}")[:200],
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
    return [one for one in annotations if not one.get("was_cancelled")]


def _name_person(annotation: Row) -> str:
    person = annotation.get("completed_by")
    number = person.get("id") if isinstance(person, dict) else person
    return f"rater-{number if isinstance(number, int) else 'unknown'}"


def _name_question(result: Row) -> str:
    if result.get("from_name") is None:
        raise ContentError("from_name of a result is missing")
    return str(result["from_name"])


def _read_result(result: Row) -> tuple[float | None, str]:
    """Return a result as a number, if it is one, and as text."""
    kind, value = str(result.get("type")), result.get("value") or {}
    part = value.get("text") if kind == "textarea" else value.get("selected") if kind == "pairwise" else value.get(kind)
    if kind not in TAKEN or part is None:
        return None, ""
    number = None if isinstance(part, bool) else read_number(part)
    if number is not None:
        if abs(number) > LARGEST:
            raise ContentError(f"{number:g} is too large a number")
        return number, f"{number:g}"
    flat = (
        [" / ".join(map(str, one)) if isinstance(one, list) else str(one) for one in part]
        if isinstance(part, list)
        else [str(part)]
    )
    return None, "\n".join(flat)


def _add_people(task: Row, item: str, draft: StudyDraft, regions: Counter[str]) -> None:
    """Add the annotations of a task as answers of people."""
    for annotation in _list_annotations(task):
        texts = [text for result in annotation.get("result") or () if (text := _take(result, regions))]
        lead = annotation.get("lead_time")
        draft.count("people")
        draft.add_trial(
            _add_condition(_name_person(annotation), draft),
            item,
            is_done=True,
            answer="\n".join(texts),
            latency_ms=None if lead is None else min(round(1000 * lead), 2**31 - 1),
            completed_at=read_time(annotation.get("updated_at") or annotation.get("created_at")),
        )


def _add_answers(task: Row, item: str, draft: StudyDraft, regions: Counter[str]) -> None:
    """Add the answers of models to a task, with people's annotations as their scores."""
    answers: list[tuple[Any, str, str]] = []  # The prediction's key, the model, the answer.
    if own := _find_text(task["data"], ANSWERS):
        answers.append((None, _find_text(task["data"], MODELS) or "unknown", own))
    for prediction in task.get("predictions") or ():
        texts = [text for result in prediction.get("result") or () if (text := _take(result, regions))]
        answers.append((prediction.get("id"), str(prediction.get("model_version") or "unknown"), "\n".join(texts)))
    scores: dict[int, dict[str, StudyScore]] = defaultdict(dict)
    for annotation in _list_annotations(task):
        parent = annotation.get("parent_prediction")
        parents = [place for place, (key, _, _) in enumerate(answers) if parent is not None and key == parent]
        places = parents or ([0] if own or len(answers) == 1 else [])
        draft.count("unmatched", not places)
        for result in annotation.get("result") or () if places else ():
            number, text = _read_result(result)
            if not text:
                regions[str(result.get("type"))] += 1
                continue
            score = StudyScore(
                scorer=f"{_name_question(result)}-{_name_person(annotation)}",
                value=number,
                raw=text[:2000],
                error="" if number is not None else "label",
                detail=None if number is not None else {"label": text[:200]},
            )
            draft.count("labels", number is None)
            draft.count("repeated", scores[places[0]].setdefault(score.scorer, score) is not score)
    for place, (_, model, text) in enumerate(answers):
        draft.count("scores", len(scores[place]))
        draft.add_trial(
            _add_condition(model, draft),
            item,
            is_done=True,
            answer=text,
            completed_at=read_time(task.get("created_at")),
            scores=tuple(scores[place].values()),
        )


def _add_condition(name: str, draft: StudyDraft) -> str:
    """Add the condition of a model or of a person."""
    provider = "person" if name.startswith("rater-") else name.rpartition("/")[0]
    return draft.add_condition(build_condition("label-studio", name, name, "label-studio-task", provider=provider))


def _take(result: Row, regions: Counter[str]) -> str:
    """Return a result as text, or count it as not taken."""
    text = _read_result(result)[1]
    if not text:
        regions[str(result.get("type"))] += 1
    return text


LABEL_STUDIO = StudyFormat(
    name="label-studio",
    label="Label Studio",
    content="the JSON export of a project (not JSON-MIN), or a folder of exports",
    suffixes=(".json",),
    find=_find_exports,
    missing="no JSON export of tasks with annotations",
    read=read_label_studio,
    notes=(
        "People are named by their number in the export; names and addresses are not taken.",
        "Costs and tokens are not in the export: they stay unknown.",
    ),
    count_notes={
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
