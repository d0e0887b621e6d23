"""`manage.py bundle KIND NAME --out FILE.zip`: a dataset, a design, an analysis or a whole study, for another site."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, BinaryIO, cast

from django.http import QueryDict

from datasets_app.models import Dataset
from evalsite.lib.checksummed_zip import read_file
from evalsite.lib.history import Actor
from evalsite.lib.ops.commands import OutputCommand, refuse_file, refuse_input, resolve_actor
from evalsite.lib.text.number_format import format_count
from grading_app.publish.export.bundle_kinds import ANALYSIS, DATASET, DESIGN
from grading_app.publish.export.bundles import write_bundle
from grading_app.publish.export.file_formats import write_export
from grading_app.publish.export.publication import PUBLICATION, write_publication
from grading_app.publish.export.snapshots import SnapshotError, write_study
from grading_app.results.scope import Scope, ScopeForm
from runs_app.management.experiment_lookup import get_experiment
from runs_app.models import Experiment

ALL = "all"


class Command(OutputCommand):
    help = (
        "Write a bundle for another site (a dataset, a design, an analysis, a study), or a publication for an archive."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("kind", choices=(DATASET, DESIGN, ANALYSIS, ALL, PUBLICATION))
        parser.add_argument("name", help="slug@version of a dataset; otherwise an experiment")
        parser.add_argument(
            "--out", required=True, metavar="FILE.zip", help='the output path; "-" is the standard output'
        )
        parser.add_argument("--query", default="", help="the scope of an analysis, as in the address of its page")
        parser.add_argument("--user", default="", help="the author named in the bundle")
        parser.add_argument(
            "--hub-id", default="", metavar="OWNER/NAME", help="the dataset's repository on the Hub, of a publication"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        kind, source = options["kind"], _find_source(options["kind"], options["name"])
        by = resolve_actor(options["user"])
        scope = _read_scope(source, options["query"]) if kind == ANALYSIS and isinstance(source, Experiment) else None
        try:
            with tempfile.NamedTemporaryFile(suffix=".zip") as file:
                digest = _write(kind, source, cast(BinaryIO, file), by, scope, options["hub_id"])
                file.flush()
                n_bytes = write_export(read_file(Path(file.name)), options["out"])
        except (SnapshotError, OSError) as error:
            refuse_file(error)
        where = "" if options["out"] == "-" else f" to {options['out']}"
        self.stderr.write(f"{digest}  {kind}\nWrote {format_count(n_bytes)} bytes{where}")


def _find_source(kind: str, name: str) -> Experiment | Dataset:
    if kind != DATASET:
        return get_experiment(name, needs_rows=kind != DESIGN)
    dataset: Dataset | None = Dataset.objects.named(name).first()
    return dataset or refuse_input(f"there is no dataset {name!r}")


def _read_scope(experiment: Experiment, query: str) -> Scope:
    form = ScopeForm(QueryDict(query.removeprefix("?")), experiment)
    if (scope := form.get_scope()) is None:
        problems = [f"--query: {name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items()]
        refuse_input(" ".join(problems) or f"{experiment} has no score yet")
    return scope


def _write(kind: str, source: Experiment | Dataset, out: BinaryIO, by: Actor, scope: Scope | None, hub_id: str) -> str:
    if kind == PUBLICATION and isinstance(source, Experiment):
        return write_publication(source, out, hub_id=hub_id)
    if kind != ALL or isinstance(source, Dataset):
        return write_bundle(kind, source, out, by=by, scope=scope)
    return write_study(source, out, by=by)
