"""The faults, one function each: it sets up a run, strikes it in the middle, waits until it is over, and accounts."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

from tests.system.faults.campaign.account import account_of
from tests.system.faults.campaign.batches import batchers_killed
from tests.system.faults.campaign.lab import (
    IN_FLIGHT,
    LEASE_S,
    ROOT,
    fresh,
    kill_group,
    lab,
    row_of,
    seconds_until,
)

OUTAGE_S = 30.0
DOWN_S = 5.0


def under_way(run, share=0.1):
    return fresh(run).n_done >= share * run.n_trials


def is_over(run):
    return fresh(run).status not in ("running", "queued", "planned")


def started(place, name, trials, **fields):
    """A run at which two workers are at work."""
    run = place.work(name, trials, **fields)
    workers = place.join(2)
    seconds_until(lambda: all(is_at_work(worker, run) for worker in workers) and under_way(run))
    assert not is_over(run), "it was over before the fault could strike: take more --strike-trials"
    return run, workers


def is_at_work(worker, run):
    row = row_of(worker)
    return row is not None and run.trials.filter(worker=row, status="running").exists()


def finished(place, fault, run, **known):
    """Its account, once it is over."""
    seconds_until(lambda: is_over(run) or place.keep(1))
    place.end_workers()
    answers = place.provider.counters()["answers"]
    return account_of(fault, run, **{"answers": answers, **known})


def going_on(run):
    """Seconds until the next result."""
    before = fresh(run).n_done
    return f"{seconds_until(lambda: fresh(run).n_done > before or is_over(run)):.1f} s"


# Workers ----------------------------------------------------------------------------------------------------


def worker_killed(place, trials):
    run, (victim, _) = started(place, "worker-killed", trials)
    row = row_of(victim)
    kill_group(victim)
    held = run.trials.filter(status="running", worker=row)
    in_flight = held.count()
    back = seconds_until(lambda: not held.exists())
    note = f"at once; its claims came back after {back:.1f} s (lease {LEASE_S:g} s)"
    return finished(place, "kill -9 of a worker", run, in_flight=in_flight, recovery=note)


def workers_replaced(place, trials):
    run, old = started(place, "workers-replaced", trials)
    new = place.join(1)
    seconds_until(lambda: row_of(new[0]) or is_over(run))
    for worker in old:
        worker.terminate()
    left = seconds_until(lambda: all(worker.poll() is not None for worker in old))
    note = f"never stopped; the old ones left within {left:.1f} s"
    return finished(place, "SIGTERM of two workers while a third joins", run, recovery=note)


def clock_jumped(place, trials):
    """Workers whose clocks jump an hour ahead, and back, seconds after they start."""
    run = place.work("clock-jumped", trials)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(JUMP)
        for hours in (1, -1):
            place.join(1, PYTHONPATH=folder, JUMP_HOURS=str(hours))
        seconds_until(lambda: is_over(run))
    return finished(place, "clocks of two workers jump by an hour, one ahead, one back", run, recovery="never stopped")


JUMP = """
import datetime, os, threading
def jump():
    import time_machine
    hours = datetime.timedelta(hours=int(os.environ["JUMP_HOURS"]))
    time_machine.travel(datetime.datetime.now(datetime.timezone.utc) + hours, tick=True).start()
