"""The command `manage.py experiment VERB ...`: designs and their runs, with the same actions as on the site."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.forms import model_to_dict

from datasets_app.models import TransitionError
from datasets_app.models.history import Actor
from evalsite.lib.ops.commands import (
    VerbCommand,
    add_list_option,
    add_reason,
    add_user,
    refuse_input,
    resolve_actor,
    resolve_owner,
)
from evalsite.lib.text.number_format import format_count, format_money
from runs_app import deletion, run_control
from runs_app.forms.audience import find_shareable_people
from runs_app.forms.launched_experiment import LaunchedExperimentForm
from runs_app.management.condition_options import add_condition_option, match_condition_ids
from runs_app.management.cost_confirmation import confirm_cost, print_estimate
from runs_app.management.experiment_list import print_experiments
from runs_app.management.preflights import make_preflights
from runs_app.management.progress_bar import wait_for
from runs_app.models import Experiment, Run
from runs_app.models.runs import RunQuerySet
from runs_app.monitoring.progress import annotate_totals, read_totals
from runs_app.planning.cost_estimate import estimate
from runs_app.planning.design import Design
from runs_app.planning.extension import (
    Extension,
    ExtensionPreview,
    first_wave_label,
    list_different_settings,
    preview_extension,
    read_extension,
)
from runs_app.planning.plan import PlanReport
from runs_app.planning.spec_errors import SpecError
from runs_app.planning.spec_io import build_spec, create_experiment, duplicate, to_yaml
from runs_app.planning.spec_reader import read_extension_yaml, read_yaml
from runs_app.planning.specs import ExtensionSpec
from runs_app.planning.work import PlanError

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


POLICIES = Experiment.BudgetPolicy.values
EXTENDED = ("models", "prompts", "samplers", "dimensions")
OVER_THE_BUDGET = "the ceiling is above the budget; the budget holds, so calls may stop before all trials are made"


class Command(VerbCommand):
    help = "Create, look at, launch, steer, copy and remove experiments."
    refusals = (SpecError, PlanError, TransitionError, run_control.LaunchError)

    def add_verbs(self, verbs: Any) -> None:
        _add_design_verbs(verbs)
        _add_run_verbs(verbs)
        _add_steering_verbs(verbs)
        _add_state_verbs(verbs)

    # --- designs -----------------------------------------------------------------------------------------------------

    def do_create(self, file: Path, user: str, name: str, **options: Any) -> None:
        spec = read_yaml(_read(file))
        spec = spec.model_copy(update={"experiment": name}) if name else spec
        if Experiment.objects.filter(slug=spec.experiment).exists():
            refuse_input(
                f"experiment: {spec.experiment} exists already. `experiment extend {spec.experiment} {file}` adds what "
                "the file has more; --name NAME creates another experiment"
            )
        experiment = create_experiment(spec, by=resolve_owner(user), trusted=True)
        self.say(f"{experiment} is made, as a draft of {experiment.owner}")
        print_estimate(self, estimate(experiment))

    def do_list(self, json: bool, **options: Any) -> None:
        print_experiments(self, json)

    def do_show(self, name: str, json: bool, **options: Any) -> None:
        experiment = _experiment(name)
        if json:
            self.say_json(build_spec(experiment))
            return
        self.say(f"# {experiment.status}, of {experiment.owner}")
        self.say_file(to_yaml(experiment))
        for change in experiment.history:
            reason = f": {change.reason}" if change.reason else ""
            self.say(f"# {change.at:%Y-%m-%d %H:%M:%S} UTC  {change.actor}  {change.what} {change.to_value}{reason}")

    def do_duplicate(self, name: str, new_name: str, user: str, **options: Any) -> None:
        copy = duplicate(_experiment(name), new_name, by=resolve_owner(user))
        self.say(f"{copy} is made, as a draft of {copy.owner}")

    def do_manifests(self, name: str, id: int | None, **options: Any) -> None:
        manifests = _experiment(name).manifests.select_related("created_by")
        if id is None:
            for manifest in manifests:
                self.say(f"{manifest.pk}  {manifest.created_at:%Y-%m-%d %H:%M:%S} UTC  {manifest.summary}")
        elif (found := manifests.filter(pk=id).first()) is not None:
            self.say_json(found.content)
        else:
            refuse_input(f"id: {name} has no manifest {id}; `experiment manifests {name}` lists them")

    # --- before a launch ---------------------------------------------------------------------------------------------

    def do_estimate(self, name: str, wave: str, pilot: int | None, json: bool, **options: Any) -> None:
        experiment = _experiment(name)
        only = _cells(experiment, options["condition"])
        found = estimate(experiment, wave_label=wave, pilot=_pilot(pilot), only=only, policy=options["policy"])
        if json:
            self.say_json(asdict(found))
            return
        print_estimate(self, found)

    def do_preflight(self, name: str, user: str, **options: Any) -> None:
        experiment = _experiment(name)
        models = list(experiment.language_models.values_list("pk", flat=True))
        make_preflights(self, models, by=resolve_actor(user), experiment=experiment)

    # --- runs --------------------------------------------------------------------------------------------------------

    def do_launch(self, name: str, wave: str, yes: bool, wait: bool, user: str, **options: Any) -> None:
        pilot = _pilot(options["pilot"])
        experiment = _experiment(name)
        only = _cells(experiment, options["condition"])
        policy = options["policy"]
        found = estimate(experiment, wave_label=wave, pilot=pilot, only=only, policy=policy)
        if found.problems:
            raise PlanError(found.problems)
        print_estimate(self, found)
        confirm_cost(self, experiment, found, yes)
        report = run_control.launch(
            experiment, by=resolve_actor(user), wave=wave, pilot=pilot, approved=found, only=only, policy=policy
        )
        done = "is launched" if report.is_new else "was launched before, and nothing has changed"
        self.say(f"{experiment} {done}: {report.summary}")
        for note in report.notes:
            self.say(note)
        if wait:
            wait_for(self, Run.objects.filter(pk__in=report.run_ids))

    def do_extend(self, name: str, file: Path | None, user: str, reason: str, **options: Any) -> None:
        experiment = _experiment(name)
        spec = _extension_spec(file, options)
        maker = resolve_owner(user) if user else experiment.owner
        with transaction.atomic():  # A refusal rolls back the rows that the file defines inline.
            extension = read_extension(spec, experiment, by=maker, trusted=True)
            for key in list_different_settings(spec, experiment):
                self.stderr.write(f"warning: {key} of the file is not taken over; `experiment set` changes settings")
            if extension.is_empty:
                self.say(f"{experiment} has all of this already: nothing to add")
                return
            report = self._extend(experiment, extension, resolve_actor(user), reason, options)
        if report and options["wait"]:
            wait_for(self, Run.objects.filter(pk__in=report.run_ids))

    def _extend(
        self, experiment: Experiment, extension: Extension, by: Actor, reason: str, options: Any
    ) -> PlanReport | None:
        wave = first_wave_label(experiment) if options["wave"] is None else options["wave"]
        preview = preview_extension(experiment, extension, wave_label=wave)
        self.say(f"joins {experiment}: {extension}")
        if preview.problems:
            raise PlanError(preview.problems)
        self._say_preview(preview)
        if options["dry_run"]:
            transaction.set_rollback(True)
            return None
        confirm_cost(self, experiment, preview.after, options["yes"], "Extend")
        report = run_control.extend(experiment, extension, by=by, reason=reason, wave=wave, approved=preview.after)
        self.say(f"{experiment} is extended: {report.summary}")
        for note in report.notes:
            self.say(note)
        return report

    def _say_preview(self, preview: ExtensionPreview) -> None:
        new, most = format_count(preview.new_trials), format_money(preview.ceiling_usd)
        likely = format_money(preview.expected_usd)
        self.say(f"{preview.new_conditions} new conditions, {new} new trials: at most {most}, expected {likely}")
        if preview.unlaunched:
            rest = format_count(preview.unlaunched)
            self.say(f"and {rest} trials of the design as it was, which were not launched yet")
        print_estimate(self, preview.after)
        if preview.is_over_budget:
            self.stderr.write(f"warning: {OVER_THE_BUDGET}", self.style.WARNING)

    def do_set(self, name: str, user: str, reason: str, **options: Any) -> None:
        experiment = _experiment(name)
        samples = experiment.samples
        data = model_to_dict(experiment, LaunchedExperimentForm.Meta.fields)
        data |= {field: options[field] for field in CHANGEABLE if options[field] is not None}
        said = {field: value for field, value in data.items() if value not in (None, "none")}
        said["reason"] = reason
        form = LaunchedExperimentForm(said, instance=experiment, user=resolve_actor(user))
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
        self._say_moved("paused", run_control.pause(_runs(name, condition), by=resolve_actor(user), reason=reason))

    def do_resume(self, name: str, reason: str, user: str, condition: list[str], **options: Any) -> None:
        self._say_moved("resumed", run_control.resume(_runs(name, condition), by=resolve_actor(user), reason=reason))

    def do_cancel(self, name: str, reason: str, user: str, yes: bool, condition: list[str], **options: Any) -> None:
        runs = _runs(name, condition)
        part = f"{len(runs)} runs of " if condition else ""
        self.confirm(f"Cancel {part}{name}? What is pending will never start.", yes)
        self._say_moved("cancelled", run_control.cancel(runs, by=resolve_actor(user), reason=reason))

    def do_retry(
        self, name: str, error_class: str | None, reason: str, user: str, condition: list[str], **options: Any
    ) -> None:
        n = run_control.retry_failed(
            _runs(name, condition), error_class=error_class, by=resolve_actor(user), reason=reason
        )
        self.say(f"{format_count(n)} failed trials will be tried again")

    def do_priority(self, name: str, n: int, reason: str, user: str, **options: Any) -> None:
        experiment = _experiment(name)
        try:
            changed = experiment.change_priority(n, by=resolve_actor(user), reason=reason)
        except ValidationError as error:
            refuse_input(f"n: {' '.join(error.messages)}")
        self.say(f"{name} has priority {n}, from the next claim on" if changed else f"{name} has priority {n} already")

    def do_share(self, name: str, people: list[str], audience: str, reason: str, user: str, **options: Any) -> None:
        experiment = _experiment(name)
        chosen = [_reader(one, experiment) for one in people]
        wanted = Experiment.PEOPLE if people else audience
        changed = experiment.share(wanted, chosen, by=resolve_actor(user), reason=reason)
        self.say(f"{name} is shared with{'' if changed else ' (as before)'}: {experiment.audience_text}")

    def _say_moved(self, word: str, keys: list[int]) -> None:
        self.say(f"{len(keys)} run{'' if len(keys) == 1 else 's'} {word}")

    # --- out of use --------------------------------------------------------------------------------------------------

    def do_archive(self, name: str, reason: str, user: str, **options: Any) -> None:
        deletion.archive(_experiment(name), by=resolve_actor(user), reason=reason)
        self.say(f"{name} is archived")

    def do_delete_run(self, name: str, run: int, reason: str, user: str, yes: bool, **options: Any) -> None:
        found = _experiment(name).runs.with_design().filter(pk=run).first()
        if found is None:
            refuse_input(f"run: {name} has no run {run}; `status {name} --json` names them")
        self.confirm(f"Delete {found} ({found.condition.label})? {deletion.describe_run_deletion(found)}", yes)
        deletion.delete_run(found, by=resolve_actor(user), reason=reason)
        self.say(f"run {run} of {name} is deleted")

    def do_delete(self, name: str, reason: str, user: str, yes: bool, **options: Any) -> None:
        experiment = _experiment(name)
        totals = read_totals(annotate_totals(Experiment.objects.filter(pk=experiment.pk)).get())
        spent = format_money(experiment.spent_usd)
        self.confirm(f"Delete {name} with its {format_count(totals.trials)} trials, which cost {spent}?", yes)
        deletion.delete(experiment, by=resolve_actor(user), reason=reason)
        self.say(f"{name} is deleted")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        refuse_input(f"file: {file} cannot be read: {error}")


def _extension_spec(file: Path | None, options: Any) -> ExtensionSpec:
    """Return the sum of the file's and the options' additions."""
    spec = read_extension_yaml(_read(file)) if file else ExtensionSpec()
    given = {axis: [*getattr(spec, axis), *_references(options[axis])] for axis in EXTENDED}
    samples = options["samples"] if options["samples"] is not None else spec.samples
    return spec.model_copy(update={**given, "samples": samples})


def _references(given: Sequence[str] | None) -> list[str]:
    """Return each name once, in the given order."""
    return list(dict.fromkeys(given or ()))


def _experiment(name: str) -> Experiment:
    found: Experiment | None = Experiment.objects.select_related("owner", "dataset").filter(slug=name).first()
    return found or _unknown(name)


def _reader(username: str, experiment: Experiment) -> User:
    found = find_shareable_people(experiment).filter(username=username).first()
    return found or refuse_input(f"with: {username} is no member or viewer besides the owner")


def _pilot(n: int | None) -> int | None:
    if n is not None and n < 1:
        refuse_input("pilot: it has at least one trial")
    return n


def _unknown(name: str) -> NoReturn:
    refuse_input(f"name: there is no experiment {name}; `experiment list` names them")


def _cells(experiment: Experiment, wanted: Sequence[str]) -> list[str] | None:
    """Return the ids of the design's cells that `--condition` names, or None for all cells."""
    if not wanted:
        return None
    cells = Design.of(experiment).cell_ids
    return [cells[known] for known in match_condition_ids(cells, wanted)]


