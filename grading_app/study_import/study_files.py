"""A study in a folder: `study.json`, `trials.jsonl` with a line for each trial, and its images."""

from __future__ import annotations

import json
import os
import shutil
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from datasets_app.importing.reader_output import load_image
from datasets_app.importing.records import BufferedImage, ScratchFolder
from grading_app.study_import.study import (
    StudyCondition,
    StudyDimension,
    StudyItem,
    StudyJudge,
    StudyTrial,
    StudyWave,
)

T = TypeVar("T")
Convert = Callable[[Any], Any]
STUDY_FILE, TRIALS = "study.json", "trials.jsonl"
FOLDERS = ("scratch", "folders")  # Fields of a study that are no values.


@dataclass
class Study:
    """A study. Its trials are in the folder `scratch`, so that a large one need not be held.

    items, conditions: by key. notes: what was not taken, why. recipe: facts about the dataset, as `Dataset.recipe` has
    them. source: of the dataset; empty for the tool. judges: by the name of their scorer. planned: conditions of the
    design without trials. settings: of the experiment, by their fields. folders: objects that keep further files of it.
    """

    name: str
    tool: str
    scratch: ScratchFolder
    items: dict[str, StudyItem] = field(default_factory=dict)
    conditions: dict[str, StudyCondition] = field(default_factory=dict)
    dimensions: list[StudyDimension] = field(default_factory=list)
    waves: list[StudyWave] = field(default_factory=lambda: [StudyWave()])
    notes: list[str] = field(default_factory=list)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    judges: dict[str, StudyJudge] = field(default_factory=dict)
    planned: Sequence[StudyCondition] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    folders: list[Any] = field(default_factory=list)

    def trials(self) -> Iterator[StudyTrial]:
        """Yield the trials, which are read anew."""
        with (self.scratch.path / TRIALS).open(encoding="utf-8") as lines:
            for line in lines:
                yield build_record(StudyTrial, json.loads(line))

    def write(self, folder: Path) -> None:
        """Write the study into the folder."""
        content = {part.name: getattr(self, part.name) for part in fields(Study) if part.name not in FOLDERS}
        (folder / STUDY_FILE).write_text(json.dumps(content, default=encode_value), encoding="utf-8")
        for image in {item.image.sha256: item.image for item in self.items.values() if item.image}.values():
            shutil.copyfile(image.path, folder / f"{image.sha256}.{image.format}")
        link_or_copy(self.scratch.path / TRIALS, folder / TRIALS)


def load_study(scratch: ScratchFolder) -> Study:
    """Return the study that was written into the folder. Raise FileError for an image unlike its record."""
    content = json.loads((scratch.path / STUDY_FILE).read_text(encoding="utf-8"))
    study = build_record(Study, {**content, "scratch": scratch})
    checked: dict[str, BufferedImage] = {}
    for key, item in study.items.items():
        if (image := item.image) is None:
            continue
        if image.sha256 not in checked:
            facts = (image.sha256, image.format, image.width, image.height, image.size, image.original_name)
            checked[image.sha256] = load_image(scratch.path, *facts)
        study.items[key] = replace(item, image=checked[image.sha256])
    return study


def link_or_copy(file: Path, target: Path) -> None:
    """Give the file a second name, or copy it to another file system. A reader refuses symbolic links."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def encode_value(value: Any) -> Any:
    """Return a value that JSON does not know as one that it knows. Decimals, times and paths become text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    return dict(value) if isinstance(value, Mapping) else str(value)


ENCODER = json.JSONEncoder(default=encode_value)


def build_record(kind: type[T], content: Mapping[str, Any]) -> T:
    """Return the record that `ENCODER` wrote as this object."""
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
        return partial(build_record, hint)
    inner = _find_converter(parts[-1]) if get_origin(hint) in (tuple, list, Sequence, dict, Mapping) else None
    if get_origin(hint) is tuple:
        return tuple if inner is None else lambda values: tuple([inner(value) for value in values])
    if inner is None:
        return None
    if get_origin(hint) in (dict, Mapping):
        return lambda values: {name: inner(value) for name, value in values.items()}
    return lambda values: list(map(inner, values))
