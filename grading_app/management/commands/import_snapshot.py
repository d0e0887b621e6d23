"""`manage.py import_snapshot FILE.zip [--dry-run]`: import a study from another site."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalsite.lib.ops.commands import OutputCommand, add_user, refuse_input, resolve_owner
from evalsite.lib.text.number_format import format_count
from grading_app.publish.export.snapshot_check import SnapshotFileError
from grading_app.publish.export.study_rows import TABLES
from grading_app.study_import.snapshot_import import import_snapshot

WORDS = {"asset": "image", "superseded verdict": "former verdict"}
"""Nouns for people, by the name of the model."""


class Command(OutputCommand):
    help = "Import the study of a snapshot from another site, or the content of a bundle. No model is called."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE.zip")
        parser.add_argument("--dry-run", action="store_true", help="check and report everything without writing")
        add_user(parser, "the owner of the experiment; default: the only superuser")

    def handle(self, *args: Any, **options: Any) -> None:
        owner = resolve_owner(options["user"])
        try:
            result = import_snapshot(options["file"], owner, dry_run=options["dry_run"])
        except SnapshotFileError as error:
            refuse_input(str(error))
        outcome = "would be imported" if options["dry_run"] else "imported"
        self.write(f"{result.target}: {outcome}, content {result.content}")
        for line in describe_rows(result.rows):
            self.write(f"  {line}")
        for name, new in result.renamed:
            self.write(f"  {name} is in use; imported as {new}")
        for remark in result.remarks:
            self.write(f"  {remark}")


def describe_rows(rows: Mapping[str, int]) -> Iterator[str]:
    """Yield a text such as `1 sampler` for each table with rows. Tables that only link rows are left out."""
    for part in TABLES:
        options = part.model._meta
        number = rows.get(str(options.verbose_name_plural), 0)
        if number and not options.auto_created:
            singular = str(options.verbose_name)
            word = WORDS.get(singular, singular)
            yield f"{format_count(number)} {word}{'' if number == 1 else 's'}"
