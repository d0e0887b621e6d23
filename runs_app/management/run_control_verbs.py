"""The verbs of the command `experiment` that change an experiment and its active runs."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.forms import model_to_dict

from evalsite.lib.ops.commands import VerbCommand, add_list_option, add_reason, refuse_input, resolve_actor
from runs_app import run_control
from runs_app.forms.launched_experiment import CHANGEABLE, LaunchedExperimentForm
from runs_app.management.condition_options import add_condition_option
from runs_app.management.experiment_lookup import add_experiment_verb, get_experiment, get_reader, select_runs
from runs_app.models import Experiment

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
