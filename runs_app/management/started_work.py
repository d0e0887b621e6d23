"""The work that a command starts: its cost estimate, the confirmation, test calls, and a progress bar of its runs.

The progress bar reads counters, so its cost does not grow with the trials.
"""

from __future__ import annotations

from collections.abc import Collection
from time import monotonic, sleep
from typing import Any

from django.core.management.base import CommandError
from django.db.models import QuerySet
from tqdm import tqdm

from evalsite.lib.history import Actor
from evalsite.lib.ops.commands import OVER_BUDGET, WORK_FAILED, OutputCommand, VerbCommand
from evalsite.lib.text.number_format import format_count, format_money
from runs_app.models import Experiment, Preflight, Run
from runs_app.models.totals import Totals
from runs_app.monitoring.progress import find_live_workers, sum_spent
from runs_app.pricing.costs import CostEstimate, Price


def print_estimate(command: OutputCommand, estimate: CostEstimate) -> None:
    likely = ""
    if estimate.likely is not None:
        likely = f", about {format_count(estimate.likely)} if every accuracy is equally likely"
    command.write(f"{format_count(estimate.trials)} trials, {format_count(estimate.to_do)} to do{likely}")
    if estimate.policy_text:
        command.write(f"dev policy: {estimate.policy_text}")
    command.write(f"cost: at most {format_money(estimate.ceiling_usd)}, expected {format_money(estimate.expected_usd)}")
    if estimate.foreseen:
        command.write(
            f"      {format_count(estimate.foreseen)} trials probably have cached answers, which cost nothing"
        )
    if estimate.full_usd is not None and estimate.full_usd != estimate.expected_usd:
        command.write(f"      full rerun: {format_money(estimate.full_usd)} expected")
    if estimate.verdicts:
        command.write(f"      including {format_count(estimate.verdicts)} verdicts by its judges")
    if estimate.batched:
        saved = format_money(estimate.batches_save_usd)
        command.write(f"      {estimate.batched} trials use the batch API (up to 24 h), which saves about {saved}")
    command.write(f"      {estimate.coverage:.0%} of the trials are estimated from earlier answers")
    for price in estimate.prices:
        source = ", ".join(str(part) for part in (price.source, price.as_of) if part)
        command.write(f"      {price.model}: {_format_price(price)}" + (f" ({source})" if source else ""))
        command.write(f"        tokens: {price.counted}")
    for sentence in estimate.problems:
        command.stderr.write(f"fix before the launch: {sentence}", command.style.ERROR)
    for sentence in estimate.warnings:
        command.stderr.write(f"warning: {sentence}", command.style.WARNING)


def confirm_cost(
    command: OutputCommand, experiment: Experiment, estimate: CostEstimate, yes: bool, action: str = "Launch"
) -> None:
    """Exit with code 4 or 3 unless the user accepts the cost.

    The code is 4 if the expected cost exceeds the remaining budget, and 3 if the user does not confirm a ceiling that
    needs a confirmation.
    """
    expected = estimate.expected_usd if estimate.expected_usd is not None else estimate.ceiling_usd
    if experiment.max_usd is not None and expected is not None and not yes:
        remaining = experiment.max_usd - experiment.spent_usd
        if expected > remaining:
            raise CommandError(
                f"budget: the expected cost is {format_money(expected)}, but only {format_money(remaining)} remain. "
                f"Raise max_usd, or {action.lower()} with --yes until the budget is used up. Nothing was launched",
                returncode=OVER_BUDGET,
            )
    if experiment.needs_confirmation(estimate.ceiling_usd):
        limit = format_money(experiment.confirm_above_usd)
        command.confirm(f"This may cost {format_money(estimate.ceiling_usd)}, more than {limit}. {action}?", yes)


def _format_price(price: Price) -> str:
    if price.free:
        return "free"
    if price.input is None or price.output is None:
        return "price unknown"
    return f"{format_money(price.input)} in, {format_money(price.output)} out per million tokens"


def make_preflights(
    command: VerbCommand, models: Collection[int], *, by: Actor, experiment: Experiment | None = None
) -> None:
    """Call each model once and print its result and cost. Exit with code 1 unless all models answer."""
    from runs_app.tasks import make_preflight

    failed = 0
    for requested in Preflight.objects.request(models, by=by, experiment=experiment):
        failed += make_preflight(requested.pk) != Preflight.Status.OK
        row = Preflight.objects.select_related("model__endpoint").get(pk=requested.pk)
        cost = f" {format_money(row.cost_usd)}" if row.was_made else ""
        command.write(f"{row.model.name:<24} {row.status:<11} {row.result_text}{cost} {row.warning}".rstrip())
    if failed:
        raise CommandError(f"{failed} of {len(models)} models did not answer", returncode=WORK_FAILED)


INTERVAL_S = 0.5
PATIENCE_S = 15.0  # After this time without a worker, print how to start one.


def wait_for(command: OutputCommand, runs: QuerySet[Run]) -> None:
    """Wait until all runs have ended. Exit with code 4 if the budget stopped a run, or 1 if a trial is not done."""
    out: Any = command.stderr
    with tqdm(unit="trial", file=out._out, mininterval=0.2, dynamic_ncols=True) as bar:
        totals = _watch(command, runs, bar)
    rows = list(runs.all())  # Query again: an evaluated queryset keeps its rows.
    command.write(
        f"{format_count(totals.done)} done, {format_count(totals.failed)} failed, {format_money(sum_spent(rows))} spent"
    )
    for run in rows:
        if reason := run.current_stop_reason:
            command.stderr.write(f"{run} ({run.condition.label}) is {run.status}: {reason}")
    if any(run.is_paused_by_budget for run in rows):
        raise CommandError("budget: the runs stopped before all trials were done", returncode=OVER_BUDGET)
    if totals.failed or totals.states != {Run.Status.DONE}:
        raise CommandError("not all trials are done", returncode=WORK_FAILED)


def _watch(command: OutputCommand, runs: QuerySet[Run], bar: Any) -> Totals:
    unattended_since, was_warned = monotonic(), False
    while True:
        rows = list(runs.all())  # Query again: an evaluated queryset keeps its rows.
        totals = Totals.of(rows)
        bar.total = totals.trials
        bar.set_postfix_str(f"{format_money(sum_spent(rows))}, {totals.failed} failed", refresh=False)
        bar.update(totals.trials - totals.remaining - bar.n)
        if not totals.is_under_way:
            return totals
        if find_live_workers().exists():
            unattended_since = monotonic()
        elif not was_warned and monotonic() - unattended_since > PATIENCE_S:
            command.stderr.write("No worker is running: start one with `manage.py drain`, or the site with `up`.")
            was_warned = True
        sleep(INTERVAL_S)
