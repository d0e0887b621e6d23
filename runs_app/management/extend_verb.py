"""The verb `experiment extend`: more models, prompts, samplers, dimensions or samples for a launched design."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.db import transaction

from evalsite.lib.history import Actor
from evalsite.lib.ops.commands import VerbCommand, add_reason, resolve_actor, resolve_owner
from evalsite.lib.text.number_format import format_count, format_money
from runs_app import run_control
from runs_app.experiment_files.spec_reader import read_extension_yaml
from runs_app.experiment_files.specs import ExtensionSpec
from runs_app.management.cost_confirmation import confirm_cost, print_estimate
from runs_app.management.experiment_lookup import add_experiment_verb, get_experiment, read_file
from runs_app.management.progress_bar import wait_for
from runs_app.models import Experiment, Run
from runs_app.planning.extension import Extension, list_different_settings, preview_extension, read_extension
from runs_app.planning.plan import PlanReport
from runs_app.planning.work import PlanError

AXES = ("models", "prompts", "samplers", "dimensions")
OVER_BUDGET_WARNING = "the maximum cost is above the budget; calls stop when the budget is used up"


def add_extend_verb(verbs: Any) -> None:
    parser = add_experiment_verb(
        verbs, "extend", "add models, prompts, samplers, dimensions or samples to a launched design, and start"
    )
    parser.add_argument("file", type=Path, nargs="?", help="the edited experiment file, or only its additions")
    for axis in AXES:
        name = axis.removesuffix("s")
        parser.add_argument(
            f"--{name}", dest=axis, action="append", metavar="NAME", help=f"a {name} to add; repeatable"
        )
    parser.add_argument("--samples", type=int, metavar="N", help="the new number of samples")
    parser.add_argument("--wave", metavar="LABEL", help="the wave that gets the new trials; default: the first")
    parser.add_argument("--dry-run", action="store_true", help="only show the new trials and their cost")
    parser.add_argument("--wait", action="store_true", help="show the progress until all trials are done")
    parser.add_argument("--yes", action="store_true", help="accept the cost")
    add_reason(parser)


class ExtendVerb(VerbCommand):
    """The method of the verb, for the class of the command."""

    def do_extend(self, name: str, file: Path | None, user: str, reason: str, **options: Any) -> None:
        experiment = get_experiment(name)
        # The additions of the file and of the options together.
        spec = read_extension_yaml(read_file(file)) if file else ExtensionSpec()
        names = {axis: [*getattr(spec, axis), *dict.fromkeys(options[axis] or ())] for axis in AXES}
        samples = options["samples"] if options["samples"] is not None else spec.samples
        spec = spec.model_copy(update={**names, "samples": samples})
        author = resolve_owner(user) if user else experiment.owner
        with transaction.atomic():  # An error rolls back the rows that the file defines inline.
            extension = read_extension(spec, experiment, by=author, trusted=True)
            for key in list_different_settings(spec, experiment):
                self.stderr.write(f"warning: {key} in the file is ignored; use `experiment set` to change settings")
            if extension.is_empty:
                self.write(f"{experiment} already has all of this: nothing to add")
                return
            report = self._extend(experiment, extension, resolve_actor(user), reason, options)
        if report and options["wait"]:
            wait_for(self, Run.objects.filter(pk__in=report.run_ids))

    def _extend(
        self, experiment: Experiment, extension: Extension, by: Actor, reason: str, options: Any
    ) -> PlanReport | None:
        wave = experiment.get_first_wave_label() if options["wave"] is None else options["wave"]
        preview = preview_extension(experiment, extension, wave_label=wave)
        self.write(f"added to {experiment}: {extension}")
        if preview.problems:
            raise PlanError(preview.problems)
        trials = format_count(preview.new_trials)
        ceiling, expected = format_money(preview.ceiling_usd), format_money(preview.expected_usd)
        self.write(
            f"{preview.new_conditions} new conditions, {trials} new trials: at most {ceiling}, expected {expected}"
        )
        if preview.unlaunched:
            self.write(
                f"and {format_count(preview.unlaunched)} trials of the earlier design that were not launched yet"
            )
        print_estimate(self, preview.after)
        if preview.is_over_budget:
            self.stderr.write(f"warning: {OVER_BUDGET_WARNING}", self.style.WARNING)
        if options["dry_run"]:
            transaction.set_rollback(True)
            return None
        confirm_cost(self, experiment, preview.after, options["yes"], "Extend")
        report = run_control.extend(experiment, extension, by=by, reason=reason, wave=wave, approved=preview.after)
        self.write(f"{experiment} is extended: {report.summary}")
        for note in report.notes:
            self.write(note)
        return report
