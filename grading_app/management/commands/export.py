"""`manage.py export EXPERIMENT --table T --format F --out PATH`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from evalsite.lib.ops.commands import OutputCommand, add_list_option, choose_format
from evalsite.lib.text.number_format import format_count
from grading_app.publish.export.file_formats import FORMATS, TABLE_NAMES, ExportError, export_chunks, write_export
from runs_app.management.experiment_lookup import get_experiment

PATH_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class Command(OutputCommand):
    help = "Write a table of an experiment to a file. Memory use does not depend on its size."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment")
        parser.add_argument("--table", default="trials", metavar="|".join(TABLE_NAMES))
        parser.add_argument(
            "--format", default="", metavar="|".join(FORMATS), help="default: the suffix of the path, or csv"
        )
        parser.add_argument("--out", required=True, metavar="PATH", help='the output path; "-" is the standard output')
        add_list_option(
            parser, "--filter", metavar="NAME=VALUE", help="only trials with this status, condition, wave, ..."
        )
        parser.add_argument(
            "--n-items", default="", metavar="N", help="the number of items of the table participants; default 20"
        )
        parser.add_argument("--seed", default="", metavar="SEED", help="the seed of their selection; default 42")

    def handle(self, *args: Any, **options: Any) -> None:
        experiment = get_experiment(options["experiment"], "experiment")
        try:
            # The values by filter name. Raise ExportError for two values of a name, because no row can have both.
            filters: dict[str, str] = {}
            for name, value in map(_parse_filter, options["filter"]):
                if filters.setdefault(name, value) != value:
                    raise ExportError(f"filter {name}: given twice, as {filters[name]!r} and {value!r}")
            filters |= {name: options[name] for name in ("n_items", "seed") if options[name]}
            counts: list[int] = []
            file_format = choose_format(options, FORMATS, "csv")
            chunks = export_chunks(experiment, options["table"], file_format, filters, counts.append)
            write_export(chunks, options["out"])
        except (ExportError, *PATH_ERRORS) as error:
            raise CommandError(str(error), returncode=2) from error
        n_rows = sum(counts)
        rows = f"{format_count(n_rows)} row{'' if n_rows == 1 else 's'}"
        self.report_written(rows, options["out"], options["verbosity"])


def _parse_filter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ExportError(f"write a filter as NAME=VALUE, not {text!r}")
    return name, value
