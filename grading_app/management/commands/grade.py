"""`manage.py grade EXPERIMENT`: rules over stored answers."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from grading_app.grading import grade
from grading_app.scoring import ScorerError
from runs_app.models import Experiment, Wave


class Command(BaseCommand):
    help = "Grade the stored answers of an experiment that have no grade yet. Answers are never changed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment")
        parser.add_argument("--scorer", action="append", metavar="S", help="instead of those of the design; repeatable")
        parser.add_argument("--wave", metavar="LABEL", help="the answers of this wave alone: its label, or its number")
        parser.add_argument(
            "--force", action="store_true", help="grade again what has a grade; the new one replaces it"
        )
        parser.add_argument("--grader", metavar="G", help="a judge model")
        parser.add_argument("--rubric", metavar="R", help="a judge's rubric")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["grader"] or options["rubric"]:
            raise CommandError("--grader and --rubric: judges are not in this version, only scorers are", returncode=2)
        experiment = Experiment.objects.filter(slug=options["experiment"]).first()
        if experiment is None:
            raise CommandError(f"there is no experiment {options['experiment']!r}", returncode=2)
        wave = _wave(experiment, options["wave"])
        try:
            report = grade(experiment, scorers=options["scorer"], wave=wave, force=options["force"], by="command line")
        except ScorerError as error:
            raise CommandError(str(error), returncode=2) from error
        for line in report:
            self.stdout.write(str(line))
        if not report:
            self.stdout.write(
                "Nothing to grade by: the design names no scorer and no dimension. Choose one by --scorer."
            )


def _wave(experiment: Experiment, wanted: str | None) -> Wave | None:
    if wanted is None:
        return None
    waves = list(experiment.waves.all())
    for wave in waves:
        if wanted in (wave.label, str(wave.number)):
            return wave
    known = ", ".join(str(wave) for wave in waves) or "none yet"
    raise CommandError(f"--wave: {experiment} has no wave {wanted!r}; it has {known}", returncode=2)
