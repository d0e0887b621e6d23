"""The list of all experiments, one line each, for `experiment list` and `status`."""

from __future__ import annotations

from typing import Any

from evalsite.lib.ops.commands import OutputCommand
from evalsite.lib.text.number_format import format_count, format_money
from runs_app.models import Experiment
from runs_app.monitoring.progress import annotate_totals, find_experiment_state, read_totals


def print_experiments(command: OutputCommand, as_json: bool) -> None:
    experiments = annotate_totals(Experiment.objects.select_related("owner", "dataset"))
    rows = [_build_row(experiment) for experiment in experiments]
    if as_json:
        command.write_json(rows)
        return
    for row in rows:
        trials = f"{format_count(row['done'])}/{format_count(row['trials'])}"
        command.write(f"{row['experiment']:<32} {row['state']:<10} {trials:>16}  {format_money(row['spent_usd']):>10}")


def _build_row(experiment: Experiment) -> dict[str, Any]:
    totals = read_totals(experiment)
    return {
        "experiment": experiment.slug,
        "state": find_experiment_state(experiment, totals),
        "owner": experiment.owner.username,
        "dataset": str(experiment.dataset),
        "trials": totals.trials,
        "done": totals.done,
        "failed": totals.failed,
        "remaining": totals.remaining,
        "spent_usd": experiment.spent_usd,
        "max_usd": experiment.max_usd,
    }
