"""The one way in for another tool: a `StudyFormat` declares its files, and reads them once into a `StudyDraft`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from datasets_app.importing.limited_reader import Watch
from datasets_app.importing.records import ScratchFolder
from evalsite.lib.text.hashing import slugify_name
from grading_app.study_import.stored_tables import KeyIndex
from grading_app.study_import.study import (
    MAX_PROBLEMS,
    DesignNames,
    Study,
    StudyCondition,
    StudyDesign,
    StudyDimension,
    StudyError,
    StudyItem,
    StudyJudge,
    StudyTrial,
    StudyWave,
    refuse_unreadable,
    separate_equal,
)
from grading_app.study_import.study_files import TRIALS, StoredTrials, format_trial
from grading_app.study_import.text_files import read_yaml_files

T = TypeVar("T")
WATCH_INTERVAL = 500  # Trials between two calls of a watch.
MOST_PROBLEMS = 10 * MAX_PROBLEMS  # Reading ends there.


@dataclass
class StudyDraft:
    """A study while its files are read. Trials go to a file, so that memory does not grow with their number.

    path: of the source. tool, name, ... source: as `Study` has them. items, conditions: by key. counts: of what is not
    kept, by the reasons of `StudyFormat.count_notes`. where: the place of the value that is being read, for errors.
    scratch: a folder for the reader. files: other folders that the study refers to. watch: gets the number of trials.
    """

    path: Path
    tool: str
    name: str = ""
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
    counts: Counter[str] = field(default_factory=Counter)
    where: str = ""
    scratch: ScratchFolder = field(default_factory=ScratchFolder)
    files: list[Any] = field(default_factory=list)
    watch: Watch | None = None

    def __post_init__(self) -> None:
        self.name = self.name or (self.path.stem if self.path.is_file() else self.path.name)
        self.where = self.path.name
        self._trials = (self.scratch.path / TRIALS).open("w", encoding="utf-8")
        self._repetitions = KeyIndex()
        self._number = 0
        self._problems: list[str] = []

    def follow(self, rows: Iterable[tuple[str, T]]) -> Iterator[T]:
        """Yield each row, and note its place. An error while it is read then names this place."""
        for where, row in rows:
            self.where = where
            yield row

    def refuse(self, *problems: str) -> None:
        """Note problems of the row that is being read. Raise StudyError once there are many of them."""
        self._problems += [f"{self.where}: {problem}" for problem in problems]
        if len(self._problems) > MOST_PROBLEMS:
            raise StudyError(self._problems)

    def check(self) -> None:
        """Raise StudyError if a row was refused."""
        if self._problems:
            raise StudyError(self._problems)

    @property
    def has_problems(self) -> bool:
        return bool(self._problems)

    def count(self, reason: str, number: int | bool = True) -> None:
        self.counts[reason] += int(number)

    def add_item(self, item: StudyItem) -> StudyItem:
        """Add the item. Return the item that has the key, which is an earlier one if there is one."""
        return self.items.setdefault(item.key, item)

    def add_condition(self, condition: StudyCondition) -> str:
        """Add the condition unless there is one with its key. Return the key."""
        return self.conditions.setdefault(condition.key, condition).key

    def add_trial(self, condition: str, item: str, *, sample_idx: int | None = None, **fields: Any) -> None:
        """Add an answer; fields: those of `StudyTrial`. By default, it is the next repetition of condition and item."""
        if sample_idx is None:
            sample_idx = self._repetitions.count((condition, item))
        trial = StudyTrial(
            where=fields.pop("where", self.where), condition=condition, item=item, sample_idx=sample_idx, **fields
        )
        self._trials.write(format_trial(trial))
        self._number += 1
        if self.watch and self._number % WATCH_INTERVAL == 0:
            self.watch(self._number)

    def build(self, count_notes: Mapping[str, str]) -> Study:
        """Return the study. Raise StudyError if a row was refused."""
        self._trials.close()
        self.check()
        conditions, separation_notes = separate_equal(list(self.conditions.values()))
        counted = [text.format(self.counts[reason]) for reason, text in count_notes.items() if self.counts[reason]]
        parts = {part.name: getattr(self, part.name) for part in fields(Study) if part.name != "trials"}
        return Study(**{
            **parts, "items": list(self.items.values()), "conditions": conditions,
            "notes": [*self.notes, *counted, *separation_notes],
            "trials": StoredTrials(self.scratch.path / TRIALS, self.scratch), "scratch": (self.scratch, *self.files),
        })  # fmt: skip


@dataclass(frozen=True)
class DesignFile:
    """A file that may be the design of another tool. root: the folder of the files that it may refer to."""

    file: Path
    content: Mapping[str, Any]
    root: Path
    names: DesignNames

    def build(
        self,
        tool: str,
        title: str,
        content: Mapping[str, Any],
        notes: Sequence[str],
        items: Sequence[Mapping[str, Any]] = (),
        *,
        dataset: str = "",
    ) -> StudyDesign:
        """Return the design, with the names that a person chose. dataset: the name in the file, if it has one."""
        about: dict[str, Any] = {
            "experiment": self.names.experiment or slugify_name(title),
            "title": title[:200],
            "dataset": self.names.dataset or slugify_name(dataset or title),
        }
        return StudyDesign(tool, {**about, **content}, notes, items)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFormat:
    """A format of another tool.

    label: its name for people. content: what a path or an upload must hold, for people. suffixes: of a file that is a
    study by itself; a folder is uploaded as a zip. find: the parts of a path that hold its results, such as files; none
    if the path has another format. is_at: whether a path has this format, if `find` is less strict. missing: what a
    path without results lacks, for people. read: adds the parts to a draft. notes: what no study of this format keeps.
    count_notes: what a study may not keep, by the reason that `read` counts, with a place for the number. is_design:
    whether the content of a YAML file is a design. read_design: reads it. tool: its name, if the format has another.
    """

    name: str
    label: str
    content: str
    missing: str
    find: Callable[[Path], Sequence[Any]] = lambda path: ()
    read: Callable[[Any, StudyDraft], None] | None = None
    suffixes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    count_notes: Mapping[str, str] = field(default_factory=dict)
    is_design: Callable[[Mapping[str, Any]], bool] = lambda content: False
    read_design: Callable[[DesignFile], StudyDesign] | None = None
    is_at: Callable[[Path], bool] | None = None
    tool: str = ""

    def recognises(self, path: Path) -> bool:
        return bool((self.is_at or self.find)(path))

    def read_study(self, path: Path, watch: Watch | None = None) -> Study:
        """Return the study at the path. Raise StudyError, which names the file and the row of an invalid value."""
        parts = self.find(path)
        if not parts or self.read is None:
            raise StudyError([f"{path.name}: {self.missing}"])
        draft = StudyDraft(path, self.tool or self.name, notes=list(self.notes), watch=watch)
        with refuse_unreadable(lambda: draft.where):
            self.read(parts, draft)
        return draft.build(self.count_notes)

    def find_design(self, path: Path, names: DesignNames) -> StudyDesign | None:
        """Return the first design at a path without results, None if there is none. Raise StudyError."""
        for file, content in read_yaml_files(path) if self.read_design else ():
            design = DesignFile(file, content, path if path.is_dir() else path.parent, names)
            with refuse_unreadable(file.name):
                if self.is_design(content) and self.read_design:
                    return self.read_design(design)
        return None
