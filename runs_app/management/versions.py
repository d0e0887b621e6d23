"""The verbs that prompts, samplers, dimensions and rubrics share. Their rows are versions created from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from evalsite.lib.history import TransitionError
from evalsite.lib.ops.commands import (
    OutputCommand,
    VerbCommand,
    add_reason,
    add_user,
    refuse_input,
    resolve_actor,
    resolve_approver,
    resolve_owner,
)
from runs_app.experiment_files.row_builder import RowBuilder
from runs_app.experiment_files.spec_reader import SpecError, read_section
from runs_app.experiment_files.spec_types import Strict
from runs_app.models.designs import Versioned
from runs_app.planning.spec_io import dump_yaml

REFERENCE = "NAME for the newest version, or NAME@VERSION"


class VersionCommand(VerbCommand):
    """The verbs `list`, `show`, `create`, `approve` and `archive`."""

    refusals: ClassVar[tuple[type[Exception], ...]] = (ValueError, TransitionError)
    kind: ClassVar[Any]
    spec: ClassVar[type[Strict]]
    build_row: Callable[[Any], Versioned]
    """Returns an unsaved row with the content of a file."""
    build_spec: Callable[[Any], Any]
    """Returns a row's content in the format of a file."""

    @property
    def noun(self) -> str:
        return str(self.kind._meta.verbose_name)

    def add_verbs(self, verbs: Any) -> None:
        add_list_and_show(verbs, self.noun)
        add_create(verbs, self.noun)
        approve = verbs.add_parser("approve", help="freeze a version, and let its name mean it for everybody")
        approve.add_argument("reference", help=REFERENCE)
        add_reason(approve, required=True)
        archive = verbs.add_parser("archive", help="take a version out of use")
        archive.add_argument("reference", help=REFERENCE)
        add_reason(archive, required=True)

    def do_list(self, json: bool, **options: Any) -> None:
        rows = list(self.kind.objects.select_related("created_by"))
        if json:
            self.write_json([self._build_row(row) for row in rows])
            return
        for row in rows:
            self.write(f"{row!s:<40} {row.status:<10} {row.content_hash[:12]}  {row.created_by or '-'}")

    def do_show(self, reference: str, json: bool, **options: Any) -> None:
        row = self.get_row(reference)
        if json:
            self.write_json({**self._build_row(row), "content": self.build_spec(row)})
            return
        self.write(f"# {row}, {row.status}, {row.content_hash[:12]}, by {row.created_by or '-'}")
        self.write(dump_yaml(self.build_spec(row)))
        print_history(self, row)

    def do_create(self, file: Path, user: str, **options: Any) -> None:
        row = self.build_row(read_section(read_text(file), self.spec, self.noun))
        builder = RowBuilder(resolve_owner(user), trusted=True, reason="Made by command")
        version, is_new = builder.find_or_create_version(self.noun, row)
        if builder.problems:
            raise SpecError(builder.problems)
        if not is_new:
            self.write(f"{version} already has this content; nothing was created")
            return
        self.write(f"{version} is created, as a draft of {version.created_by}")
        self.write(f"Approve it with: {self.noun} approve {version} --reason TEXT")

    def do_approve(self, reference: str, reason: str, user: str, **options: Any) -> None:
        row = self.get_row(reference)
        row.approve(by=resolve_approver(user, row.APPROVAL, self.noun), reason=reason)
        self.write(f"{row} is approved and frozen")

    def do_archive(self, reference: str, reason: str, user: str, **options: Any) -> None:
        row = self.get_row(reference)
        row.archive(by=resolve_actor(user), reason=reason)
        self.write(f"{row} is archived; trials that used it stay")

    def get_row(self, reference: str) -> Any:
        row = self.kind.objects.newest(reference).select_related("created_by").first()
        if row is None:
            hint = self.kind.objects.suggest_version(reference) or f"; `{self.noun} list` lists them"
            refuse_input(f"reference: there is no {self.noun} {reference}{hint}")
        return row

    def _build_row(self, row: Any) -> dict[str, Any]:
        return {
            "name": row.name,
            "version": row.version,
            "status": row.status,
            "content_hash": row.content_hash,
            "created_by": row.created_by and row.created_by.username,
            "created_at": row.created_at,
            "approved_at": row.approved_at,
        }


def add_list_and_show(verbs: Any, noun: str) -> None:
    verbs.add_parser("list", help=f"list all {noun}s").add_argument("--json", action="store_true")
    show = verbs.add_parser("show", help=f"show a {noun} as a file, and its history")
    show.add_argument("reference", help=REFERENCE)
    show.add_argument("--json", action="store_true")


def add_create(verbs: Any, noun: str) -> None:
    create = verbs.add_parser("create", help=f"create a {noun} from a file in the format of an experiment file")
    create.add_argument("file", type=Path)
    add_user(create, "its author; default: the only superuser")


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        refuse_input(f"file: {file} cannot be read: {error}")


def print_history(command: OutputCommand, row: Any) -> None:
    for change in row.history:
        reason = f": {change.reason}" if change.reason else ""
        command.write(f"# {change.at:%Y-%m-%d %H:%M:%S} UTC  {change.actor}  {change.aspect} {change.to_value}{reason}")
