"""A campaign of faults: many trials at a provider that fails often, workers killed at random, and an account of it.

    python -m tests.faults.campaign --trials 10000 --workers 2 --kill-every 15 --kill-server-every 90

It starts a PostgreSQL and a provider of its own and leaves nothing behind. Exit code 1 where a promise was broken.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IN_FLIGHT = 32
LEASE_S = 10.0
MAX_ATTEMPTS = 8  # At one fault in five, one trial in four hundred thousand fails so often in a row.
DEADLINE_S = 3600.0


@dataclass
class Account:
    """What happened, as far as the campaign itself saw it."""

    kills: int = 0
    server_kills: int = 0
    in_flight_at_kills: int = 0
    recoveries_s: list[float] = field(default_factory=list)
    away_s: list[float] = field(default_factory=list)
    took_s: float = 0.0


def main():
    options = read_options()
    random.seed(options.seed)
    with tempfile.TemporaryDirectory(prefix="campaign-", ignore_cleanup_errors=True) as data, ExitStack() as stack:
        server = stack.enter_context(own_server())
        set_up(server, data)
        from runs_app.simulating.config import SimulatorConfig
        from runs_app.simulating.launching import simulator_process

        faults = {name: share * options.error_rate for name, share in SHARES.items()}
        config = SimulatorConfig(
            latency_ms=options.latency_ms, latency_sigma=0.5, faults=faults, retry_after_s=0.05, seed=options.seed
        )
        provider = stack.enter_context(simulator_process(config))
        run = planned(provider.url, options.trials)
        account = rage(options, server, run)
        return report(options, account, run, provider.counters())


# Most ordinary errors, connections cut in the middle, replies that cannot be read, answers that say nothing, overloads.
SHARES = {"500": 0.3, "cut": 0.25, "malformed": 0.2, "no_choices": 0.1, "empty": 0.1, "429": 0.05}


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--error-rate", type=float, default=0.2)
    parser.add_argument("--latency-ms", type=float, default=100.0)
    parser.add_argument("--kill-every", type=float, default=15.0, help="seconds between kills of a worker, on average")
    parser.add_argument("--kill-server-every", type=float, default=0.0, help="and of PostgreSQL; 0 is never")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


@contextmanager
def own_server():
    from evalsite.lib.postgres import Embedded
    from tests.postgres.conftest import open_folder

    with open_folder() as folder:
        server = Embedded(folder / "postgres")
        server.start()
        yield server


def set_up(server, data):
    """Django on that server, with its tables made."""
    known = server.connection()
    os.environ["DATABASE_URL"] = (
        f"postgresql:///{known['dbname']}?host={known['host']}&port={known['port']}&user=evalsite"
    )
    os.environ |= {"EVALSITE_DATA_DIR": data, "DJANGO_SETTINGS_MODULE": "evalsite.settings"}
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", interactive=False, verbosity=0)


def planned(url, trials):
    """Every request is its own, so that the provider can tell which of them it answered twice."""
    from runs_app.models import Run
    from tests import factories

    samples = max(1, trials // 500)
    endpoint = factories.make_endpoint("campaign", base_url=url, max_concurrency=1000, is_free=True, adaptive=False)
    experiment = factories.make_experiment(
        "campaign",
        dataset=factories.make_dataset("many", max(1, trials // samples)),
        models=[factories.make_model("sim", endpoint=endpoint)],
        samples=samples,
        max_usd=None,
        max_attempts=MAX_ATTEMPTS,
        lease_s=LEASE_S,
        cache_buster=True,
        request_timeout_s=20,
    )
    (run,) = factories.make_runs(experiment)
    Run.objects.filter(pk=run.pk).update(max_concurrency=1000)
    factories.plan_trials(run)
    return run


# The rage ---------------------------------------------------------------------------------------------------


def rage(options, server, run):
    """Keep so many workers running until the run is done; kill one, or the server, now and then."""
    account = Account()
    started = time.monotonic()
    rest = {"worker": pause(options.kill_every), "server": pause(options.kill_server_every)}
    workers = []
    try:
        while status_of(run) != "done":
            if time.monotonic() - started > DEADLINE_S:
                break
            workers = [worker for worker in workers if worker.poll() is None]
            workers += [worker_process() for _ in range(options.workers - len(workers))]
            if time.monotonic() > rest["worker"]:
                kill_worker(random.choice(workers), account)
                rest["worker"] = pause(options.kill_every)
            if time.monotonic() > rest["server"]:
                kill_server(server, account)
                rest["server"] = pause(options.kill_server_every)
            watch_recoveries(account)
            time.sleep(0.05)
    finally:
        end(workers)
    account.took_s = time.monotonic() - started
    return account


def pause(mean_s):
    """When it is time for the next kill."""
    return time.monotonic() + random.uniform(0.5, 1.5) * mean_s if mean_s else float("inf")


def worker_process():
    command = [sys.executable, "manage.py", "drain", "--until-idle", "--concurrency", str(IN_FLIGHT)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, **silent)


WAITED_FOR: dict[int, float] = {}  # Killed workers whose claims have not all returned, and since when.


def kill_worker(worker, account):
    from runs_app.models import Trial, Worker

    row = Worker.objects.filter(pid=worker.pid, left_at=None).order_by("-pk").first()
    if row is None:  # It is still starting.
        return
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    held = Trial.objects.filter(status="running", worker=row).count()
    account.kills += 1
    account.in_flight_at_kills += held
    WAITED_FOR[row.pk] = time.monotonic()


def watch_recoveries(account):
    from runs_app.models import Trial

    for worker, since in list(WAITED_FOR.items()):
        if not Trial.objects.filter(status="running", worker=worker).exists():
            account.recoveries_s.append(time.monotonic() - since)
            del WAITED_FOR[worker]


def kill_server(server, account):
    from django.db import connection

    from tests.postgres.conftest import servers_in

    connection.close()
    since = time.monotonic()
    while pids := servers_in(server.data_dir):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    server.start()
    account.server_kills += 1
    account.away_s.append(time.monotonic() - since)


def status_of(run):
    run.refresh_from_db(fields=["status"])
    return run.status


def end(workers):
    for worker in workers:
        if worker.poll() is None:
            worker.terminate()
    for worker in workers:
        try:
            worker.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


# The account ------------------------------------------------------------------------------------------------


def report(options, account, run, counters):
    """Print it. 1 where a promise was broken, else 0."""
    from django.db.models import Count

    from runs_app.models import Attempt, Trial
    from runs_app.reconciling import differences

    run.refresh_from_db()
    trials = Trial.objects.filter(run=run)
    identities = trials.values("item", "dimension", "sample_idx").annotate(n=Count("pk"))
    outcomes = dict(Attempt.objects.values_list("outcome").annotate(Count("pk")))
    planned_trials = run.n_trials
    answered = Attempt.objects.filter(outcome__in=["ok", "late"], error_class__in=["", "worker_lost"])
    again = answered.values("trial").annotate(n=Count("pk")).filter(n__gt=1).count()
    unread = counters["answers"] - answered.count() - run.errors.get("malformed_reply", 0)
    found = differences()
    lost = planned_trials - trials.filter(status__in=["done", "failed"]).count()
    doubled = identities.filter(n__gt=1).count()
    lines = {
        "trials": f"{planned_trials:,}: {run.n_done:,} done, {run.n_failed:,} failed ({run.errors})",
        "took": f"{account.took_s:.0f} s with {options.workers} workers of {IN_FLIGHT} in flight",
        "provider": f"{counters['requests']:,} requests, faults {counters['faults']}",
        "attempts": f"{sum(outcomes.values()):,} rows: {outcomes}",
        "kills": f"{account.kills} of workers, {account.server_kills} of PostgreSQL",
        "in flight at kills": account.in_flight_at_kills,
        "rows lost": lost,
        "rows doubled": doubled,
        "paid twice": f"{unread + again}: {unread} answers died with their worker, {again} trials have two on record",
        "claims back after": spread(account.recoveries_s, f"the lease is {LEASE_S:g} s"),
        "PostgreSQL away for": spread(account.away_s, "killed and started again"),
        "reconcile": "no difference" if not found else "; ".join(map(str, found)),
    }
    for name, value in lines.items():
        print(f"{name:36}{value}")
    return int(bool(lost or doubled or found or unread + again > account.in_flight_at_kills))


def spread(seconds, note):
    if not seconds:
        return "-"
    middle = sorted(seconds)[len(seconds) // 2]
    return f"{min(seconds):.1f} to {max(seconds):.1f} s, {middle:.1f} s in the middle ({note})"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
