"""`manage.py surface EXPERIMENT [--view V] [--format F] [--out PATH]`: the numbers of the explorer as a table."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from evalsite.lib.ops.commands import OutputCommand, add_list_option, choose_format, refuse_input
from grading_app.management.output import write_output
from grading_app.models import CachedAggregate
from grading_app.results.cached_aggregates import compute_rows
from grading_app.results.parametric import surface_tables
from grading_app.results.parametric.explorer_query import FIXED_PREFIX, ExplorerState, load_explorer
from grading_app.results.table import FORMATS
from runs_app.management.experiment_lookup import choose_wave, get_experiment
from runs_app.models import Experiment

TABLES = {
    "models": surface_tables.make_models_table,
    "map": surface_tables.make_map_table,
    "curves": surface_tables.make_curve_table,
    "difference": surface_tables.make_difference_table,
    "tasks": surface_tables.make_tasks_table,
    "clusters": surface_tables.make_clusters_table,
}
"""Tables by view of the explorer. The other views show samples of texts, not cells."""


class Command(OutputCommand):
    help = "Write the surface of an experiment on parametric tasks: each cell with counts, accuracy and interval."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment")
        parser.add_argument(
            "--view", default="models", choices=list(TABLES), help="models: the cells of every condition"
        )
        parser.add_argument(
            "--format", default="", choices=["", *FORMATS], help="default: the suffix of the path, or csv"
        )
        parser.add_argument("--out", default="-", metavar="PATH", help='the output path; "-" is the standard output')
        parser.add_argument("--task", default="", help="default: the first task")
        parser.add_argument("--condition", default="", metavar="CONDITION", help="for map, curves and difference")
        parser.add_argument(
            "--against", default="", metavar="CONDITION", help="compare this condition with --condition"
        )
        parser.add_argument("--x", default="", metavar="NAME", help="the parameter across")
        parser.add_argument("--y", default="", metavar="NAME", help='the parameter down; "-" for none')
        parser.add_argument("--wave", default="", metavar="LABEL", help="only this wave: a label or number")
        add_list_option(parser, "--at", metavar="NAME=VALUE", help="fix another parameter; the others are averaged")

    def handle(self, *args: Any, **options: Any) -> None:
        file_format = choose_format(options, FORMATS, "csv")
        experiment = get_experiment(options["experiment"], "experiment")
        choices = _read_choices(experiment, options)
        state = _load(experiment, choices)
        if state.form is None or state.query is None:
            refuse_input(f"{experiment} has no answers to parametric tasks that the scorer final_answer graded")
        for name, value in choices.items():
            if state.form.chosen.get(name) != value:
                available = ", ".join(
                    str(value_choice)
                    for value_choice, _ in getattr(state.form.fields.get(name), "choices", ())
                    if value_choice
                )
                option = f"--at {name.removeprefix(FIXED_PREFIX)}" if name.startswith(FIXED_PREFIX) else f"--{name}"
                refuse_input(f"{option}: {value!r} is not one of {available or 'the choices of this task'}")
        table = TABLES[options["view"]](state.query)
        write_output(iter([table.render(file_format).encode()]), options["out"])
        if options["out"] != "-":
            rows = f"{len(table.rows)} row{'' if len(table.rows) == 1 else 's'}"
            self.report_written(rows, options["out"], options["verbosity"])


def _load(experiment: Experiment, choices: dict[str, str]) -> ExplorerState:
    """Return the explorer with current counts. Compute here the values that a worker computes for pages."""
    state = load_explorer(experiment, choices)
    if state.cached is None or state.cached.is_fresh:
        return state
    pending = CachedAggregate.objects.filter(experiment=experiment).exclude(step="")
    compute_rows(list(pending.values_list("pk", flat=True)), seconds=float("inf"))
    return load_explorer(experiment, choices)


def _read_choices(experiment: Experiment, options: dict[str, Any]) -> dict[str, str]:
    """Return the choices as in the explorer's address. Raise CommandError for an unknown condition or wave."""
    choices = {name: options[name] for name in ("task", "x", "y") if options[name]}
    if wave := choose_wave(experiment, options["wave"]):
        choices["wave"] = str(wave.number)
    keys_by_name = dict(experiment.conditions.filter(stage="generate").values_list("condition_id", "pk"))
    for name in ("condition", "against"):
        if requested := options[name]:
            if requested not in keys_by_name:
                refuse_input(
                    f"--{name}: there is no condition {requested!r}; there are {', '.join(sorted(keys_by_name))}"
                )
            choices[name] = str(keys_by_name[requested])
    for text in options["at"]:
        name, equals, value = text.partition("=")
        if not equals:
            refuse_input(f"--at: write NAME=VALUE, not {text!r}")
        choices[FIXED_PREFIX + name] = value
    return choices
