"""All experiments, a line each: what `experiment list` and `status` show."""

from __future__ import annotations

from typing import Any

from evalsite.lib.commands import SayingCommand
from evalsite.lib.wording import count_text, money_text
from runs_app.models import Experiment
from runs_app.watching.progress import state_of, totals_of, with_totals


def say_experiments(command: SayingCommand, as_json: bool) -> None:
    facts = [_facts(experiment) for experiment in with_totals(Experiment.objects.select_related("owner", "dataset"))]
    if as_json:
        command.say_json(facts)
        return
    for one in facts:
        trials = f"{count_text(one['done'])}/{count_text(one['trials'])}"
        command.say(f"{one['experiment']:<32} {one['state']:<10} {trials:>16}  {money_text(one['spent_usd']):>10}")


def _facts(experiment: Experiment) -> dict[str, Any]:
    totals = totals_of(experiment)
    return {
        "experiment": experiment.slug,
        "state": state_of(experiment, totals),
        "owner": experiment.owner.username,
        "dataset": str(experiment.dataset),
        "trials": totals.trials,
        "done": totals.done,
        "failed": totals.failed,
        "remaining": totals.remaining,
        "spent_usd": experiment.spent_usd,
        "max_usd": experiment.max_usd,
    }
