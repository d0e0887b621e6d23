"""`manage.py analyse EXPERIMENT [--table NAME] [--format F] [--out PATH]`: the tables of the analysis page."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.http import QueryDict
from django.urls import reverse

from evalsite.lib.ops.commands import OutputCommand, add_list_option, choose_format
from evalsite.lib.text.names import UnknownNameError
from grading_app.management.output import write_output
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import build_section_tables
from grading_app.results.scope import EXCLUSION_LABELS, FAMILY_OF_MEASURES, Scope, ScopeForm
from grading_app.results.scores import Measure, list_measures, match_measure
from grading_app.results.table import FORMATS, ResultTable, render_csv
from grading_app.results.waves import find_pooled_waves
from runs_app.management.experiment_lookup import get_experiment
from runs_app.models import Experiment


class Command(OutputCommand):
    help = "Write the tables of an experiment's analysis: all tables, or the named table."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment")
        parser.add_argument("--table", default="", metavar="NAME", help="only this table; --list prints the names")
        parser.add_argument("--list", action="store_true", help="print the names and titles of the tables")
        parser.add_argument(
            "--format", default="", choices=["", *FORMATS], help="default: the suffix of the path, or md"
        )
        parser.add_argument("--out", default="-", metavar="PATH", help='the output path; "-" is the standard output')
        add_list_option(
            parser, "--measure", metavar="NAME", help="a dimension, scorer or grader; may be repeated; default: all"
        )
        parser.add_argument("--wave", default="", metavar="LABEL", help="only this wave: a label or number")
        parser.add_argument("--category", default="", help="only items of this category")
        parser.add_argument(
            "--missing", default="", choices=["", "wrong"], help="count answers without a score as wrong"
        )
        parser.add_argument(
            "--baseline", default="", metavar="CONDITION", help="compare the others with this condition"
        )
        parser.add_argument("--margin", default="", help="the largest difference that is still equivalent")
        parser.add_argument(
            "--family", default="", choices=["", FAMILY_OF_MEASURES], help="correct p over the tests of all measures"
        )
        add_list_option(parser, "--condition", metavar="CONDITION", help="only this condition; may be repeated")
        add_list_option(parser, "--without", metavar="KEY", help="leave out this item; may be repeated")
        add_list_option(parser, "--exclude", metavar="|".join(EXCLUSION_LABELS), help="answers to leave out")

    def handle(self, *args: Any, **options: Any) -> None:
        file_format = choose_format(options, FORMATS, "md")
        experiment = get_experiment(options["experiment"], "experiment")
        scopes = read_scopes(experiment, options)
        tables = [
            table
            for scope in scopes
            for section_tables in build_section_tables(load_analysis_data(scope)).values()
            for table in section_tables
        ]
        if options["list"]:
            titles = {table.name: table.title for table in reversed(tables)}
            self.write("".join(f"{name}  {titles[name]}\n" for name in dict.fromkeys(t.name for t in tables)).rstrip())
            return
        if pooled := find_pooled_waves(experiment, scopes[0].wave, in_worker=True):
            waves_page = reverse("experiment_waves", args=[experiment.slug])
            self.stderr.write(f"{' '.join(pooled.sentences)} --wave selects one. {waves_page} tests the difference.")
        name = options["table"]
        selected = [table for table in tables if table.name == name or not name]
        if not selected:
            names = ", ".join(dict.fromkeys(table.name for table in tables)) or "none"
            raise CommandError(f"there is no table {name!r} in this analysis; there are {names}", returncode=2)
        text = _render_tables(selected, file_format)
        write_output(iter([text.encode()]), options["out"])
        if options["out"] != "-":
            tables_text = f"{len(selected)} table{'' if len(selected) == 1 else 's'}"
            self.report_written(tables_text, options["out"], options["verbosity"])


def read_scopes(experiment: Experiment, options: dict[str, Any]) -> list[Scope]:
    """Return the scope of each measure in the options, by default of all. Raise CommandError for an unknown value."""
    measures = list_measures(experiment)
    if not measures:
        raise CommandError("the experiment has no score yet", returncode=2)
    try:
        chosen = [match_measure(measures, name) for name in options["measure"]]
    except UnknownNameError as error:
        raise CommandError(f"--measure: {error}", returncode=2) from error
    return [_read_scope(experiment, options, measure) for measure in dict.fromkeys(chosen or measures)]


def _read_scope(experiment: Experiment, options: dict[str, Any], measure: Measure) -> Scope:
    keys_by_name = dict(experiment.conditions.filter(stage="generate").values_list("condition_id", "pk"))
    data = QueryDict(mutable=True)
    data["measure"] = measure.key
    for name in ("wave", "category", "missing", "margin", "family"):
        data[name] = options[name]
    data.setlist("exclude", options["exclude"])
    items = dict(experiment.dataset.items.filter(key__in=options["without"]).values_list("key", "pk"))
    for key in options["without"]:
        if key not in items:
            raise CommandError(f"--without: the dataset has no item {key!r}", returncode=2)
    data.setlist("without", [str(pk) for pk in items.values()])
    data.setlist("condition", [str(_find_condition(keys_by_name, name)) for name in options["condition"]])
    data["baseline"] = str(_find_condition(keys_by_name, options["baseline"])) if options["baseline"] else ""
    form = ScopeForm(data, experiment)
    scope = form.get_scope()
    if scope is None:
        problems = [f"--{name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items()]
        raise CommandError(" ".join(problems), returncode=2)
    return scope


def _find_condition(keys_by_name: dict[str, int], name: str) -> int:
    if name not in keys_by_name:
        raise CommandError(f"there is no condition {name!r}; there are {', '.join(sorted(keys_by_name))}", returncode=2)
    return keys_by_name[name]


def _render_tables(tables: list[ResultTable], file_format: str) -> str:
    names = list(dict.fromkeys(table.name for table in tables))
    if file_format == "csv":
        if len(names) > 1:
            raise CommandError(f"a CSV file holds one table: choose --table, one of {', '.join(names)}", returncode=2)
        return render_csv(tables)
    if file_format == "json" and len(tables) > 1:
        return json.dumps([json.loads(table.render("json")) for table in tables], ensure_ascii=False, indent=1) + "\n"
    return "\n".join(table.render(file_format) for table in tables)
