"""The verbs of the command `experiment` that change an experiment and its runs while they run."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.forms import model_to_dict

from evalsite.lib.ops.commands import VerbCommand, add_list_option, add_reason, refuse_input, resolve_actor
from evalsite.lib.text.number_format import format_count
from runs_app import run_control
from runs_app.forms.launched_experiment import LaunchedExperimentForm
from runs_app.management.condition_options import add_condition_option
from runs_app.management.experiment_lookup import add_experiment_verb, get_experiment, get_reader, select_runs
from runs_app.models import Experiment
from runs_app.planning.plan import describe_imported

# Fields that `set` changes, with the names of their options.
CHANGEABLE = {
    "max_usd": "budget",
    "confirm_above_usd": "confirm-above",
    "stop_failure_rate": "stop-failure-rate",
    "samples": "samples",
    "request_timeout_s": "timeout",
    "max_attempts": "attempts",
    "backoff_s": "backoff",
    "max_backoff_s": "max-backoff",
    "on_empty": "on-empty",
    "on_unreadable": "on-unreadable",
    "budget_policy": "policy",
    "dev_items": "dev-items",
    "dev_samples": "dev-samples",
}


def add_steering_verbs(verbs: Any) -> None:
    for verb, what in (("pause", "no new calls start"), ("resume", "calls start again")):
        parser = add_experiment_verb(verbs, verb, what)
        add_condition_option(parser, "the runs of these conditions only")
        add_reason(parser)
    parser = add_experiment_verb(
        verbs, "priority", "its place among experiments that share an endpoint, also while it runs"
    )
    parser.add_argument("n", type=int, metavar="N", help="-9 to 9; a higher one goes first")
    add_reason(parser)
    parser = add_experiment_verb(verbs, "set", "change what may change while it runs")
    parser.add_argument("--budget", dest="max_usd", metavar="USD|none", help="holds from the next call on")
    parser.add_argument("--confirm-above", dest="confirm_above_usd", metavar="USD|none")
    parser.add_argument("--stop-failure-rate", type=float, metavar="SHARE", help="of failures that stops a run")
    parser.add_argument("--samples", type=int, metavar="N", help="repetitions; may grow, and the next launch adds them")
    parser.add_argument("--timeout", dest="request_timeout_s", type=float, metavar="SECONDS", help="of a call")
    parser.add_argument("--attempts", dest="max_attempts", type=int, metavar="N", help="tries of a trial")
    parser.add_argument("--backoff", dest="backoff_s", type=float, metavar="SECONDS", help="first wait after a failure")
    parser.add_argument("--max-backoff", dest="max_backoff_s", type=float, metavar="SECONDS", help="longest wait")
    parser.add_argument(
        "--policy", dest="budget_policy", choices=Experiment.BudgetPolicy.values, help="how much the next launches ask"
    )
    parser.add_argument("--dev-items", type=int, metavar="N", help="items of the policy dev, from the first on")
    parser.add_argument("--dev-samples", metavar="N|none", help="samples of the policy dev at most")
    parser.add_argument("--on-empty", choices=["keep", "rerun", "skip"], help="what becomes of a blank answer")
    parser.add_argument("--on-unreadable", choices=["keep", "rerun"], help="what becomes of an answer without a rating")
    add_reason(parser)
    parser = add_experiment_verb(verbs, "cancel", "what is pending never starts")
    add_condition_option(parser, "the runs of these conditions only")
    add_reason(parser, needed=True)
    parser.add_argument("--yes", action="store_true")
    parser = add_experiment_verb(verbs, "retry", "give failed trials a new set of attempts")
    parser.add_argument("--error-class", metavar="CLASS", help="only those of this class")
    add_condition_option(parser, "the runs of these conditions only")
    add_reason(parser)
    parser = add_experiment_verb(verbs, "share", "choose who else may read it")
    whom = parser.add_mutually_exclusive_group(required=True)
    add_list_option(whom, "--with", dest="people", metavar="USER", help="these people, and nobody else")
    for audience, what in (("group", "everyone in the group, and viewers"), ("private", "only its owner")):
        whom.add_argument(f"--{audience}", dest="audience", action="store_const", const=audience, default="", help=what)
    add_reason(parser)


class SteeringVerbs(VerbCommand):
    """The methods of the verbs, for the class of the command."""

    def do_set(self, name: str, user: str, reason: str, **options: Any) -> None:
        experiment = get_experiment(name)
        samples = experiment.samples
        data = model_to_dict(experiment, LaunchedExperimentForm.Meta.fields)
        data |= {field: options[field] for field in CHANGEABLE if options[field] is not None}
        given = {field: value for field, value in data.items() if value not in (None, "none")}
        given["reason"] = reason
        form = LaunchedExperimentForm(given, instance=experiment, user=resolve_actor(user))
        if not form.is_valid():
            refuse_input(
                "; ".join(
                    f"{CHANGEABLE.get(field, field)}: {text}" for field in form.errors for text in form.errors[field]
                )
            )
        form.save()
        self.say(f"{name} is changed, from the next call on")
        if experiment.samples > samples and experiment.status == Experiment.Status.ACTIVE:
            self.say(f"`experiment launch {name}` adds the missing trials of {experiment.samples} samples")

    def do_pause(self, name: str, reason: str, user: str, condition: list[str], **options: Any) -> None:
        self._print_moved(
            "paused", run_control.pause(select_runs(name, condition), by=resolve_actor(user), reason=reason)
        )

    def do_resume(self, name: str, reason: str, user: str, condition: list[str], **options: Any) -> None:
        self._print_moved(
            "resumed", run_control.resume(select_runs(name, condition), by=resolve_actor(user), reason=reason)
        )
        self._explain_imported(name)

    def do_cancel(self, name: str, reason: str, user: str, yes: bool, condition: list[str], **options: Any) -> None:
        runs = select_runs(name, condition)
        part = f"{len(runs)} runs of " if condition else ""
        self.confirm(f"Cancel {part}{name}? What is pending will never start.", yes)
        self._print_moved("cancelled", run_control.cancel(runs, by=resolve_actor(user), reason=reason))

    def do_retry(
        self, name: str, error_class: str | None, reason: str, user: str, condition: list[str], **options: Any
    ) -> None:
        n = run_control.retry_failed(
            select_runs(name, condition), error_class=error_class, by=resolve_actor(user), reason=reason
        )
        self.say(f"{format_count(n)} failed trials will be tried again")
        self._explain_imported(name)

    def do_priority(self, name: str, n: int, reason: str, user: str, **options: Any) -> None:
        experiment = get_experiment(name)
        try:
            changed = experiment.change_priority(n, by=resolve_actor(user), reason=reason)
        except ValidationError as error:
            refuse_input(f"n: {' '.join(error.messages)}")
        self.say(f"{name} has priority {n}, from the next claim on" if changed else f"{name} has priority {n} already")

    def do_share(self, name: str, people: list[str], audience: str, reason: str, user: str, **options: Any) -> None:
        experiment = get_experiment(name)
        chosen = [get_reader(one, experiment) for one in people]
        wanted = Experiment.PEOPLE if people else audience
        changed = experiment.share(wanted, chosen, by=resolve_actor(user), reason=reason)
        self.say(f"{name} is shared with{'' if changed else ' (as before)'}: {experiment.audience_text}")

    def _explain_imported(self, name: str) -> None:
        if (experiment := get_experiment(name)).imported_from:
            self.say(describe_imported(experiment))

    def _print_moved(self, word: str, keys: list[int]) -> None:
        self.say(f"{len(keys)} run{'' if len(keys) == 1 else 's'} {word}")
