"""`manage.py grade EXPERIMENT`: rules and judges over stored answers."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from evalsite.lib.ops.commands import OutputCommand, add_user, refuse_input, resolve_actor
from grading_app.grading.judging import panels
from grading_app.grading.judging.graders import choose_graders, find_panel, save_graders
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.judging_costs import estimate_judging
from grading_app.grading.judging.verdict_reader import count_stored_verdicts, read_database_time, read_verdicts
from grading_app.grading.scoring import grade
from grading_app.models import Grader
from runs_app.management.experiment_lookup import add_condition_option, choose_wave, get_experiment, match_condition_ids
from runs_app.management.started_work import confirm_cost, print_estimate, wait_for
from runs_app.models import Experiment, Run, Wave
from runs_app.planning.work import PlanError
from runs_app.scorers.scorers import ScorerError

NO_METHOD = "Nothing to grade by: the design has no scorer, grader or dimension. Choose one with --scorer or --grader."


class Command(OutputCommand):
    help = "Grade the stored answers of an experiment that have no grade yet. Answers are never changed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment")
        parser.add_argument(
            "--scorer",
            action="append",
            metavar="S",
            help="replaces the scorers of the design: NAME, or NAME:PARAMETER as in regex:PATTERN; repeatable",
        )
        parser.add_argument("--grader", action="append", default=[], metavar="G", help="a judge; repeatable")
        parser.add_argument("--rubric", metavar="R", help="judge by this rubric: NAME or NAME@VERSION")
        parser.add_argument("--texts", metavar="T", help="judge with this set of item rubrics: NAME or NAME@VERSION")
        parser.add_argument(
            "--panel", action="append", default=[], metavar="P", help="combine the scores of its judges"
        )
        parser.add_argument("--wave", default="", metavar="LABEL", help="only this wave: a label or number")
        add_condition_option(parser, "only the answers of these conditions")
        parser.add_argument("--force", action="store_true", help="grade graded answers again, and replace their grades")
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation of the cost")
        parser.add_argument("--no-wait", action="store_true", help="request verdicts without waiting for them")
        add_user(parser)

    def handle(self, *args: Any, experiment: str, **options: Any) -> None:
        experiment_row = get_experiment(experiment, "experiment")
        wave = choose_wave(experiment_row, options["wave"])
        names = options["condition"]
        condition_ids = set(experiment_row.answer_conditions.values_list("condition_id", flat=True))
        options["only"] = match_condition_ids(condition_ids, names) if names else None
        try:
            # Grade by the chosen rules and judges, by default those of the design.
            uses_design = not any(options[name] for name in ("grader", "rubric", "texts", "panel", "scorer"))
            n_rules = self._grade_by_rules(experiment_row, wave, options) if uses_design or options["scorer"] else 0
            if uses_design:
                graders = Grader.objects.of_design(experiment_row)
            else:
                graders = choose_graders(experiment_row, options["grader"], options["rubric"], options["texts"])
            if graders:
                self._grade_by_judges(
                    experiment_row, graders, [wave] if wave else list(experiment_row.waves.all()), options
                )
            for name in options["panel"]:
                panel = find_panel(name)
                self.write(f"{panels.add_panel(experiment_row, panel)}: {panel.get_rule_display()}")
            if uses_design and not n_rules and not graders:
                self.write(NO_METHOD)
        except (ScorerError, PlanError) as error:
            refuse_input(str(error))

    def _grade_by_rules(self, experiment: Experiment, wave: Wave | None, options: dict[str, Any]) -> int:
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
            self.write(str(line))
        return len(report)

    def _grade_by_judges(
        self, experiment: Experiment, graders: Sequence[Grader], waves: Sequence[Wave], options: dict[str, Any]
    ) -> None:
        estimate = estimate_judging(experiment, graders, waves, force=options["force"], conditions=options["only"])
        if estimate.problems:
            raise PlanError(estimate.problems)
        print_estimate(self, estimate)
        if estimate.to_do:
            confirm_cost(self, experiment, estimate, options["yes"], "Judge")
        since = read_database_time()
        report = request_verdicts(
            experiment,
            save_graders(graders, resolve_actor(options["user"])),
            waves,
            by=resolve_actor(options["user"]),
            force=options["force"],
            approved=estimate,
            revive=options["only"] is None,  # A cancelled run can only resume as a whole.
            only=options["only"],
        )
        for line in report:
            self.write(str(line))
        if estimate.to_do and not options["no_wait"]:
            wait_for(self, Run.objects.filter(pk__in=[line.run.pk for line in report]))
        read_verdicts(experiment)
        for verdicts in count_stored_verdicts(dict.fromkeys(line.condition for line in report), since):
            self.write(str(verdicts))
