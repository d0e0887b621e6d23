"""The list of all experiments, one line each, for `experiment list` and `status`."""

from __future__ import annotations

from typing import Any

from evalsite.lib.ops.commands import OutputCommand
from evalsite.lib.text.number_format import format_count, format_money
from runs_app.models import Experiment


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
