"""Many trials at a provider that fails often, while workers and the server are killed at random."""

import random
import time

from tests.system.faults.campaign.fault_account import count_outcomes, format_range, make_account
from tests.system.faults.campaign.lab import IN_FLIGHT, LEASE_S, find_worker_row, kill_group, refresh

DEADLINE_S = 3600.0
# Mostly ordinary errors, then cut connections, malformed replies, empty answers and overloads.
SHARES = {"500": 0.3, "cut": 0.25, "malformed": 0.2, "no_choices": 0.1, "empty": 0.1, "429": 0.05}


def run_random_faults(lab, options):
    """Keep `options.workers` workers running until the run is done, and kill workers and the server at random.

    Return the account and notes.
    """
    random.seed(options.seed)
    run = lab.make_run("rage", options.trials)
    faults = {name: share * options.error_rate for name, share in SHARES.items()}
    lab.provider.set_faults(errors=faults)
    kills = _RandomKills(lab, options.kill_every, options.kill_server_every)
    started_at = time.monotonic()
    while refresh(run).status != "done" and time.monotonic() - started_at < DEADLINE_S:
        lab.replace_ended_workers(options.workers)
        kills.kill_if_due()
        time.sleep(0.05)
    duration_s = time.monotonic() - started_at
    lab.end_workers()
    counters = lab.provider.counters()
    lab.provider.set_faults(errors={})
    fault = (
        f"{options.error_rate:.0%} random faults, {kills.kills} kills of workers, {kills.server_kills} of PostgreSQL"
    )
    claims = format_range(kills.recoveries_s, f"the lease is {LEASE_S:g} s")
    account = make_account(
        fault, run, answers=counters["answers"], in_flight=kills.in_flight, recovery=f"claims back after {claims}"
    )
    notes = [
        f"{run.n_trials:,} trials: {run.n_done:,} done, {run.n_failed:,} failed {run.errors or ''}",
        f"{duration_s:.0f} s with {options.workers} workers of {IN_FLIGHT} in flight",
        f"{counters['requests']:,} requests; faults {counters['faults']}",
        f"attempts on record: {count_outcomes(run)}",
        f"PostgreSQL away for {format_range(kills.away_s, 'killed and started again')}",
    ]
    return account, notes


class _RandomKills:
    """Random kills, and the time until the claims of a killed worker are released."""

    def __init__(self, lab, kill_every_s, kill_server_every_s):
        self.lab = lab
        self.every = {"worker": kill_every_s, "server": kill_server_every_s}
        self.due = {name: self._next(name) for name in self.every}
        self.kills = self.server_kills = self.in_flight = 0
        self.recoveries_s, self.away_s = [], []
        self._waited_for = {}

    def kill_if_due(self):
        now = time.monotonic()
        if now > self.due["worker"]:
            self._kill_worker()
            self.due["worker"] = self._next("worker")
        if now > self.due["server"]:
            self._kill_server()
            self.due["server"] = self._next("server")
        self._watch()

    def _next(self, name):
        mean_s = self.every[name]
        return time.monotonic() + random.uniform(0.5, 1.5) * mean_s if mean_s else float("inf")

    def _kill_worker(self):
        from runs_app.models import Trial

        worker = random.choice(self.lab.workers)
        row = find_worker_row(worker)
        if row is None:  # It is still starting.
            return
        kill_group(worker)
        self.kills += 1
        self.in_flight += Trial.objects.filter(status="running", worker=row).count()
        self._waited_for[row.pk] = time.monotonic()

    def _kill_server(self):
        killed_at = time.monotonic()
        self.lab.kill_server()
        self.lab.server.start()
        self.server_kills += 1
        self.away_s.append(time.monotonic() - killed_at)

    def _watch(self):
        from runs_app.models import Trial

        for worker, killed_at in list(self._waited_for.items()):
            if not Trial.objects.filter(status="running", worker=worker).exists():
                self.recoveries_s.append(time.monotonic() - killed_at)
                del self._waited_for[worker]