def _runs(name: str, conditions: Sequence[str] = ()) -> RunQuerySet:
    experiment = _experiment(name)
    runs: QuerySet[Run] = experiment.runs.all()
    if conditions:
        known = set(experiment.conditions.values_list("condition_id", flat=True))
        runs = runs.filter(condition__condition_id__in=match_condition_ids(known, conditions))
    return Run.objects.filter(pk__in=runs.values("pk"))


def _add_design_verbs(verbs: Any) -> None:
    parser = verbs.add_parser("create", help="an experiment file (YAML), or a manifest, to a draft")
    parser.add_argument("file", type=Path)
    parser.add_argument("--name", default="", help="instead of the name in the file")
    add_user(parser, "its owner; default: the only superuser")
    verbs.add_parser("list", help="all experiments").add_argument("--json", action="store_true")
    parser = _verb(verbs, "show", "the design as a file, and the history")
    parser.add_argument("--json", action="store_true")
    parser = _verb(verbs, "manifests", "what each launch wrote down; with an id, that one in full, as JSON")
    parser.add_argument("id", type=int, nargs="?")
    parser = _verb(verbs, "duplicate", "a draft of the same design")
    parser.add_argument("new_name")
    add_user(parser, "the owner of the copy; default: the only superuser")


def _add_run_verbs(verbs: Any) -> None:
    parser = _verb(verbs, "estimate", "trials and cost of a launch")
    parser.add_argument("--wave", default="", metavar="LABEL")
    _add_pilot(parser)
    parser.add_argument("--json", action="store_true")
    add_condition_option(parser, "these conditions only")
    add_user(_verb(verbs, "preflight", "one tiny call to each model"))
    parser = _verb(verbs, "launch", "plan what is missing, and start")
    parser.add_argument("--wave", default="", metavar="LABEL", help="a new observation of the design")
    _add_pilot(parser)
    add_condition_option(parser, "plan and start these conditions only")
    parser.add_argument("--wait", action="store_true", help="show the progress until all is done")
    parser.add_argument("--yes", action="store_true", help="the cost is known")
    add_user(parser)
    parser = _verb(
        verbs, "extend", "add models, prompts, samplers, dimensions or samples to a launched design, and start"
    )
    parser.add_argument("file", type=Path, nargs="?", help="the experiment file as it was edited, or only what joins")
    for axis in EXTENDED:
        name = axis.removesuffix("s")
        parser.add_argument(
            f"--{name}", dest=axis, action="append", metavar="NAME", help=f"a {name} that joins; repeatable"
        )
    parser.add_argument("--samples", type=int, metavar="N", help="the new number of samples")
    parser.add_argument("--wave", metavar="LABEL", help="the wave that gets the new trials; default: the first")
    parser.add_argument("--dry-run", action="store_true", help="show the new trials and their cost only")
    parser.add_argument("--wait", action="store_true", help="show the progress until all is done")
    parser.add_argument("--yes", action="store_true", help="the cost is known")
    add_reason(parser)


