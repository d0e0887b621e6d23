"""`manage.py import_study PATH [--format F] [--name SLUG]`: results and designs of other tools, and snapshots."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management import call_command

from datasets_app.importing.records import FileError
from datasets_app.models import Dataset
from evalsite.lib.ops.commands import OutputCommand, add_user, refuse_input, resolve_owner
from grading_app.models import Grader, Rubric
from grading_app.study_import.import_jobs import import_source
from grading_app.study_import.importers import FORMATS, read_source
from grading_app.study_import.source_import import ImportOptions, ImportReport
from grading_app.study_import.study import DesignNames
from grading_app.study_import.study_files import Study
from grading_app.study_import.upload_reader import is_snapshot
from grading_app.study_import.writer import ATTEMPTS, CONDITIONS, FAILED, ITEMS, SCORES, SKIPPED, TRIALS, VERDICTS
from runs_app.models import Experiment, Prompt


class Command(OutputCommand):
    help = "Import a study that was made with another tool: answers, costs, errors and scores, without a call."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, help="a file, a folder, or a zip of a folder")
        parser.add_argument("--format", default="", choices=["", *FORMATS], metavar="|".join(FORMATS))
        parser.add_argument("--name", default="", metavar="SLUG", help="the name of the experiment and its dataset")
        parser.add_argument("--dry-run", action="store_true", help="read and check everything, and write nothing")
        parser.add_argument(
            "--dataset",
            default="",
            metavar="SLUG@V",
            help="an approved dataset with the study's items; default: a new dataset",
        )
        parser.add_argument(
            "--endpoint",
            default="",
            metavar="NAME",
            help="the endpoint of a design's models; default: the name of their provider",
        )
        add_user(parser, "the owner of the experiment; default: the only superuser")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["format"] and is_snapshot(options["path"]):
            shared = {name: options[name] for name in ("dry_run", "user", "verbosity")}
            call_command("import_snapshot", str(options["path"]), stdout=self.stdout, **shared)
            return
        names = DesignNames(options["name"], options["dataset"], options["endpoint"])
        owner = resolve_owner(options["user"])  # Before a long file is read.
        try:
            source = read_source(options["path"], options["format"], names)
            dataset = _find_dataset(options["dataset"]) if isinstance(source, Study) else None
            choices = ImportOptions(owner, names, dataset, dry_run=options["dry_run"], trusted=True)
            report = import_source(source, choices)
        except FileError as error:
            refuse_input(str(error))
        if isinstance(source, Study):
            self._print_report(report, source.tool, dry=options["dry_run"])
            return
        result = "would be created" if options["dry_run"] else "created"
        self.write(f"{report.experiment}: {result} as a draft, from a design of {source.tool}")
        for note in report.notes:
            self.write(f"  {note}")
        if options["dry_run"]:
            return
        experiment = Experiment.objects.get(slug=report.experiment)
        graders = Grader.objects.in_use().filter(name__in=experiment.graders)
        rubrics = Rubric.objects.filter(status=Rubric.Status.IMPORTED, graders__in=graders).distinct()
        waiting = (*experiment.prompts.filter(status=Prompt.Status.IMPORTED), *rubrics)
        if waiting:
            self.write("  Before the launch, read and approve its texts:")
        for row in waiting:
            self.write(f"    {row._meta.verbose_name} approve {row} --reason TEXT")

    def _print_report(self, report: ImportReport, tool: str, *, dry: bool) -> None:
        counts = Counter(report.counts)
        self.write(f"{report.experiment}: {'would be imported' if dry else 'imported'} from {tool}")
        self.write(f"  {counts[ITEMS]} items, {counts[CONDITIONS]} conditions")
        self.write(f"  {counts[TRIALS]} trials, {counts[FAILED]} of them failed; {counts[ATTEMPTS]} attempts")
        if counts[SCORES]:
            by_judges = f", {counts[VERDICTS]} of them by judges" if counts[VERDICTS] else ""
            self.write(f"  {counts[SCORES]} scores{by_judges}")
        if counts[SKIPPED]:
            self.write(f"  {counts[SKIPPED]} trials already existed")
        for line in (*report.describe_names(), *report.notes):
            self.write(f"  {line}")


def _find_dataset(reference: str) -> Dataset | None:
    if not reference:
        return None
    dataset: Dataset | None = Dataset.objects.named(reference).first()
    if dataset is None:
        refuse_input(f"--dataset: there is no dataset {reference!r}")
    return dataset
