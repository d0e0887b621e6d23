"""The command `manage.py experiment VERB ...`: designs and runs, with the same actions as on the site."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.template.defaultfilters import filesizeformat

from evalsite.lib.history import TransitionError
from evalsite.lib.ops.commands import (
    VerbCommand,
    add_reason,
    add_user,
    refuse_input,
    resolve_actor,
    resolve_owner,
)
from evalsite.lib.text.number_format import format_count, format_money
from grading_app.grading.judging.grader_specs import create_experiment
from grading_app.study_import.stored_rows import bring_back, store_rows
from runs_app import deletion, run_control
from runs_app.bounds import BOUNDS
from runs_app.experiment_files.spec_reader import SpecError, read_yaml
from runs_app.experiment_options import BudgetPolicy
from runs_app.management.experiment_lookup import (
    add_condition_option,
    add_experiment_verb,
    check_pilot,
    get_experiment,
    print_experiments,
    read_file,
    select_cells,
)
from runs_app.management.experiment_verbs import ExtendVerb, RunControlVerbs, add_extend_verb, add_run_control_verbs
from runs_app.management.started_work import confirm_cost, make_preflights, print_estimate, wait_for
from runs_app.management.versions import print_history
from runs_app.models import Experiment, Run
from runs_app.planning.cost_estimate import estimate
from runs_app.planning.spec_io import build_spec, duplicate, to_yaml
from runs_app.planning.work import PlanError

DEFAULT_SHUFFLE = 42  # The seed of `create --shuffle` without a number.


class Command(ExtendVerb, RunControlVerbs, VerbCommand):
    help = "Create, show, launch, control, duplicate and delete experiments."
    refusals = (SpecError, PlanError, TransitionError, run_control.LaunchError)

    def add_verbs(self, verbs: Any) -> None:
        parser = verbs.add_parser("create", help="create a draft from an experiment file (YAML) or a manifest")
        parser.add_argument("file", type=Path)
        parser.add_argument("--name", default="", help="replaces the name in the file")
        parser.add_argument(
            "--shuffle",
            type=int,
            nargs="?",
            const=DEFAULT_SHUFFLE,
            metavar="SEED",
            help=f"run items in random order; replaces the seed in the file; default: {DEFAULT_SHUFFLE}",
        )
        add_user(parser, "the owner; default: the only superuser")
        verbs.add_parser("list", help="list all experiments").add_argument("--json", action="store_true")
        parser = add_experiment_verb(verbs, "show", "show the design as a file, and its history")
        parser.add_argument("--json", action="store_true")
        parser = add_experiment_verb(verbs, "manifests", "list the records of launches, or print one as JSON")
        parser.add_argument("id", type=int, nargs="?")
        parser = add_experiment_verb(verbs, "duplicate", "create a draft of the same design")
        parser.add_argument("new_name")
        add_user(parser, "the owner of the copy; default: the only superuser")
        _add_run_verbs(verbs)
        add_extend_verb(verbs)
        add_run_control_verbs(verbs)
        _add_state_verbs(verbs)

    # --- designs -----------------------------------------------------------------------------------------------------

    def do_create(self, file: Path, user: str, name: str, shuffle: int | None, **options: Any) -> None:
        spec = read_yaml(read_file(file))
        spec = spec.model_copy(update={"experiment": name}) if name else spec
        if shuffle is not None:
            seeds = BOUNDS["experiment"]["shuffle"]
            if not seeds.contains(shuffle):
                refuse_input(f"--shuffle: the seed must be {seeds}, not {shuffle}")
            spec = spec.model_copy(update={"shuffle": shuffle})
        if Experiment.objects.filter(slug=spec.experiment).exists():
            refuse_input(
                f"experiment: {spec.experiment} already exists. `experiment extend {spec.experiment} {file}` adds the "
                "file's additions to it; --name NAME creates another experiment"
            )
        experiment = create_experiment(spec, by=resolve_owner(user), trusted=True)
        self.write(f"{experiment} is created, as a draft of {experiment.owner}")
        print_estimate(self, estimate(experiment))

    def do_list(self, json: bool, **options: Any) -> None:
        print_experiments(self, json)

    def do_show(self, name: str, json: bool, **options: Any) -> None:
        experiment = get_experiment(name, needs_rows=False)
        if json:
            self.write_json(build_spec(experiment))
            return
        self.write(f"# {experiment.status}, of {experiment.owner}")
        self.write_file(to_yaml(experiment))
        print_history(self, experiment)

    def do_duplicate(self, name: str, new_name: str, user: str, **options: Any) -> None:
        copy = duplicate(get_experiment(name), new_name, by=resolve_owner(user))
        self.write(f"{copy} is created, as a draft of {copy.owner}")

    def do_manifests(self, name: str, id: int | None, **options: Any) -> None:
        manifests = get_experiment(name).manifests.select_related("created_by")
        if id is None:
            for row in manifests:
                self.write(f"{row.pk}  {row.created_at:%Y-%m-%d %H:%M:%S} UTC  {row.summary}")
        elif (manifest := manifests.filter(pk=id).first()) is not None:
            self.write_json(manifest.content)
        else:
            refuse_input(f"id: {name} has no manifest {id}; see `experiment manifests {name}`")

    # --- before a launch ---------------------------------------------------------------------------------------------

    def do_estimate(self, name: str, wave: str, pilot: int | None, json: bool, **options: Any) -> None:
        experiment = get_experiment(name)
        only = select_cells(experiment, options["condition"])
        cost = estimate(experiment, wave_label=wave, pilot=check_pilot(pilot), only=only, policy=options["policy"])
        if json:
            self.write_json(asdict(cost))
            return
        print_estimate(self, cost)

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
        cost = estimate(experiment, wave_label=wave, pilot=pilot, only=only, policy=policy)
        if cost.problems:
            raise PlanError(cost.problems)
        print_estimate(self, cost)
        confirm_cost(self, experiment, cost, yes)
        report = run_control.launch(
            experiment, by=resolve_actor(user), wave=wave, pilot=pilot, approved=cost, only=only, policy=policy
        )
        outcome = "is launched" if report.is_new else "was already launched, and nothing has changed"
        self.write(f"{experiment} {outcome}: {report.summary}")
        for note in report.notes:
            self.write(note)
        if wait:
            wait_for(self, Run.objects.filter(pk__in=report.run_ids))

    # --- archiving and deletion --------------------------------------------------------------------------------------

    def do_archive(self, name: str, reason: str, user: str, **options: Any) -> None:
        get_experiment(name).archive(by=resolve_actor(user), reason=reason)
        self.write(f"{name} is archived")

    def do_store(self, name: str, reason: str, user: str, **options: Any) -> None:
        stored = store_rows(get_experiment(name), by=resolve_actor(user), reason=reason)
        size = filesizeformat(stored.size)
        self.write(f"the rows of {name} are in {stored.path}, {size}; `experiment bring-back {name}` restores them")

    def do_bring_back(self, name: str, reason: str, user: str, **options: Any) -> None:
        bring_back(get_experiment(name, needs_rows=False), by=resolve_actor(user), reason=reason)
        self.write(f"the rows of {name} are in the database again")

    def do_delete_run(self, name: str, run: int, reason: str, user: str, yes: bool, **options: Any) -> None:
        row = get_experiment(name).runs.with_design().filter(pk=run).first()
        if row is None:
            refuse_input(f"run: {name} has no run {run}; see `status {name} --json`")
        self.confirm(f"Delete {row} ({row.condition.label})? {row.describe_deletion()}", yes)
        deletion.delete_run(row, by=resolve_actor(user), reason=reason)
        self.write(f"run {run} of {name} is deleted")

    def do_delete(self, name: str, reason: str, user: str, yes: bool, **options: Any) -> None:
        experiment = get_experiment(name, needs_rows=False)
        totals = Experiment.objects.filter(pk=experiment.pk).with_totals().get().read_totals()
        spent = format_money(experiment.spent_usd)
        self.confirm(f"Delete {name} with its {format_count(totals.trials)} trials, which cost {spent}?", yes)
        deletion.delete(experiment, by=resolve_actor(user), reason=reason)
        self.write(f"{name} is deleted")


def _add_run_verbs(verbs: Any) -> None:
    parser = add_experiment_verb(verbs, "estimate", "estimate the trials and the cost of a launch")
    parser.add_argument("--wave", default="", metavar="LABEL")
    _add_pilot(parser)
    parser.add_argument("--json", action="store_true")
    add_condition_option(parser, "only these conditions")
    add_user(add_experiment_verb(verbs, "preflight", "make one small call to each model"))
    parser = add_experiment_verb(verbs, "launch", "plan the missing trials, and start")
    parser.add_argument("--wave", default="", metavar="LABEL", help="a new observation of the design")
    _add_pilot(parser)
    add_condition_option(parser, "plan and start only these conditions")
    parser.add_argument("--wait", action="store_true", help="show the progress until all trials are done")
    parser.add_argument("--yes", action="store_true", help="accept the cost")
    add_user(parser)


def _add_state_verbs(verbs: Any) -> None:
    add_reason(add_experiment_verb(verbs, "archive", "archive the experiment and keep all rows"), required=True)
    add_reason(add_experiment_verb(verbs, "store", "move the rows of an archived experiment to a file"), required=True)
    add_reason(add_experiment_verb(verbs, "bring-back", "move the rows of a stored experiment back"), required=True)
    parser = add_experiment_verb(
        verbs, "delete-run", "delete a run with its trials, answers and grades; its cost stays spent"
    )
    parser.add_argument("run", type=int, metavar="RUN")
    add_reason(parser, required=True)
    parser.add_argument("--yes", action="store_true")
    parser = add_experiment_verb(verbs, "delete", "delete the experiment with its runs, trials, answers and grades")
    add_reason(parser, required=True)
    parser.add_argument("--yes", action="store_true")


def _add_pilot(parser: ArgumentParser) -> None:
    parser.add_argument("--pilot", type=int, metavar="N", help="run this many trials first, spread over the design")
    parser.add_argument(
        "--policy", choices=list(BudgetPolicy), help="budget policy of this launch; default: the design's"
    )
