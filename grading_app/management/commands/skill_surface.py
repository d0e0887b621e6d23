"""`manage.py skill_surface PROFILE`: the true surface of simulated models, or its recovery by an experiment."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from datasets_app.models import Dataset
from evalsite.lib.ops.commands import OutputCommand, refuse_input
from grading_app.results.parametric.surface import make_recovery_table, make_truth_table
from grading_app.results.table import FORMATS
from runs_app.management.experiment_lookup import get_experiment
from runs_app.simulator.config import ConfigError
from runs_app.simulator.skill_profiles import read_profiles


class Command(OutputCommand):
    help = "Print the true surface of skill profiles over a dataset, or compare an experiment's intervals with it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("profile", type=Path, help="the file of simulate_provider --profile")
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("--dataset", metavar="SLUG@V", help="print the truth at the points of this dataset")
        source.add_argument("--experiment", metavar="NAME", help="compare the intervals of this experiment")
        parser.add_argument(
            "--max-tokens", type=int, metavar="N", help="the maximum length of an answer, with --dataset"
        )
        parser.add_argument("--format", default="md", choices=FORMATS)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            profiles = read_profiles(options["profile"])
        except ConfigError as error:
            refuse_input(str(error))
        if options["dataset"]:
            reference = options["dataset"]
            dataset: Dataset | None = Dataset.objects.named(reference).first()
            if dataset is None:
                refuse_input(f"there is no dataset {reference!r}; `dataset list` lists them")
            table = make_truth_table(dataset, profiles, options["max_tokens"])
        else:
            experiment = get_experiment(options["experiment"], "experiment")
            table = make_recovery_table(experiment, profiles)
        if not table.rows:
            refuse_input("no case of a parametric task matches a model and a task of this profile")
        self.write_file(table.render(options["format"]))
