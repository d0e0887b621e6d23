"""`manage.py snapshot EXPERIMENT --out FILE.zip`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from evalsite.lib.checksummed_zip import read_file
from evalsite.lib.ops.commands import OutputCommand, add_user, refuse_file, refuse_input, resolve_actor
from grading_app.publish.export.file_formats import write_export
from grading_app.publish.export.snapshots import SnapshotError, make_snapshot
from grading_app.publish.report.build import read_frozen
from runs_app.management.experiment_lookup import get_experiment


class Command(OutputCommand):
    help = (
        "Write all tables of an experiment, its requests, a study card and checksums into one file that never changes."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment")
        parser.add_argument("--out", required=True, metavar="FILE.zip", help='the new file; "-" is the standard output')
        parser.add_argument("--label", default="", help="such as submission")
        parser.add_argument("--reason", default="", help="its purpose, for the study card")
        add_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        experiment = get_experiment(options["experiment"], "experiment")
        texts = {name: options[name] for name in ("label", "reason")}
        for name, limit in (("label", 80), ("reason", 500)):
            if len(texts[name]) > limit:
                refuse_input(f"--{name}: at most {limit} characters")
        try:
            snapshot = make_snapshot(experiment, by=resolve_actor(options["user"]), **texts)
            write_export(read_file(snapshot.path), options["out"])
        except (SnapshotError, OSError) as error:
            refuse_file(error)
        if (report := read_frozen(snapshot)) and report.failed:
            titles = ", ".join(report.failed)
            self.stderr.write(
                f"the report in the snapshot is incomplete: these sections could not be written: {titles}"
            )
        self.stderr.write(f"{snapshot.digest}  {sum(snapshot.rows.values()):,} rows, {snapshot.size:,} bytes")
