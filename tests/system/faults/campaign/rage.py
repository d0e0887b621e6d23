"""Many trials at a provider that fails often, while workers, and the server, are killed at random."""

import random
import time

from tests.system.faults.campaign.account import account_of, outcomes_of, spread
from tests.system.faults.campaign.lab import IN_FLIGHT, LEASE_S, fresh, kill_group, row_of

DEADLINE_S = 3600.0
# Most ordinary errors, connections cut in the middle, replies that cannot be read, answers that say nothing, overloads.
SHARES = {"500": 0.3, "cut": 0.25, "malformed": 0.2, "no_choices": 0.1, "empty": 0.1, "429": 0.05}


def rage(place, options):
    """Keep so many workers running until all is done; kill one, or the server, now and then. The account, and notes."""
    random.seed(options.seed)
    run = place.work("rage", options.trials)
    faults = {name: share * options.error_rate for name, share in SHARES.items()}
    place.provider.set_faults(errors=faults)
    story = _Story(place, options.kill_every, options.kill_server_every)
    began = time.monotonic()
    while fresh(run).status != "done" and time.monotonic() - began < DEADLINE_S:
        place.keep(options.workers)
        story.go_on()
        time.sleep(0.05)
    took = time.monotonic() - began
    place.end_workers()
    counters = place.provider.counters()
    place.provider.set_faults(errors={})
    fault = (
        f"{options.error_rate:.0%} random faults, {story.kills} kills of workers, {story.server_kills} of PostgreSQL"
    )
    claims = spread(story.recoveries_s, f"the lease is {LEASE_S:g} s")
    account = account_of(
        fault, run, answers=counters["answers"], in_flight=story.in_flight, recovery=f"claims back after {claims}"
    )
    notes = [
        f"{run.n_trials:,} trials: {run.n_done:,} done, {run.n_failed:,} failed {run.errors or ''}",
        f"{took:.0f} s with {options.workers} workers of {IN_FLIGHT} in flight",
        f"{counters['requests']:,} requests; faults {counters['faults']}",
        f"attempts on record: {outcomes_of(run)}",
        f"PostgreSQL away for {spread(story.away_s, 'killed and started again')}",
    ]
    return account, notes


class _Story:
    """When who is killed, and how long it takes until what it held is back."""

    def __init__(self, place, kill_every_s, kill_server_every_s):
        self.place = place
        self.every = {"worker": kill_every_s, "server": kill_server_every_s}
        self.due = {name: self._next(name) for name in self.every}
        self.kills = self.server_kills = self.in_flight = 0
        self.recoveries_s, self.away_s = [], []
        self._waited_for = {}

    def go_on(self):
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

        worker = random.choice(self.place.workers)
        row = row_of(worker)
        if row is None:  # It is still starting.
            return
        kill_group(worker)
        self.kills += 1
        self.in_flight += Trial.objects.filter(status="running", worker=row).count()
        self._waited_for[row.pk] = time.monotonic()

    def _kill_server(self):
        since = time.monotonic()
        self.place.kill_server()
        self.place.server.start()
        self.server_kills += 1
        self.away_s.append(time.monotonic() - since)

    def _watch(self):
        from runs_app.models import Trial

        for worker, since in list(self._waited_for.items()):
            if not Trial.objects.filter(status="running", worker=worker).exists():
                self.recoveries_s.append(time.monotonic() - since)
                del self._waited_for[worker]
