"""Lookups that commands share: experiments, runs, cells, people and files by the values of options.

`--condition` selects conditions by id or prefix. `print_experiments` lists all experiments, one line each.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet

from evalsite.lib.ops.commands import OutputCommand, refuse_input
from evalsite.lib.text.names import UnknownNameError
from evalsite.lib.text.number_format import format_count, format_money
from runs_app.models import Experiment, Run, Wave
from runs_app.models.runs import RunQuerySet
from runs_app.planning.design import Design


def add_experiment_verb(verbs: Any, name: str, help_text: str) -> ArgumentParser:
    parser: ArgumentParser = verbs.add_parser(name, help=help_text)
    parser.add_argument("name")
    return parser


def read_file(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        refuse_input(f"file: {file} cannot be read: {error}")


def get_experiment(name: str, argument: str = "name", *, needs_rows: bool = True) -> Experiment:
    """Return the experiment of this name. End the command with exit code 2 if it, or its needed rows, are not there."""
    experiments = Experiment.objects.select_related("owner", "dataset")
    experiment: Experiment | None = experiments.filter(slug=name).first()
    if experiment is None:
        refuse_input(f"{argument}: there is no experiment {name}; see `experiment list`")
    if needs_rows and experiment.is_stored:
        refuse_input(f"{argument}: the rows of {name} are in a file; run `experiment bring-back {name}` first")
    return experiment


def choose_wave(experiment: Experiment, name: str, option: str = "--wave") -> Wave | None:
    """Return the wave of the option; None for an empty name. End the command with exit code 2 for an unknown wave."""
    try:
        wave: Wave | None = experiment.find_wave(name) if name else None
    except UnknownNameError as error:
        refuse_input(f"{option}: {error}")
    return wave


def get_reader(username: str, experiment: Experiment) -> User:
    user = experiment.find_shareable_people().filter(username=username).first()
    return user or refuse_input(f"with: {username} is not a member or viewer other than the owner")


def check_pilot(n: int | None) -> int | None:
    if n is not None and n < 1:
        refuse_input("pilot: enter at least 1 trial")
    return n


def select_cells(experiment: Experiment, prefixes: Sequence[str]) -> list[str] | None:
    """Return the ids of the design's cells that `--condition` selects, or None for all cells."""
    if not prefixes:
        return None
    cells = Design.load(experiment).cell_ids
    return [cells[key] for key in match_condition_ids(cells, prefixes)]


def select_runs(name: str, conditions: Sequence[str] = ()) -> RunQuerySet:
    experiment = get_experiment(name)
    runs: QuerySet[Run] = experiment.runs.all()
    if conditions:
        condition_ids = set(experiment.conditions.values_list("condition_id", flat=True))
        runs = runs.filter(condition__condition_id__in=match_condition_ids(condition_ids, conditions))
    return Run.objects.filter(pk__in=runs.values("pk"))


def add_condition_option(parser: ArgumentParser, help_text: str) -> None:
    parser.add_argument(
        "--condition", action="append", default=[], metavar="ID", help=f"{help_text}: an id or its prefix; repeatable"
    )


def match_condition_ids(condition_ids: Collection[str], prefixes: Sequence[str]) -> list[str]:
    """Return the ids that match the prefixes, each once.

    Exit with code 2 and the valid ids if a prefix matches none or several.
    """
    return list(dict.fromkeys(_match_condition_id(condition_ids, prefix) for prefix in prefixes))


def _match_condition_id(condition_ids: Collection[str], prefix: str) -> str:
    if prefix in condition_ids:
        return prefix
    matches = [condition_id for condition_id in condition_ids if prefix and condition_id.startswith(prefix)]
    if len(matches) != 1:
        problem = f"{prefix} matches several conditions" if matches else f"there is no condition {prefix}"
        valid = "".join(f"\n  {condition_id}" for condition_id in sorted(matches or condition_ids)) or " none yet"
        refuse_input(f"--condition: {problem}; valid ids:{valid}")
    return matches[0]


def print_experiments(command: OutputCommand, as_json: bool) -> None:
    experiments = Experiment.objects.select_related("owner", "dataset").with_totals()
    if as_json:
        command.write_json([_build_row(experiment) for experiment in experiments])
        return
    for experiment in experiments:
        totals = experiment.read_totals()
        state = experiment.find_state(totals)
        trials = f"{format_count(totals.done)}/{format_count(totals.trials)}"
        cost = format_money(totals.find_known_cost(experiment.spent_usd))
        command.write(f"{experiment.slug:<32} {state:<10} {trials:>16}  {cost:>10}")


def _build_row(experiment: Experiment) -> dict[str, Any]:
    totals = experiment.read_totals()
    return {
        "experiment": experiment.slug,
        "state": experiment.find_state(totals),
        "owner": experiment.owner.username,
        "dataset": str(experiment.dataset),
        "trials": totals.trials,
        "done": totals.done,
        "failed": totals.failed,
        "remaining": totals.remaining,
        "spent_usd": totals.find_known_cost(experiment.spent_usd),
        "max_usd": experiment.max_usd,
    }
