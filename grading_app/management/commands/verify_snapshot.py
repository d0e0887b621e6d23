"""`manage.py verify_snapshot FILE.zip`: print each difference from the original. The exit code is then 1."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from evalsite.lib.ops.commands import WORK_FAILED, OutputCommand, refuse_input
from grading_app.publish.export.snapshot_check import STUDY, SnapshotFileError, verify


class Command(OutputCommand):
    help = "Check the checksums of a snapshot or bundle, and recompute its study card from the tables."
    requires_system_checks: Any = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE.zip")
        parser.add_argument("--digest", default="", help="the expected digest, as on the results page")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            verdict = verify(Path(options["file"]))
        except SnapshotFileError as error:
            refuse_input(str(error))
        if options["digest"] not in ("", verdict.digest):
            verdict.problems.append(f"the digest is {verdict.digest}, not {options['digest']}")
        for problem in verdict.problems:
            self.write(problem)
        if verdict.problems:
            raise CommandError(f"{len(verdict.problems)} differences", returncode=WORK_FAILED)
        self.write(f"{verdict.digest}  {verdict.files} files, {verdict.rows:,} rows: unchanged")
        if verdict.kind != STUDY:
            self.write(f"a bundle of kind {verdict.kind}")
        if verdict.content:
            self.write(f"{verdict.content}  content: rows and images, equal on every site with this study")
