"""The verbs of the command `experiment` that change, control or extend a launched experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.forms import model_to_dict

from evalsite.lib.history import Actor
from evalsite.lib.ops.commands import (
    VerbCommand,
    add_list_option,
    add_reason,
    refuse_input,
    resolve_actor,
    resolve_owner,
)
from evalsite.lib.text.number_format import format_count, format_money
from runs_app import run_control
from runs_app.experiment_files.spec_reader import read_extension_yaml
from runs_app.experiment_files.specs import ExtensionSpec
from runs_app.forms.experiments import CHANGEABLE, LaunchedExperimentForm
from runs_app.management.experiment_lookup import (
    add_condition_option,
    add_experiment_verb,
    get_experiment,
    get_reader,
    read_file,
    select_runs,
)
from runs_app.management.started_work import confirm_cost, print_estimate, wait_for
from runs_app.models import Experiment, Run
from runs_app.planning.extension import Extension, list_different_settings, preview_extension, read_extension
from runs_app.planning.plan import PlanReport
from runs_app.planning.work import PlanError

# The options that `set` changes. The verb `priority` changes that one.
SETTABLE = [option for option in CHANGEABLE if option.name != "priority"]


def add_run_control_verbs(verbs: Any) -> None:
    for verb, effect in (("pause", "stop starting calls"), ("resume", "start calls again")):
        parser = add_experiment_verb(verbs, verb, effect)
        add_condition_option(parser, "only the runs of these conditions")
        add_reason(parser)
    parser = add_experiment_verb(
        verbs, "priority", "set its priority among experiments that share an endpoint, also while it runs"
    )
    parser.add_argument("n", type=int, metavar="N", help="-9 to 9; higher priorities go first")
    add_reason(parser)
    _add_settings(add_experiment_verb(verbs, "set", "change settings that may change after the launch"))
    parser = add_experiment_verb(verbs, "cancel", "cancel pending trials for ever")
    add_condition_option(parser, "only the runs of these conditions")
    add_reason(parser, required=True)
    parser.add_argument("--yes", action="store_true")
    parser = add_experiment_verb(verbs, "retry", "give failed trials a new set of attempts")
    parser.add_argument("--error-class", metavar="CLASS", help="only trials that failed with this class")
    add_condition_option(parser, "only the runs of these conditions")
    add_reason(parser)
    parser = add_experiment_verb(verbs, "share", "choose who else can read it")
    options = parser.add_mutually_exclusive_group(required=True)
    add_list_option(options, "--with", dest="people", metavar="USER", help="only these people")
    for audience, text in (("group", "everyone in the group, and viewers"), ("private", "only its owner")):
        options.add_argument(
            f"--{audience}", dest="audience", action="store_const", const=audience, default="", help=text
        )
    add_reason(parser)


def _add_settings(parser: Any) -> None:
    for option in SETTABLE:
        help_text = option.launched_help or option.help
        arguments: dict[str, Any] = {"help": f"{help_text[:1].lower()}{help_text[1:]}".replace("%", "%%")}
        if option.choices:
            arguments["choices"] = [value for value, _ in option.choices]
        elif option.may_be_unset:
            arguments["metavar"] = f"{option.metavar}|none"
        else:
            arguments |= {"type": option.kind, "metavar": option.metavar}
        parser.add_argument(f"--{option.flag}", dest=option.name, **arguments)
    add_reason(parser)


class RunControlVerbs(VerbCommand):
    """The methods of the verbs, for the class of the command."""

    def do_set(self, name: str, user: str, reason: str, **options: Any) -> None:
        experiment = get_experiment(name)
        samples = experiment.samples
        data = model_to_dict(experiment, LaunchedExperimentForm.Meta.fields)
        data |= {option.name: value for option in SETTABLE if (value := options[option.name]) is not None}
        values = {field: value for field, value in data.items() if value not in (None, "none")}
        values["reason"] = reason
        form = LaunchedExperimentForm(values, instance=experiment, user=resolve_actor(user))
        if not form.is_valid():
            flags = {option.name: option.flag for option in SETTABLE}
            problems = (f"{flags.get(field, field)}: {text}" for field in form.errors for text in form.errors[field])
            refuse_input("; ".join(problems))
        form.save()
        self.write(f"{name} is updated; the changes apply from the next call")
        if experiment.samples > samples and experiment.status == Experiment.Status.ACTIVE:
            self.write(f"`experiment launch {name}` adds the missing trials of {experiment.samples} samples")

    def do_pause(self, name: str, reason: str, user: str, condition: list[str], **options: Any) -> None:
        self._print_runs(
            "paused", run_control.pause(select_runs(name, condition), by=resolve_actor(user), reason=reason)
        )

    def do_resume(self, name: str, reason: str, user: str, condition: list[str], **options: Any) -> None:
        self._print_runs(
            "resumed", run_control.resume(select_runs(name, condition), by=resolve_actor(user), reason=reason)
        )
        self._explain_imported(name)

    def do_cancel(self, name: str, reason: str, user: str, yes: bool, condition: list[str], **options: Any) -> None:
        runs = select_runs(name, condition)
        part = f"{len(runs)} runs of " if condition else ""
        self.confirm(f"Cancel {part}{name}? Pending trials will never start.", yes)
        self._print_runs("cancelled", run_control.cancel(runs, by=resolve_actor(user), reason=reason))

    def do_retry(
        self, name: str, error_class: str | None, reason: str, user: str, condition: list[str], **options: Any
    ) -> None:
        runs = select_runs(name, condition)
        n = run_control.retry_failed(runs, error_class=error_class, by=resolve_actor(user), reason=reason)
        self.write(run_control.describe_retry(runs, n))
        self._explain_imported(name)

    def do_priority(self, name: str, n: int, reason: str, user: str, **options: Any) -> None:
        experiment = get_experiment(name)
        try:
            changed = experiment.change_priority(n, by=resolve_actor(user), reason=reason)
        except ValidationError as error:
            refuse_input(f"n: {' '.join(error.messages)}")
        self.write(f"{name} has priority {n} from the next claim" if changed else f"{name} already has priority {n}")

    def do_share(self, name: str, people: list[str], audience: str, reason: str, user: str, **options: Any) -> None:
        experiment = get_experiment(name)
        audience = Experiment.PEOPLE if people else audience
        readers = [get_reader(username, experiment) for username in people]
        changed = experiment.share(audience, readers, by=resolve_actor(user), reason=reason)
        self.write(f"{name} is shared with{'' if changed else ' (unchanged)'}: {experiment.audience_text}")

    def _explain_imported(self, name: str) -> None:
        if (experiment := get_experiment(name)).imported_from:
            self.write(experiment.describe_imported())

    def _print_runs(self, outcome: str, keys: list[int]) -> None:
        self.write(f"{len(keys)} run{'' if len(keys) == 1 else 's'} {outcome}")


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
