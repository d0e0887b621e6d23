"""A progress bar of runs in the terminal. It reads counters, so its cost does not grow with the trials."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

from django.core.management.base import CommandError
from django.db.models import QuerySet
from tqdm import tqdm

from evalsite.lib.ops.commands import OVER_BUDGET, WORK_FAILED, OutputCommand
from evalsite.lib.text.number_format import format_count, format_money
from runs_app.models import Run
from runs_app.models.totals import Totals
from runs_app.monitoring.progress import find_live_workers, sum_spent

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