def _add_steering_verbs(verbs: Any) -> None:
    for verb, what in (("pause", "no new calls start"), ("resume", "calls start again")):
        parser = _verb(verbs, verb, what)
        add_condition_option(parser, "the runs of these conditions only")
        add_reason(parser)
    parser = _verb(verbs, "priority", "its place among experiments that share an endpoint, also while it runs")
    parser.add_argument("n", type=int, metavar="N", help="-9 to 9; a higher one goes first")
    add_reason(parser)
    parser = _verb(verbs, "set", "change what may change while it runs")
    parser.add_argument("--budget", dest="max_usd", metavar="USD|none", help="holds from the next call on")
    parser.add_argument("--confirm-above", dest="confirm_above_usd", metavar="USD|none")
    parser.add_argument("--stop-failure-rate", type=float, metavar="SHARE", help="of failures that stops a run")
    parser.add_argument("--samples", type=int, metavar="N", help="repetitions; may grow, and the next launch adds them")
    parser.add_argument("--timeout", dest="request_timeout_s", type=float, metavar="SECONDS", help="of a call")
    parser.add_argument("--attempts", dest="max_attempts", type=int, metavar="N", help="tries of a trial")
    parser.add_argument("--backoff", dest="backoff_s", type=float, metavar="SECONDS", help="first wait after a failure")
    parser.add_argument("--max-backoff", dest="max_backoff_s", type=float, metavar="SECONDS", help="longest wait")
    parser.add_argument("--policy", dest="budget_policy", choices=POLICIES, help="how much the next launches ask")
    parser.add_argument("--dev-items", type=int, metavar="N", help="items of the policy dev, from the first on")
    parser.add_argument("--dev-samples", metavar="N|none", help="samples of the policy dev at most")
    parser.add_argument("--on-empty", choices=["keep", "rerun", "skip"], help="what becomes of a blank answer")
    parser.add_argument("--on-unreadable", choices=["keep", "rerun"], help="what becomes of an answer without a rating")
    add_reason(parser)
    parser = _verb(verbs, "cancel", "what is pending never starts")
    add_condition_option(parser, "the runs of these conditions only")
    add_reason(parser, needed=True)
    parser.add_argument("--yes", action="store_true")
    parser = _verb(verbs, "retry", "give failed trials a new set of attempts")
    parser.add_argument("--error-class", metavar="CLASS", help="only those of this class")
    add_condition_option(parser, "the runs of these conditions only")
    add_reason(parser)


