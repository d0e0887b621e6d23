"""`manage.py import_snapshot FILE.zip [--dry-run]`: take over a study of another site."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from evalsite.lib.ops.commands import OutputCommand, add_user, refuse_input, resolve_owner
from grading_app.export.snapshot_check import SnapshotFileError
from grading_app.study_import.snapshot_import import import_snapshot


class Command(OutputCommand):
    help = "Import the study of a snapshot that another site made, or the content of a bundle, without a call."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE.zip")
        parser.add_argument("--dry-run", action="store_true", help="check and report everything, and write nothing")
        add_user(parser, "who owns the experiment; default: the only superuser")

    def handle(self, *args: Any, **options: Any) -> None:
        owner = resolve_owner(options["user"])
        try:
            made = import_snapshot(options["file"], owner, dry_run=options["dry_run"])
        except SnapshotFileError as error:
            refuse_input(str(error))
        said = "would be imported" if options["dry_run"] else "imported"
        self.say(f"{made.target}: {said}, content {made.content}")
        for name, number in made.rows.items():
            if number:
                self.say(f"  {number:,} {name}")
        for name, new in made.renamed:
            self.say(f"  {name} is in use: {new}")
        for remark in made.remarks:
            self.say(f"  {remark}")
