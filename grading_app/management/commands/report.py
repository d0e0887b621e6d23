"""`manage.py report EXPERIMENT --out report.html|report.pdf|report.zip`: the written report of an experiment."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from evalsite.lib.ops.commands import OutputCommand, choose_format, refuse_input
from evalsite.lib.text.number_format import format_count
from grading_app.management.output import write_output
from grading_app.models import ReportChoices, Snapshot
from grading_app.publish.report.build import build_document, compose, read_frozen
from grading_app.publish.report.document import Document
from grading_app.publish.report.files import FILE_TYPES, write_report
from grading_app.publish.report.typst_process import TypesettingError
from runs_app.management.experiment_lookup import get_experiment
from runs_app.models import Experiment


class Command(OutputCommand):
    help = "Write the report of an experiment as one HTML file, as PDF, or as a zip with tables and figures."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment")
        parser.add_argument("--out", required=True, metavar="PATH", help="report.html, report.pdf or report.zip")
        parser.add_argument(
            "--format", default="", choices=["", *FILE_TYPES], help="required if the path has no suffix"
        )
        parser.add_argument("--snapshot", default="", metavar="DIGEST", help="the report in this snapshot")

    def handle(self, *args: Any, **options: Any) -> None:
        experiment = get_experiment(options["experiment"], "experiment")
        file_format = choose_format(options, FILE_TYPES)
        if options["snapshot"]:
            document = _read_frozen_report(experiment, options["snapshot"])
        else:
            document = compose(build_document(experiment), ReportChoices.load(experiment))
        try:
            n_bytes = write_output(iter([write_report(document, file_format)]), options["out"])
        except TypesettingError as error:
            raise CommandError(f"the report could not be typeset: {error}", returncode=1) from error
        n_sections = len(document.sections)
        what = f"{n_sections} section{'' if n_sections == 1 else 's'} ({format_count(n_bytes)} bytes)"
        self.report_written(what, options["out"], options["verbosity"])
        if document.failed:
            titles = ", ".join(document.failed)
            raise CommandError(f"the report is incomplete: these sections could not be written: {titles}", returncode=1)


def _read_frozen_report(experiment: Experiment, digest: str) -> Document:
    matches = Snapshot.objects.filter(experiment=experiment, digest__startswith=digest)[:2]
    if len(matches) != 1:
        refuse_input(f"--snapshot: {experiment} has no snapshot with a digest that begins with {digest!r}")
    document = read_frozen(matches[0])
    if document is None:
        refuse_input(f"--snapshot: the file of {matches[0].digest[:12]} is missing or contains no report")
    return document
