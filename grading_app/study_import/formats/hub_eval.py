"""The Hub's `eval.yaml`: a benchmark in a dataset repository, as the design of an experiment with its items.

The rows of the task's split are items, if their files (JSON lines or Parquet) are in the folder. Its solvers become a
prompt, and its scorer one of this site.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalsite.lib.text.hashing import slugify_name
from grading_app.publish.export.row_shapes import Shape
from grading_app.study_import.stored_tables import read_parquet_files
from grading_app.study_import.study import Object, StudyDesign, StudyError, StudyItem, check_shape, replace_non_finite
from grading_app.study_import.study_draft import DesignFile, StudyFormat
from grading_app.study_import.text_files import find_files, read_objects

# Scorers of the format with a rule that a scorer of this site has.
SCORERS = {"choice": "multiple_choice", "exact": "exact_match", "math": "numeric"}
SOLVERS = {"system_message", "prompt_template", "multiple_choice", "generate"}
CHOICE_PROMPT = "Answer the question with the letter of the right choice alone.\n\n{{input}}\n\n{{choices}}"
TASK_KEYS = {"id", "config", "split", "field_spec", "epochs", "solvers", "scorers"}
Row = Mapping[str, Any]


class FieldSpec(Shape):
    """The columns of the rows, by the field of an item."""

    input: str
    choices: list[str] | str | None = None


class TaskStep(Shape):
    """A solver or a scorer."""

    args: Object | None = None


class BenchmarkTask(Shape):
    field_spec: FieldSpec
    epochs: int | None = None
    solvers: list[TaskStep] | None = None
    scorers: list[TaskStep] | None = None


def is_benchmark(content: Row) -> bool:
    tasks = content.get("tasks")
    return (
        isinstance(tasks, list) and bool(tasks) and all(isinstance(one, dict) and "field_spec" in one for one in tasks)
    )


def read_benchmark(design: DesignFile) -> StudyDesign:
    """Return the design of the first task of a benchmark file."""
    content, tasks, notes = design.content, design.content["tasks"], []
    task = tasks[0]
    check_shape(task, BenchmarkTask)
    title = str(content.get("name") or task.get("id") or design.file.parent.name or "benchmark")
    files = _find_split_files(design.root, str(task.get("config") or "default"), str(task.get("split") or "test"))
    items = [
        _build_item(where, number, row, task["field_spec"]) for number, (where, row) in enumerate(_read_rows(files))
    ]
    if items:
        notes.append(f"{len(items)} rows of {', '.join(part.name for part in files)[:200]} are the items.")
    else:
        pairs = task["field_spec"].items()
        fields = "; ".join(f"{name} from {column}" for name, column in pairs if isinstance(column, str))
        notes.append(
            f"The rows of the split {task.get('split') or 'test'} are not in the folder: import the dataset first, "
            f"with the mapping of field_spec, and name it. {fields[:300]}."
        )
    if len(tasks) > 1:
        others = ", ".join(str(other.get("id")) for other in tasks[1:])
        notes.append(f"{len(tasks) - 1} other tasks are not taken: {others[:300]}.")
    system, user = "", "{{input}}"
    for solver in task.get("solvers") or ():
        name, arguments = str(solver.get("name")), solver.get("args") or {}
        template = str(arguments.get("template") or "")
        if name == "system_message":
            system = template
        elif name == "prompt_template":
            user = template.replace("{prompt}", "{{input}}")
        elif name == "multiple_choice":
            user = template.replace("{question}", "{{input}}").replace("{choices}", "{{choices}}") or CHOICE_PROMPT
        if name not in SOLVERS:
            notes.append(f"The solver {name} is not taken.")
    turns = [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": user}]
    scorers = [str(scorer.get("name")) for scorer in task.get("scorers") or ()]
    if unknown := [name for name in scorers if name not in SCORERS]:
        notes.append(f"Scorers are not taken, choose one here or a judge: {', '.join(unknown)[:300]}.")
    if keys := sorted(str(key) for key in task.keys() - TASK_KEYS):
        notes.append(f"These keys of the task are not taken: {', '.join(keys)[:300]}.")
    content_of_design = {
        "description": str(content.get("description") or ""),
        "prompts": [{"name": f"hub-{slugify_name(str(task.get('id') or title))}"[:70], "messages": turns}],
        "samples": task.get("epochs") or 1,
        "grade": {"scorers": [SCORERS[name] for name in scorers if name in SCORERS]},
    }
    return design.build("the Hub (eval.yaml)", title, content_of_design, notes, items)


def _find_split_files(root: Path, config: str, split: str) -> list[Path]:
    """Return the files of a split, as dataset repositories name them. Those of the config are preferred."""

    def has_part(file: Path, name: str) -> bool:
        where = file.relative_to(root).as_posix()
        return re.search(rf"(^|[^a-z0-9]){re.escape(name)}([^a-z0-9]|$)", where, re.IGNORECASE) is not None

    files = [file for file in find_files(root, ".jsonl", ".parquet") if has_part(file, split)]
    return [file for file in files if has_part(file, config)] or files


def _read_rows(files: list[Path]) -> Iterator[tuple[str, Row]]:
    yield from read_objects(file for file in files if file.suffix == ".jsonl")
    parquet = {f"part{number}": file for number, file in enumerate(files) if file.suffix == ".parquet"}
    tables = read_parquet_files(parquet) if parquet else None
    for table in parquet:
        if tables is not None:
            yield from tables.rows(table)


def _build_item(where: str, number: int, row: Row, fields: Row) -> StudyItem:
    """Return the item of a row. A target of a choice is its number, which becomes a letter, or `literal:TEXT`."""
    named = fields.get("choices")
    choice_columns = named if isinstance(named, list) else [named] if named else []
    columns = [column for column in (fields["input"], fields.get("target")) if isinstance(column, str)]
    read = [fields["input"], *(name for name in columns[1:] if not name.startswith("literal:")), *choice_columns]
    if missing := [name for name in read if name not in row]:
        raise StudyError([f"{where}: {', '.join(missing)} missing"])
    choices: Any = [row[name] for name in choice_columns] if isinstance(named, list) else row[named] if named else []
    if not isinstance(choices, list):
        raise StudyError([f"{where}: {named} is not a list of choices"])
    target = str(fields.get("target") or "")
    value = target.removeprefix("literal:") if target.startswith("literal:") else row.get(target)
    if isinstance(value, int) and choices and 0 <= value < len(choices):
        value = string.ascii_uppercase[value]
    used = {*columns, *choice_columns}
    key = row.get(str(fields.get("id") or "id"))
    return StudyItem(
        key=str(key if key is not None else f"row-{number + 1:05}")[:200],
        input=str(row[fields["input"]]),
        target="" if value is None else "\n".join(map(str, value)) if isinstance(value, list) else str(value),
        choices=tuple(map(str, choices)),
        metadata=replace_non_finite({name: part for name, part in row.items() if name not in used}),
    )


HUB_EVAL = StudyFormat(
    name="hub-eval",
    label="Benchmark of the Hub (eval.yaml)",
    content="the file eval.yaml, or a folder with it and the files of its split: a draft with its dataset",
    missing="a benchmark file has no results; choose the folder with eval.yaml and its data",
    is_design=is_benchmark,
    read_design=read_benchmark,
)
