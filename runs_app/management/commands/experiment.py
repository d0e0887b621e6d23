"""The command `manage.py experiment VERB ...`: designs and their runs, with the same actions as on the site."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datasets_app.models import TransitionError
from evalsite.lib.ops.commands import (
    VerbCommand,
    add_reason,
    add_user,
    refuse_input,
    resolve_actor,
    resolve_owner,
)
from evalsite.lib.text.number_format import format_count, format_money
from runs_app import deletion, run_control
from runs_app.experiment_files.spec_errors import SpecError
from runs_app.experiment_files.spec_reader import read_yaml
from runs_app.management.condition_options import add_condition_option
from runs_app.management.cost_confirmation import confirm_cost, print_estimate
from runs_app.management.experiment_list import print_experiments
from runs_app.management.experiment_lookup import (
    add_experiment_verb,
    check_pilot,
    get_experiment,
    read_file,
    select_cells,
)
from runs_app.management.extend_verb import ExtendVerb, add_extend_verb
from runs_app.management.preflights import make_preflights
from runs_app.management.progress_bar import wait_for
from runs_app.management.steering_verbs import SteeringVerbs, add_steering_verbs
from runs_app.models import Experiment, Run
from runs_app.monitoring.progress import annotate_totals, read_totals
from runs_app.planning.cost_estimate import estimate
from runs_app.planning.spec_io import build_spec, create_experiment, duplicate, to_yaml
from runs_app.planning.work import PlanError


class Command(ExtendVerb, SteeringVerbs, VerbCommand):
    help = "Create, look at, launch, steer, copy and remove experiments."
    refusals = (SpecError, PlanError, TransitionError, run_control.LaunchError)

    def add_verbs(self, verbs: Any) -> None:
        _add_design_verbs(verbs)
        _add_run_verbs(verbs)
        add_extend_verb(verbs)
        add_steering_verbs(verbs)
        _add_state_verbs(verbs)

    # --- designs -----------------------------------------------------------------------------------------------------

    def do_create(self, file: Path, user: str, name: str, **options: Any) -> None:
        spec = read_yaml(read_file(file))
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
        experiment = get_experiment(name)
        if json:
            self.say_json(build_spec(experiment))
            return
        self.say(f"# {experiment.status}, of {experiment.owner}")
        self.say_file(to_yaml(experiment))
        for change in experiment.history:
            reason = f": {change.reason}" if change.reason else ""
            self.say(f"# {change.at:%Y-%m-%d %H:%M:%S} UTC  {change.actor}  {change.what} {change.to_value}{reason}")

    def do_duplicate(self, name: str, new_name: str, user: str, **options: Any) -> None:
        copy = duplicate(get_experiment(name), new_name, by=resolve_owner(user))
        self.say(f"{copy} is made, as a draft of {copy.owner}")

    def do_manifests(self, name: str, id: int | None, **options: Any) -> None:
        manifests = get_experiment(name).manifests.select_related("created_by")
        if id is None:
            for manifest in manifests:
                self.say(f"{manifest.pk}  {manifest.created_at:%Y-%m-%d %H:%M:%S} UTC  {manifest.summary}")
        elif (found := manifests.filter(pk=id).first()) is not None:
            self.say_json(found.content)
        else:
            refuse_input(f"id: {name} has no manifest {id}; `experiment manifests {name}` lists them")

    # --- before a launch ---------------------------------------------------------------------------------------------

    def do_estimate(self, name: str, wave: str, pilot: int | None, json: bool, **options: Any) -> None:
        experiment = get_experiment(name)
        only = select_cells(experiment, options["condition"])
        found = estimate(experiment, wave_label=wave, pilot=check_pilot(pilot), only=only, policy=options["policy"])
        if json:
            self.say_json(asdict(found))
            return
        print_estimate(self, found)

    def do_preflight(self, name: str, user: str, **options: Any) -> None:
        experiment = get_experiment(name)
        models = list(experiment.language_models.values_list("pk", flat=True))
        make_preflights(self, models, by=resolve_actor(user), experiment=experiment)

    # --- runs --------------------------------------------------------------------------------------------------------

    def do_launch(self, name: str, wave: str, yes: bool, wait: bool, user: str, **options: Any) -> None:
        pilot = check_pilot(options["pilot"])
        experiment = get_experiment(name)
        only = select_cells(experiment, options["condition"])
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

    # --- out of use --------------------------------------------------------------------------------------------------

    def do_archive(self, name: str, reason: str, user: str, **options: Any) -> None:
        deletion.archive(get_experiment(name), by=resolve_actor(user), reason=reason)
        self.say(f"{name} is archived")

    def do_delete_run(self, name: str, run: int, reason: str, user: str, yes: bool, **options: Any) -> None:
        found = get_experiment(name).runs.with_design().filter(pk=run).first()
        if found is None:
            refuse_input(f"run: {name} has no run {run}; `status {name} --json` names them")
        self.confirm(f"Delete {found} ({found.condition.label})? {deletion.describe_run_deletion(found)}", yes)
        deletion.delete_run(found, by=resolve_actor(user), reason=reason)
        self.say(f"run {run} of {name} is deleted")

    def do_delete(self, name: str, reason: str, user: str, yes: bool, **options: Any) -> None:
        experiment = get_experiment(name)
        totals = read_totals(annotate_totals(Experiment.objects.filter(pk=experiment.pk)).get())
        spent = format_money(experiment.spent_usd)
        self.confirm(f"Delete {name} with its {format_count(totals.trials)} trials, which cost {spent}?", yes)
        deletion.delete(experiment, by=resolve_actor(user), reason=reason)
        self.say(f"{name} is deleted")


def _add_design_verbs(verbs: Any) -> None:
    parser = verbs.add_parser("create", help="an experiment file (YAML), or a manifest, to a draft")
    parser.add_argument("file", type=Path)
    parser.add_argument("--name", default="", help="instead of the name in the file")
    add_user(parser, "its owner; default: the only superuser")
    verbs.add_parser("list", help="all experiments").add_argument("--json", action="store_true")
    parser = add_experiment_verb(verbs, "show", "the design as a file, and the history")
    parser.add_argument("--json", action="store_true")
    parser = add_experiment_verb(
        verbs, "manifests", "what each launch wrote down; with an id, that one in full, as JSON"
    )
    parser.add_argument("id", type=int, nargs="?")
    parser = add_experiment_verb(verbs, "duplicate", "a draft of the same design")
    parser.add_argument("new_name")
    add_user(parser, "the owner of the copy; default: the only superuser")


def _add_run_verbs(verbs: Any) -> None:
    parser = add_experiment_verb(verbs, "estimate", "trials and cost of a launch")
    parser.add_argument("--wave", default="", metavar="LABEL")
    _add_pilot(parser)
    parser.add_argument("--json", action="store_true")
    add_condition_option(parser, "these conditions only")
    add_user(add_experiment_verb(verbs, "preflight", "one tiny call to each model"))
    parser = add_experiment_verb(verbs, "launch", "plan what is missing, and start")
    parser.add_argument("--wave", default="", metavar="LABEL", help="a new observation of the design")
    _add_pilot(parser)
    add_condition_option(parser, "plan and start these conditions only")
    parser.add_argument("--wait", action="store_true", help="show the progress until all is done")
    parser.add_argument("--yes", action="store_true", help="the cost is known")
    add_user(parser)


def _add_state_verbs(verbs: Any) -> None:
    add_reason(add_experiment_verb(verbs, "archive", "take it out of use, keep all rows"), needed=True)
    parser = add_experiment_verb(
        verbs, "delete-run", "one run, with its trials, answers and grades; what it cost stays spent"
    )
    parser.add_argument("run", type=int, metavar="RUN")
    add_reason(parser, needed=True)
    parser.add_argument("--yes", action="store_true")
    parser = add_experiment_verb(verbs, "delete", "with its runs, trials, answers and grades")
    add_reason(parser, needed=True)
    parser.add_argument("--yes", action="store_true")


def _add_pilot(parser: ArgumentParser) -> None:
    parser.add_argument("--pilot", type=int, metavar="N", help="only so many trials, spread over the design")
    parser.add_argument(
        "--policy", choices=Experiment.BudgetPolicy.values, help="budget policy of this launch; default: the design's"
    )