timer = threading.Timer(8, jump)
timer.daemon = True
timer.start()
"""


# The site's own processes -----------------------------------------------------------------------------------


@contextmanager
def site(place):
    """`manage.py up` with one drain. Yields what finds a child by a word of its command line."""
    from tests.system.up.conftest import children, command_line, free_port

    command = [sys.executable, "manage.py", "up", "--workers=1", f"--port={free_port()}"]
    with open(os.devnull, "w") as silence:  # noqa: PTH123
        process = subprocess.Popen(command, cwd=ROOT, stdout=silence, stderr=silence, start_new_session=True)
    try:
        yield lambda word: next((pid for pid in children(process.pid) if word in command_line(pid)), None)
    finally:
        process.terminate()
        process.wait(timeout=60)


def part_killed(place, fault, name, trials, victim_of, reborn):
    """Kill -9 of one process of the site; `reborn` tells whether what it did is done again."""
    run = place.work(name, trials)
    with site(place) as child:
        seconds_until(lambda: under_way(run) and victim_of(child))
        victim = victim_of(child)
        in_flight = fresh(run).n_running
        os.kill(victim, signal.SIGKILL)
        back = seconds_until(lambda: reborn(child, victim))
        note = f"{back:.1f} s until it was replaced; results after {going_on(run)}"
        seconds_until(lambda: is_over(run))
        answers = place.provider.counters()["answers"]
    return account_of(fault, run, answers=answers, in_flight=in_flight, recovery=note)


def cluster_killed(place, trials):
    fault = "kill -9 of the cluster's main process"
    return part_killed(place, fault, "cluster-killed", trials, lambda child: child("qcluster"), replaced("qcluster"))


def replaced(word):
    return lambda child, victim: child(word) not in (None, victim)


def web_killed(place, trials):
    fault = "kill -9 of the web server"
    return part_killed(place, fault, "web-killed", trials, lambda child: child("gunicorn"), replaced("gunicorn"))


def idle_worker_killed(place, trials):
    """The one that waits in the queue's pipe. What it blocks is noticed when there is a task for it."""
    from tests.system.up.conftest import children
    from tests.system.up.test_up import idle_worker

    clusters = []

    def idle(child):
        cluster = child("qcluster")
        if not cluster or len(children(cluster)) != 1 or len(children(children(cluster)[0])) != 4:
            return None
        clusters[:] = [cluster]
        return idle_worker(cluster)

    fault = "kill -9 of the idle worker that holds the queue's pipe"
    return part_killed(
        place, fault, "idle-killed", trials, idle, lambda child, _: child("qcluster") not in (None, *clusters)
    )


# The database -----------------------------------------------------------------------------------------------


def postgres_killed(place, trials):
    run, _ = started(place, "postgres-killed", trials)
    place.kill_server()
    time.sleep(1.5 * LEASE_S)
    place.server.start()
    note = f"{going_on(run)} after its start; it was away for {1.5 * LEASE_S:g} s, the lease is {LEASE_S:g} s"
    return finished(place, "kill -9 of PostgreSQL", run, recovery=note)


def connections_cut(place, trials):
    """All are ended and none is let in, for longer than a lease; the server itself lives on."""
    import psycopg
    from django.db import connection

    run, _ = started(place, "connections-cut", trials)
    in_flight = fresh(run).n_running
    connection.close()
    elsewhere = place.server.connection() | {"dbname": "postgres"}
    with psycopg.connect(**elsewhere, autocommit=True) as gate:
        gate.execute("ALTER DATABASE evalsite WITH ALLOW_CONNECTIONS false")
        gate.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'evalsite'")
        time.sleep(OUTAGE_S)
        gate.execute("ALTER DATABASE evalsite WITH ALLOW_CONNECTIONS true")
    note = f"{going_on(run)} after the cut of {OUTAGE_S:g} s"
    return finished(
        place, "connections to the database cut for longer than a lease", run, in_flight=in_flight, recovery=note
    )


def disk_filled(config, trials):
    """In a lab of its own, whose database is on a small disk."""
    from tests.system.faults.test_a_disk_that_is_full import fill, small_disk
    from tests.system.postgres.conftest import open_folder

    with open_folder() as folder, small_disk(folder) as disk, lab(config, disk) as place:
        run, _ = started(place, "disk-filled", trials)
        in_flight = fresh(run).n_running
        ballast = fill(disk)
        time.sleep(DOWN_S)
        ballast.unlink()
        place.server.start()  # Where it was so full that the server itself ended.
        note = f"{going_on(run)} after there was room again; it was full for {DOWN_S:g} s"
        return finished(place, "the database's disk is full", run, in_flight=in_flight, recovery=note)


# Providers --------------------------------------------------------------------------------------------------


def provider_down(place, trials):
    run, _ = started(place, "provider-down", trials)
    place.provider.set_faults(error_rate=1.0)
    time.sleep(DOWN_S)
    place.provider.set_faults(error_rate=0.0)
    note = f"{going_on(run)} after it was well again; every call failed for {DOWN_S:g} s"
    return finished(place, "every call to the provider fails for a while", run, recovery=note)


