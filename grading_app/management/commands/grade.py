"""`manage.py grade EXPERIMENT`: rules and judges over stored answers."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from evalsite.lib.ops.commands import OutputCommand, refuse_input, resolve_actor
from grading_app.judging import grader_lookup, panels
from grading_app.judging.judge_plan import request_verdicts
from grading_app.judging.judging_costs import estimate_judging
from grading_app.judging.verdict_reader import read_verdicts
from grading_app.models import Grader
from grading_app.scoring.grading import grade
from grading_app.scoring.scorers import ScorerError
from runs_app.management.condition_options import add_condition_option, match_condition_ids
from runs_app.management.cost_confirmation import confirm_cost, print_estimate
from runs_app.management.progress_bar import wait_for
from runs_app.models import Experiment, Run, Wave
from runs_app.planning.work import PlanError

NOTHING = (
    "Nothing to grade by: the design names no scorer, no grader and no dimension. Choose one by --scorer or --grader."
)


class Command(OutputCommand):
    help = "Grade the stored answers of an experiment that have no grade yet. Answers are never changed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment")
        parser.add_argument(
            "--scorer",
            action="append",
            metavar="S",
            help="instead of those of the design: NAME, or NAME:PARAMETER as in regex:PATTERN; repeatable",
        )
        parser.add_argument("--grader", action="append", default=[], metavar="G", help="a judge; repeatable")
        parser.add_argument("--rubric", metavar="R", help="judge by this rubric: NAME or NAME@VERSION")
        parser.add_argument("--texts", metavar="T", help="judge with this set of item rubrics: NAME or NAME@VERSION")
        parser.add_argument(
            "--panel", action="append", default=[], metavar="P", help="take its judges' scores together"
        )
        parser.add_argument("--wave", metavar="LABEL", help="the answers of this wave alone: its label, or its number")
        add_condition_option(parser, "the answers of these conditions alone")
        parser.add_argument(
            "--force", action="store_true", help="grade again what has a grade; the new one replaces it"
        )
        parser.add_argument("--yes", action="store_true", help="the cost of judging is known")
        parser.add_argument("--no-wait", action="store_true", help="ask the judges, and do not wait for them")
        parser.add_argument("--user", default="", metavar="NAME", help="whom the history names")

    def handle(self, *args: Any, experiment: str, **options: Any) -> None:
        found = Experiment.objects.filter(slug=experiment).first()
        if found is None:
            refuse_input(f"there is no experiment {experiment!r}")
        wave, options["only"] = _wave(found, options["wave"]), _conditions(found, options["condition"])
        try:
            self._grade(found, wave, options)
        except (ScorerError, PlanError) as error:
            refuse_input(str(error))

    def _grade(self, experiment: Experiment, wave: Wave | None, options: dict[str, Any]) -> None:
        """Grade by the chosen rules and judges. If none is chosen, use those of the design."""
        is_open = not any(options[name] for name in ("grader", "rubric", "texts", "panel", "scorer"))
        said = self._by_rules(experiment, wave, options) if is_open or options["scorer"] else 0
        if is_open:
            graders = grader_lookup.find_design_graders(experiment)
        else:
            graders = grader_lookup.choose_graders(options["grader"], options["rubric"], options["texts"])
        if graders:
            self._by_judges(experiment, graders, [wave] if wave else list(experiment.waves.all()), options)
        for name in options["panel"]:
            panel = grader_lookup.find_panel(name)
            self.say(f"{panels.add_panel(experiment, panel)}: {panel.get_rule_display()}")
        if is_open and not said and not graders:
            self.say(NOTHING)

    def _by_rules(self, experiment: Experiment, wave: Wave | None, options: dict[str, Any]) -> int:
        by = options["user"] or "command line"
        report = grade(
            experiment,
            scorers=options["scorer"],
            wave=wave,
            force=options["force"],
            conditions=options["only"],
            by=by,
        )
        for line in report:
            self.say(str(line))
        return len(report)

    def _by_judges(
        self, experiment: Experiment, graders: Sequence[Grader], waves: Sequence[Wave], options: dict[str, Any]
    ) -> None:
        found = estimate_judging(experiment, graders, waves, force=options["force"], conditions=options["only"])
        if found.problems:
            raise PlanError(found.problems)
        print_estimate(self, found)
        if found.to_do:
            confirm_cost(self, experiment, found, options["yes"], "Judge")
        report = request_verdicts(
            experiment,
            grader_lookup.save_graders(graders, resolve_actor(options["user"])),
            waves,
            by=resolve_actor(options["user"]),
            force=options["force"],
            approved=found,
            revive=options["only"] is None,  # A cancelled run can only resume as a whole.
            only=options["only"],
        )
        for one in report:
            self.say(str(one))
        if found.to_do and not options["no_wait"]:
            wait_for(self, Run.objects.filter(pk__in=[one.run.pk for one in report]))
        for read in read_verdicts(experiment):
            self.say(str(read))


def _conditions(experiment: Experiment, wanted: Sequence[str]) -> list[str] | None:
    """Return the ids of the conditions that `--condition` names; None for all."""
    known = set(experiment.conditions.generating().values_list("condition_id", flat=True))
    return match_condition_ids(known, wanted) if wanted else None


def _wave(experiment: Experiment, wanted: str | None) -> Wave | None:
    if wanted is None:
        return None
    waves = list(experiment.waves.all())
    found = next((wave for wave in waves if wanted in (wave.label, str(wave.number))), None)
    if found is None:
        known = ", ".join(str(wave) for wave in waves) or "none yet"
        refuse_input(f"--wave: {experiment} has no wave {wanted!r}; it has {known}")
    return found
