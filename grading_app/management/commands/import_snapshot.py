"""`manage.py import_snapshot FILE.zip [--dry-run]`: import a study from another site."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from datasets_app.importing.records import FileError
from evalsite.lib.ops.commands import OutputCommand, add_user, refuse_input, resolve_owner
from evalsite.lib.text.number_format import format_count
from grading_app.study_import.snapshot_import import import_snapshot


class Command(OutputCommand):
    help = "Import the study of a snapshot from another site, or the content of a bundle. No model is called."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE.zip")
        parser.add_argument("--dry-run", action="store_true", help="check and report everything without writing")
        add_user(parser, "the owner of the experiment; default: the only superuser")

    def handle(self, *args: Any, **options: Any) -> None:
        owner = resolve_owner(options["user"])
        try:
            report = import_snapshot(options["file"], owner, dry_run=options["dry_run"])
        except FileError as error:
            refuse_input(str(error))
        outcome = "would be imported" if options["dry_run"] else "imported"
        self.write(f"{report.target}: {outcome}, content {report.content}")
        for label, number in report.counts.items():
            word = label.lower()
            self.write(f"  {format_count(number)} {word.removesuffix('s') if number == 1 else word}")
        for line in (*report.describe_names(), *report.notes):
            self.write(f"  {line}")
