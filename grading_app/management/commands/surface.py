"""`manage.py surface EXPERIMENT [--view V] [--format F] [--out PATH]`: the numbers of the explorer as a table."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from evalsite.lib.ops.commands import OutputCommand, add_list_option, refuse_input
from grading_app.export.file_formats import write_export
from grading_app.models import CachedAggregate
from grading_app.reports.cached_aggregates import compute_rows
from grading_app.reports.result_table import FORMATS
from grading_app.surfaces import surface_tables
from grading_app.surfaces.explorer_load import ExplorerState, load_explorer
from grading_app.surfaces.explorer_query import FIXED_PREFIX
from runs_app.models import Experiment

TABLES = {
    "models": surface_tables.make_models_table,
    "map": surface_tables.make_map_table,
    "curves": surface_tables.make_curve_table,
    "difference": surface_tables.make_difference_table,
    "tasks": surface_tables.make_tasks_table,
    "clusters": surface_tables.make_clusters_table,
}
"""By view of the explorer. The others show samples of texts, not cells."""


class Command(OutputCommand):
    help = "Write the surface of an experiment on parametric tasks: each cell with counts, accuracy and interval."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment")
        parser.add_argument(
            "--view", default="models", choices=list(TABLES), help="models: the cells of every condition"
        )
        parser.add_argument("--format", default="csv", choices=FORMATS)
        parser.add_argument("--out", default="-", metavar="PATH", help='where to write; "-" is the standard output')
        parser.add_argument("--task", default="", help="by default the first one")
        parser.add_argument("--condition", default="", metavar="CONDITION", help="of map, curves and difference")
        parser.add_argument("--against", default="", metavar="CONDITION", help="compare this one with --condition")
        parser.add_argument("--x", default="", metavar="NAME", help="the parameter across")
        parser.add_argument("--y", default="", metavar="NAME", help='the parameter down; "-" for none')
        parser.add_argument("--wave", default="", metavar="NUMBER", help="only this wave")
        add_list_option(parser, "--at", metavar="NAME=VALUE", help="hold a further parameter; others are averaged")

    def handle(self, *args: Any, **options: Any) -> None:
        experiment = Experiment.objects.filter(slug=options["experiment"]).first()
        if experiment is None:
            refuse_input(f"there is no experiment {options['experiment']!r}")
        chosen = _read_choices(experiment, options)
        loaded = _load(experiment, chosen)
        if loaded.form is None or loaded.query is None:
            refuse_input(f"{experiment} has no answers to parametric tasks that the scorer final_answer graded")
        for name, value in chosen.items():
            if loaded.form.chosen.get(name) != value:
                offered = ", ".join(str(one) for one, _ in getattr(loaded.form.fields.get(name), "choices", ()) if one)
                option = f"--at {name.removeprefix(FIXED_PREFIX)}" if name.startswith(FIXED_PREFIX) else f"--{name}"
                refuse_input(f"{option}: {value!r} is not among {offered or 'the choices of this task'}")
        table = TABLES[options["view"]](loaded.query)
        try:
            write_export(iter([table.render(options["format"]).encode()]), options["out"])
        except BrokenPipeError:
            raise  # The reader of the standard output has left. manage.py then ends without a message.
        except OSError as error:
            raise CommandError(str(error), returncode=2) from error


def _load(experiment: Experiment, chosen: dict[str, str]) -> ExplorerState:
    """Return the explorer with counts of the present answers; what pages leave to a worker is computed here."""
    loaded = load_explorer(experiment, chosen)
    if loaded.cached is None or loaded.cached.is_fresh:
        return loaded
    waiting = CachedAggregate.objects.filter(experiment=experiment).exclude(step="")
    compute_rows(list(waiting.values_list("pk", flat=True)), seconds=float("inf"))
    return load_explorer(experiment, chosen)


def _read_choices(experiment: Experiment, options: dict[str, Any]) -> dict[str, str]:
    """Return the choices as in the explorer's address. Raise CommandError for an unknown condition."""
    chosen = {name: options[name] for name in ("task", "x", "y", "wave") if options[name]}
    by_name = dict(experiment.conditions.filter(stage="generate").values_list("condition_id", "pk"))
    for name in ("condition", "against"):
        if wanted := options[name]:
            if wanted not in by_name:
                refuse_input(f"--{name}: there is no condition {wanted!r}; there are {', '.join(sorted(by_name))}")
            chosen[name] = str(by_name[wanted])
    for text in options["at"]:
        name, equals, value = text.partition("=")
        if not equals:
            refuse_input(f"--at: write NAME=VALUE, not {text!r}")
        chosen[FIXED_PREFIX + name] = value
    return chosen