def provider_frozen(place, trials):
    """Its process stands still: connections are taken and nothing is said."""
    run, _ = started(place, "provider-frozen", trials)
    os.kill(place.provider.pid, signal.SIGSTOP)
    time.sleep(DOWN_S)
    os.kill(place.provider.pid, signal.SIGCONT)
    note = f"{going_on(run)} after it went on; it stood still for {DOWN_S:g} s"
    return finished(place, "the provider takes connections and says nothing", run, recovery=note)


def provider_odd(place, trials):
    """It hangs, drips, is half open, sends rubbish, 10 MB, invalid UTF-8, NUL bytes: each kind in one run."""
    from tests import factories
    from tests.system.faults.misbehaving_provider import BEHAVIOURS, misbehaving_provider

    with misbehaving_provider() as provider:
        endpoint = factories.make_endpoint("odd", base_url=provider.url, max_concurrency=64, is_free=True)
        run = place.work(
            "provider-odd",
            1,
            items=[{"key": f"q{number}", "input": words} for number, words in enumerate(BEHAVIOURS)],
            model=factories.make_model("odd", endpoint=endpoint),
            cache_buster=False,
            request_timeout_s=5,
            max_attempts=2,
            stop_failure_rate=1,
        )
        place.join(2)
        fault = (
            f"{len(BEHAVIOURS)} kinds of replies: none, half, rubbish, 10 MB, invalid UTF-8, NUL bytes, never-ending"
        )
        # A worker that digests such replies for longer than the lease loses what it has in flight: all of them.
        return finished(place, fault, run, answers=None, in_flight=run.n_trials, recovery="never stopped")


# Many at one instant ----------------------------------------------------------------------------------------


def launched_twice(place, trials):
    """By two processes in the same instant."""
    from runs_app.models import Experiment, Run
    from tests import factories

    seed = place.work("launched-twice-model", 1)
    experiment = factories.make_experiment(
        "launched-twice",
        dataset=factories.make_dataset("twice", trials // 2),
        models=list(seed.experiment.language_models.all()),
        samples=2,
        max_usd=None,
        cache_buster=True,
        lease_s=LEASE_S,
    )
    Run.objects.filter(pk=seed.pk).transition(
        sources=["running"], target="cancelled", by="campaign", reason="only its model was needed"
    )
    launch = [sys.executable, "manage.py", "experiment", "launch", experiment.slug, "--yes"]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for process in [subprocess.Popen(launch, cwd=ROOT, **silent) for _ in range(2)]:
        process.wait(timeout=120)
    (run,) = Run.objects.filter(experiment=Experiment.objects.get(pk=experiment.pk))
    place.join(1)
    return finished(place, "two launches in the same instant", run, recovery="never stopped")


def budget_reached(place, trials):
    """By eight workers, long before the trials are all asked; each holds a ceiling of more than twice what is spent."""
    from runs_app.models import Endpoint, Run

    budget, ceiling = Decimal("0.000015") * trials, Decimal("0.0001")
    run = place.work("budget-reached", trials, max_usd=budget)
    Run.objects.filter(pk=run.pk).update(reserve_usd=ceiling)
    Endpoint.objects.filter(name="campaign").update(is_free=False)
    place.join(8)
    seconds_until(lambda: fresh(run).status == "paused")
    place.end_workers()
    Endpoint.objects.filter(name="campaign").update(is_free=True)
    experiment = fresh(run).experiment
    spent = experiment.spent_usd + experiment.reserved_usd
    assert spent <= budget, f"${spent} of ${budget}"
    note = f"it paused itself at ${spent:.4f} of ${budget:.4f}, with {run.n_pending:,} trials left"
    answers = place.provider.counters()["answers"]
    fault = f"eight workers reach the budget, {IN_FLIGHT} in flight each"
    return account_of(fault, run, answers=answers, recovery=note, ended=("done", "failed", "pending"))


STRIKES = {
    "worker": worker_killed,
    "replaced": workers_replaced,
    "clock": clock_jumped,
    "cluster": cluster_killed,
    "idle": idle_worker_killed,
    "web": web_killed,
    "postgres": postgres_killed,
    "cut": connections_cut,
    "provider": provider_down,
    "frozen": provider_frozen,
    "odd": provider_odd,
    "launches": launched_twice,
    "budget": budget_reached,
    "batches": batchers_killed,
}
