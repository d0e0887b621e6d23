"""The one way in for another tool: a `StudyFormat` declares its files, and reads them once into a `StudyDraft`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from datasets_app.importing.limited_reader import Watch
from datasets_app.importing.records import ScratchFolder
from evalsite.lib.text.hashing import slugify_name
from grading_app.study_import.stored_tables import KeyIndex
from grading_app.study_import.study import (
    MAX_PROBLEMS,
    DesignNames,
    StudyCondition,
    StudyDesign,
    StudyError,
    StudyItem,
    StudyTrial,
    refuse_unreadable,
    separate_equal,
)
from grading_app.study_import.study_files import ENCODER, TRIALS, Study
from grading_app.study_import.text_files import read_yaml_files

T = TypeVar("T")
WATCH_INTERVAL = 500  # Trials between two calls of a watch.
MOST_PROBLEMS = 10 * MAX_PROBLEMS  # Reading ends there.


class StudyDraft(Study):
    """A study while its files are read. Trials go to a file, so that memory does not grow with their number.

    path: of the source. where: the place of the value that is being read, for errors. counts: of what is not kept, by
    the reasons of `StudyFormat.count_notes`. watch: gets the number of trials.
    """

    def __init__(self, path: Path, tool: str, notes: Iterable[str] = (), watch: Watch | None = None) -> None:
        super().__init__(path.stem if path.is_file() else path.name, tool, ScratchFolder(), notes=list(notes))
        self.path, self.where, self.watch = path, path.name, watch
        self.counts: Counter[str] = Counter()
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
        self._trials.write(ENCODER.encode(trial) + "\n")
        self._number += 1
        if self.watch and self._number % WATCH_INTERVAL == 0:
            self.watch(self._number)

    def complete(self, count_notes: Mapping[str, str]) -> None:
        """End the reading. Raise StudyError if a row was refused."""
        self._trials.close()
        self.check()
        conditions, separation_notes = separate_equal(list(self.conditions.values()))
        self.conditions = {condition.key: condition for condition in conditions}
        counted = [text.format(self.counts[reason]) for reason, text in count_notes.items() if self.counts[reason]]
        self.notes += [*counted, *separation_notes]


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
        items: Sequence[StudyItem] = (),
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
        draft = StudyDraft(path, self.tool or self.name, self.notes, watch)
        with refuse_unreadable(lambda: draft.where):
            self.read(parts, draft)
        draft.complete(self.count_notes)
        return draft

    def find_design(self, path: Path, names: DesignNames) -> StudyDesign | None:
        """Return the first design at a path without results, None if there is none. Raise StudyError."""
        for file, content in read_yaml_files(path) if self.read_design else ():
            design = DesignFile(file, content, path if path.is_dir() else path.parent, names)
            with refuse_unreadable(file.name):
                if self.is_design(content) and self.read_design:
                    return self.read_design(design)
        return None
