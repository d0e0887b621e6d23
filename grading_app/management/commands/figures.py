"""`manage.py figures EXPERIMENT --out PATH`: figures for papers, single or all in one PDF, and their summary."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.http import QueryDict

from evalsite.lib.ops.commands import OutputCommand, choose_format, refuse_input
from evalsite.lib.text.number_format import format_count
from grading_app.management.output import write_output
from grading_app.models import CachedAggregate
from grading_app.publish.figures.figure_set import FigureSource, iterate_figures
from grading_app.publish.figures.print_style import render_figures_pdf
from grading_app.publish.forms import FigureForm
from grading_app.results.cached_aggregates import compute_rows
from runs_app.management.experiment_lookup import choose_wave, get_experiment

FORMATS = ("svg", "png", "pdf", "csv", "json")


class Command(OutputCommand):
    help = "Write figures for papers: one as SVG, PNG, PDF or CSV, all in one PDF, or the summary as JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment")
        parser.add_argument("--figure", default="", metavar="NAME", help="only this figure; --list prints the names")
        parser.add_argument("--list", action="store_true", help="print the names and titles of the figures")
        parser.add_argument("--format", default="", choices=["", *FORMATS], help="default: the suffix of the path")
        parser.add_argument("--out", default="-", metavar="PATH", help='the output path; "-" is the standard output')
        parser.add_argument(
            "--query", default="", metavar="QUERY", help="the choices, as in the figures page's address"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        experiment = get_experiment(options["experiment"], "experiment")
        data = QueryDict(options["query"])
        choose_wave(experiment, data.get("wave", ""), "--query: wave")
        # The data of the figures. Compute here the values that a worker computes for pages.
        for measure in FigureSource(experiment, data).measures:
            measure_data = data.copy()
            measure_data["measure"] = measure.key
            FigureSource(experiment, measure_data).list_figures()
        pending = CachedAggregate.objects.filter(experiment=experiment).exclude(step="")
        compute_rows(list(pending.values_list("pk", flat=True)), seconds=float("inf"))
        source = FigureSource(experiment, data)
        form = FigureForm(data, source)
        if not form.is_valid():
            refuse_input(
                " ".join(f"--query: {name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items())
            )
        if options["list"]:
            self.write("".join(f"{figure.name}  {figure.title}\n" for figure in source.list_figures()).rstrip())
            return
        file_format = choose_format(options, FORMATS)
        content, what = _build_content(source, form, options["figure"], file_format)
        n_bytes = write_output(iter([content]), options["out"])
        self.report_written(f"{what} ({format_count(n_bytes)} bytes)", options["out"], options["verbosity"])


def _build_content(source: FigureSource, form: FigureForm, name: str, file_format: str) -> tuple[bytes, str]:
    """Return the content of the file, and what it is in words."""
    if file_format == "json":
        return (json.dumps(source.summarize_ratings(), indent=1, ensure_ascii=False) + "\n").encode(), "the summary"
    if not name:
        if file_format != "pdf":
            refuse_input("--figure: all figures together need the format pdf; name one figure for another format")
        return render_figures_pdf(iterate_figures(source.experiment, source.data), form.style), "all figures"
    figure = source.find_figure(name)
    if figure is None:
        refuse_input(f"--figure: there is no figure {name!r}; --list prints the names")
    if file_format == "csv":
        return figure.table().render("csv").encode(), f"the numbers of {figure.name}"
    return form.style.write(figure.draw, file_format), figure.name  # type: ignore[arg-type]