def _add_state_verbs(verbs: Any) -> None:
    parser = _verb(verbs, "share", "choose who else may read it")
    whom = parser.add_mutually_exclusive_group(required=True)
    add_list_option(whom, "--with", dest="people", metavar="USER", help="these people, and nobody else")
    for audience, what in (("group", "everyone in the group, and viewers"), ("private", "only its owner")):
        whom.add_argument(f"--{audience}", dest="audience", action="store_const", const=audience, default="", help=what)
    add_reason(parser)
    add_reason(_verb(verbs, "archive", "take it out of use, keep all rows"), needed=True)
    parser = _verb(verbs, "delete-run", "one run, with its trials, answers and grades; what it cost stays spent")
    parser.add_argument("run", type=int, metavar="RUN")
    add_reason(parser, needed=True)
    parser.add_argument("--yes", action="store_true")
    parser = _verb(verbs, "delete", "with its runs, trials, answers and grades")
    add_reason(parser, needed=True)
    parser.add_argument("--yes", action="store_true")


def _verb(verbs: Any, name: str, what: str) -> ArgumentParser:
    parser: ArgumentParser = verbs.add_parser(name, help=what)
    parser.add_argument("name")
    return parser


def _add_pilot(parser: ArgumentParser) -> None:
    parser.add_argument("--pilot", type=int, metavar="N", help="only so many trials, spread over the design")
    parser.add_argument("--policy", choices=POLICIES, help="budget policy of this launch; default: the design's")
