"""The steps of every import, whatever was read: a study or a design of another tool, or a snapshot of another site.

A source is read and checked in a process with limits. Then a `SourceImport` writes its rows in one transaction, and
reports them. A dry run does the same and takes everything back, so its report is what the import does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

from django.contrib.auth.models import User
from django.db import DataError, IntegrityError, models, transaction

from datasets_app.importing.limited_reader import Watch
from datasets_app.importing.records import FileError
from datasets_app.models import Dataset
from datasets_app.models.datasets import CurationError
from evalsite.lib.sql import analyze_grown_tables
from grading_app.study_import.study import NAMES_OF_FILE, DesignNames
from runs_app.models import Dimension

Source = TypeVar("Source")
LONGEST_NAME = 80


@dataclass(frozen=True)
class ImportOptions:
    """The choices of a person for an import.

    owner: of the new experiment. dataset: an approved one with the items of a study, by key; None for a new one.
    trusted: a design may create rows that the owner could not create. watch: gets the number of a study's trials.
    """

    owner: User
    names: DesignNames = NAMES_OF_FILE
    dataset: Dataset | None = None
    dry_run: bool = False
    trusted: bool = False
    watch: Watch | None = None


@dataclass
class ImportReport:
    """The content of an import, or the problems that prevent it.

    experiment: empty for the bundle of a dataset. counts: new rows by their labels for people. renamed: pairs of a name
    in the files and its name here. content: the digest of a snapshot. problem_count: with the problems that are not
    stored.
    """

    source: str = ""
    experiment: str = ""
    dataset: list[Any] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    content: str = ""
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0

    @property
    def is_ok(self) -> bool:
        return not self.problem_count

    @property
    def target(self) -> str:
        """Return the name of the experiment, or of the dataset of a bundle without one."""
        return self.experiment or "@".join(map(str, self.dataset))

    def describe_names(self) -> Iterator[str]:
        """Yield a line for each name that is in use here."""
        yield from (f"{name} is in use; imported as {new}" for name, new in self.renamed)


class SourceImport(ABC, Generic[Source]):
    """One import of a source that was read and checked.

    name: of the source, in errors. renamed: as the report has it.
    """

    name = ""

    def __init__(self, source: Source, options: ImportOptions) -> None:
        self.source, self.options, self.owner = source, options, options.owner
        self.renamed: list[tuple[str, str]] = []

    @abstractmethod
    def write(self) -> ImportReport:
        """Write the rows and return the report. Raise FileError if the source cannot be imported."""

    def run(self) -> ImportReport:
        """Write the rows in one transaction, or take them back after a dry run.

        Raise FileError, and change nothing, if the source cannot be imported.
        """
        try:
            with transaction.atomic():
                report = self.write()
                transaction.set_rollback(self.options.dry_run)
        except (DataError, IntegrityError) as error:
            raise FileError(f"{self.name}: the database refuses a row: {str(error).splitlines()[0][:300]}") from error
        except CurationError as error:
            raise FileError(f"{self.name} cannot be imported: {error}") from error
        analyze_grown_tables()
        report.renamed = self.renamed
        return report

    def choose_name(self, model: type[models.Model], name: str, is_taken: Callable[[str], bool]) -> tuple[str, int]:
        """Return the name and version of a new row. No name that is in use gets other content.

        The row gets the next free name, with a number. A dimension keeps its name, which models see and by which norms
        are matched, and becomes another version.
        """
        chosen, version = name, 1
        if issubclass(model, Dimension):
            version = Dimension.get_next_version(name)
        else:
            chosen = next(candidate for candidate in number_names(name) if not is_taken(candidate))
        if chosen != name or version > 1:
            new = f"{name}@{version}" if version > 1 else chosen
            self.renamed.append((f"{model._meta.verbose_name} {name}", new))
        return chosen, version


def number_names(name: str) -> Iterator[str]:
    """Yield the name, then the name with a number: name-2, name-3, ..."""
    yield name
    for number in count(2):
        yield f"{name[: LONGEST_NAME - 1 - len(str(number))]}-{number}"
