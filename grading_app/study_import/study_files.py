"""A study as files: `study.json`, `trials.jsonl` with a line for each trial, and its images."""

from __future__ import annotations

import json
import os
import shutil
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from datasets_app.importing.reader_output import load_image
from datasets_app.importing.records import BufferedImage, ScratchFolder
from grading_app.study_import.study import Study, StudyTrial

T = TypeVar("T")
Convert = Callable[[Any], Any]
STUDY_FILE, TRIALS = "study.json", "trials.jsonl"
LIVE = ("trials", "scratch")  # Fields of a study that are no values.


@dataclass(frozen=True)
class StoredTrials:
    """The trials of a study in a file, a line each. scratch: the folder that has the file as long as it is held."""

    file: Path
    scratch: ScratchFolder | None = None

    def __call__(self) -> Iterator[StudyTrial]:
        with self.file.open(encoding="utf-8") as lines:
            for line in lines:
                yield _build_record(StudyTrial, json.loads(line))


def link_or_copy(file: Path, target: Path) -> None:
    """Give the file a second name, or copy it to another file system. A reader refuses symbolic links."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def format_trial(trial: StudyTrial) -> str:
    """Return the line of a trial."""
    return ENCODER.encode(trial) + "\n"


def write_study_files(study: Study, folder: Path) -> None:
    """Write the study into the folder."""
    content = {field.name: getattr(study, field.name) for field in fields(Study) if field.name not in LIVE}
    (folder / STUDY_FILE).write_text(json.dumps(content, default=encode_value), encoding="utf-8")
    for image in {item.image.sha256: item.image for item in study.items if item.image}.values():
        shutil.copyfile(image.path, folder / f"{image.sha256}.{image.format}")
    if isinstance(study.trials, StoredTrials):
        link_or_copy(study.trials.file, folder / TRIALS)
        return
    with (folder / TRIALS).open("w", encoding="utf-8") as out:
        out.writelines(map(format_trial, study.trials()))


def load_study_files(folder: Path) -> Study:
    """Return the study in the folder. Its trials are read one by one."""
    content = json.loads((folder / STUDY_FILE).read_text(encoding="utf-8"))
    study = _build_record(Study, {**content, "trials": StoredTrials(folder / TRIALS)})
    checked: dict[str, BufferedImage] = {}
    for image in (item.image for item in study.items if item.image):
        if image.sha256 not in checked:
            facts = (image.sha256, image.format, image.width, image.height, image.size, image.original_name)
            checked[image.sha256] = load_image(folder, *facts)
    items = [replace(item, image=checked[item.image.sha256]) if item.image else item for item in study.items]
    return replace(study, items=items)


def encode_value(value: Any) -> Any:
    """Return a value that JSON does not know as one that it knows. Decimals, times and paths become text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    return dict(value) if isinstance(value, Mapping) else str(value)


ENCODER = json.JSONEncoder(default=encode_value)


def _build_record(kind: type[T], content: Mapping[str, Any]) -> T:
    values = dict(content)
    for name, convert in _list_converters(kind).items():  # type: ignore[arg-type]
        if values.get(name) is not None:
            values[name] = convert(values[name])
    return kind(**values)


@cache
def _list_converters(kind: type) -> dict[str, Convert]:
    """Return a function for each field of a record whose values are not those of JSON."""
    converters = {name: _find_converter(hint) for name, hint in get_type_hints(kind).items()}
    return {name: convert for name, convert in converters.items() if convert is not None}


def _find_converter(hint: Any) -> Convert | None:
    """Return the function from a JSON value to one of this type, None if JSON has the type."""
    parts = [part for part in get_args(hint) if part not in (type(None), Ellipsis)]
    if get_origin(hint) in (Union, types.UnionType):
        return _find_converter(parts[0])
    if hint is Decimal or hint is Path:
        return Decimal if hint is Decimal else Path
    if hint is datetime:
        return datetime.fromisoformat
    if is_dataclass(hint) and isinstance(hint, type):
        return partial(_build_record, hint)
    inner = _find_converter(parts[-1]) if get_origin(hint) in (tuple, Sequence, Mapping) else None
    if get_origin(hint) is tuple:
        return tuple if inner is None else lambda values: tuple([inner(value) for value in values])
    if inner is None:
        return None
    if get_origin(hint) is Mapping:
        return lambda values: {name: inner(value) for name, value in values.items()}
    return lambda values: list(map(inner, values))
