"""The reservation of each call: its cost ceiling, recomputed whenever a budget or a price changes.

Prices and limits may change while runs are active. With outdated reservations, calls could exceed the budget. A run
planned without a price would reserve nothing.
"""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction
from django.db.models import Q

from runs_app.models.experiments import Experiment
from runs_app.models.priced_resource import PricedResource
from runs_app.models.runs import Run, RunQuerySet
from runs_app.pricing import costs


class Unbounded(ValueError):
    """Calls under a budget without a cost ceiling. Each of `problems` is a sentence that names the missing value."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def update_reservations(runs: RunQuerySet) -> None:
    """Set the reservations of future calls to their current ceilings. Calls in flight keep theirs.

    Raise Unbounded, and change nothing, if a call under a budget would have no ceiling. Locks the experiments, then the
    runs. Workers use the new values from their next claim on.
    """
    with transaction.atomic():
        keys = runs.order_by().values("experiment")
        list(Experiment.objects.filter(pk__in=keys).order_by("pk").select_for_update(no_key=True).values_list("pk"))
        rows = list(_select_ongoing(runs).select_for_update(of=("self",), no_key=True))
        if problems := _find_problems(rows):
            raise Unbounded(problems)
        for run in rows:
            run.reserve_usd = costs.round_reservation(_ceiling(run))
        Run.objects.bulk_update(rows, ["reserve_usd"])


def find_unbounded_runs_after(row: PricedResource) -> list[str]:
    """Return why this row cannot be saved as it is: future calls under a budget would have no ceiling."""
    runs = list(_select_ongoing(select_affected_runs(row)))
    for run in runs:
        row.serve(run.condition)
    return _find_problems(runs)


def find_unbounded_runs_under(budget: Decimal | None, experiment: Experiment) -> list[str]:
    """Return why the experiment cannot have this budget: its future calls would have no ceiling."""
    runs = list(_select_ongoing(experiment.runs.all()))
    for run in runs:
        run.experiment.max_usd = budget
    return _find_problems(runs)


def _find_problems(runs: list[Run]) -> list[str]:
    found = [_describe_problem(run) for run in runs if run.experiment.max_usd is not None and _ceiling(run) is None]
    return list(dict.fromkeys(found))


def select_affected_runs(row: PricedResource) -> RunQuerySet:
    return Run.objects.filter(**{f"condition__{row.CONDITION_LOOKUP}": row.pk})


def _select_ongoing(runs: RunQuerySet) -> RunQuerySet:
    """Return the runs that may still make calls as planned. A done run is planned again before it gets new trials."""
    ended = Q(status=Run.Status.CANCELLED) | Q(status=Run.Status.DONE, n_failed=0)
    return runs.exclude(ended).with_design().order_by("pk")


def _ceiling(run: Run) -> Decimal | None:
    model = run.condition.model
    prices = model.prices.in_batch(model.batch_discount if run.is_batched else Decimal(0))
    limit = run.condition.sampler.output_ceiling(model.max_output_tokens)
    return costs.ceiling_per_call(prices, run.request_tokens, limit)


def _describe_problem(run: Run) -> str:
    model, sampler, experiment = run.condition.model, run.condition.sampler, run.experiment
    if not model.prices.known:
        return f"unknown price: model {model} has no price, and experiment {experiment} has a budget"
    return (
        f"no ceiling: sampler {sampler} sets no max_tokens, model {model} has no max_output_tokens, "
        f"and experiment {experiment} has a budget"
    )
