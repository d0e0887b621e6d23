"""The faults. Each function starts a run, injects its fault, waits for the end of the run and returns the account."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from tests.system.faults.campaign.batches import kill_batch_workers
from tests.system.faults.campaign.fault_account import make_account
from tests.system.faults.campaign.lab import (
    IN_FLIGHT,
    LEASE_S,
    ROOT,
    find_worker_row,
    kill_group,
    refresh,
    run_lab,
    wait_until,
)

OUTAGE_S = 30.0
DOWN_S = 5.0


def is_under_way(run, share=0.1):
    return refresh(run).n_done >= share * run.n_trials


def is_over(run):
    return refresh(run).status not in ("running", "queued", "planned")


def start_run(lab, name, trials, **fields):
    """Plan a run and start two workers. Return when both have claims and some trials are done."""
    run = lab.make_run(name, trials, **fields)
    workers = lab.start_workers(2)
    wait_until(lambda: all(has_claims(worker, run) for worker in workers) and is_under_way(run))
    assert not is_over(run), "it was over before the fault could strike: take more --strike-trials"
    return run, workers


def has_claims(worker, run):
    row = find_worker_row(worker)
    return row is not None and run.trials.filter(worker=row, status="running").exists()


def finish_run(lab, fault, run, **values):
    """Wait until the run is over. Return its account."""
    wait_until(lambda: is_over(run) or lab.replace_ended_workers(1))
    lab.end_workers()
    answers = lab.provider.counters()["answers"]
    return make_account(fault, run, **{"answers": answers, **values})


def time_next_result(run):
    """Wait for the next result. Return the time as a text."""
    before = refresh(run).n_done
    return f"{wait_until(lambda: refresh(run).n_done > before or is_over(run)):.1f} s"


# Workers ----------------------------------------------------------------------------------------------------


def kill_worker(lab, trials):
    run, (victim, _) = start_run(lab, "worker-killed", trials)
    row = find_worker_row(victim)
    kill_group(victim)
    claims = run.trials.filter(status="running", worker=row)
    in_flight = claims.count()
    recovery_s = wait_until(lambda: not claims.exists())
    note = f"at once; its claims came back after {recovery_s:.1f} s (lease {LEASE_S:g} s)"
    return finish_run(lab, "kill -9 of a worker", run, in_flight=in_flight, recovery=note)


def replace_workers(lab, trials):
    run, old = start_run(lab, "workers-replaced", trials)
    new = lab.start_workers(1)
    wait_until(lambda: find_worker_row(new[0]) or is_over(run))
    for worker in old:
        worker.terminate()
    stop_s = wait_until(lambda: all(worker.poll() is not None for worker in old))
    note = f"never stopped; the old ones left within {stop_s:.1f} s"
    return finish_run(lab, "SIGTERM of two workers while a third joins", run, recovery=note)


def shift_clocks(lab, trials):
    """Workers whose clocks jump an hour ahead, and back, seconds after they start."""
    run = lab.make_run("clock-jumped", trials)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(JUMP)
        for hours in (1, -1):
            lab.start_workers(1, PYTHONPATH=folder, JUMP_HOURS=str(hours))
        wait_until(lambda: is_over(run))
    return finish_run(lab, "clocks of two workers jump by an hour, one ahead, one back", run, recovery="never stopped")


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
def run_site(lab):
    """Run `manage.py up` with one drain. Yield a function that finds a child process by a word of its command line."""
    from tests.system.up.conftest import free_port, list_children, read_command_line

    command = [sys.executable, "manage.py", "up", "--workers=1", f"--port={free_port()}"]
    with open(os.devnull, "w") as devnull:  # noqa: PTH123
        process = subprocess.Popen(command, cwd=ROOT, stdout=devnull, stderr=devnull, start_new_session=True)
    try:
        yield lambda word: next((pid for pid in list_children(process.pid) if word in read_command_line(pid)), None)
    finally:
        process.terminate()
        process.wait(timeout=60)


def kill_process(lab, fault, name, trials, find_victim, is_restored):
    """Kill -9 a process of the site. `is_restored(child, victim)` returns whether its work continues."""
    run = lab.make_run(name, trials)
    with run_site(lab) as find_child:
        wait_until(lambda: is_under_way(run) and find_victim(find_child))
        victim = find_victim(find_child)
        in_flight = refresh(run).n_running
        os.kill(victim, signal.SIGKILL)
        recovery_s = wait_until(lambda: is_restored(find_child, victim))
        note = f"{recovery_s:.1f} s until it was replaced; results after {time_next_result(run)}"
        wait_until(lambda: is_over(run))
        answers = lab.provider.counters()["answers"]
    return make_account(fault, run, answers=answers, in_flight=in_flight, recovery=note)


def kill_cluster(lab, trials):
    fault = "kill -9 of the cluster's main process"
    return kill_process(
        lab, fault, "cluster-killed", trials, lambda find_child: find_child("qcluster"), is_replaced("qcluster")
    )


def is_replaced(word):
    return lambda find_child, victim: find_child(word) not in (None, victim)


def kill_web_server(lab, trials):
    fault = "kill -9 of the web server"
    return kill_process(
        lab, fault, "web-killed", trials, lambda find_child: find_child("gunicorn"), is_replaced("gunicorn")
    )


def kill_idle_worker(lab, trials):
    """Kill the worker that waits in the pipe of the queue. The next task reveals that it blocks the others."""
    from tests.system.up.conftest import list_children
    from tests.system.up.test_site_processes import find_idle_worker

    clusters = []

    def find_victim(find_child):
        cluster = find_child("qcluster")
        if not cluster or len(list_children(cluster)) != 1 or len(list_children(list_children(cluster)[0])) != 4:
            return None
        clusters[:] = [cluster]
        return find_idle_worker(cluster)

    fault = "kill -9 of the idle worker that holds the queue's pipe"
    return kill_process(
        lab,
        fault,
        "idle-killed",
        trials,
        find_victim,
        lambda find_child, _: find_child("qcluster") not in (None, *clusters),
    )


# The database -----------------------------------------------------------------------------------------------


def kill_postgres(lab, trials):
    run, _ = start_run(lab, "postgres-killed", trials)
    lab.kill_server()
    time.sleep(1.5 * LEASE_S)
    lab.server.start()
    note = f"{time_next_result(run)} after its start; it was away for {1.5 * LEASE_S:g} s, the lease is {LEASE_S:g} s"
    return finish_run(lab, "kill -9 of PostgreSQL", run, recovery=note)


def cut_connections(lab, trials):
    """End all connections and allow none for longer than a lease, while the server keeps running."""
    import psycopg
    from django.db import connection

    run, _ = start_run(lab, "connections-cut", trials)
    in_flight = refresh(run).n_running
    connection.close()
    elsewhere = lab.server.connection() | {"dbname": "postgres"}
    with psycopg.connect(**elsewhere, autocommit=True) as gate:
        gate.execute("ALTER DATABASE evalsite WITH ALLOW_CONNECTIONS false")
        gate.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'evalsite'")
        time.sleep(OUTAGE_S)
        gate.execute("ALTER DATABASE evalsite WITH ALLOW_CONNECTIONS true")
    note = f"{time_next_result(run)} after the cut of {OUTAGE_S:g} s"
    return finish_run(
        lab, "connections to the database cut for longer than a lease", run, in_flight=in_flight, recovery=note
    )


def fill_small_disk(config, trials):
    """Fill the small disk of the database of a separate lab."""
    from tests.system.faults.test_full_disk import fill_disk, mount_small_disk
    from tests.system.postgres.conftest import open_folder

    with open_folder() as folder, mount_small_disk(folder) as disk, run_lab(config, disk) as lab:
        run, _ = start_run(lab, "disk-filled", trials)
        in_flight = refresh(run).n_running
        ballast = fill_disk(disk)
        time.sleep(DOWN_S)
        ballast.unlink()
        lab.server.start()  # A full disk may have ended the server.
        note = f"{time_next_result(run)} after there was room again; it was full for {DOWN_S:g} s"
        return finish_run(lab, "the database's disk is full", run, in_flight=in_flight, recovery=note)


# Providers --------------------------------------------------------------------------------------------------


def stop_answers(lab, trials):
    run, _ = start_run(lab, "provider-down", trials)
    lab.provider.set_faults(error_rate=1.0)
    time.sleep(DOWN_S)
    lab.provider.set_faults(error_rate=0.0)
    note = f"{time_next_result(run)} after it was well again; every call failed for {DOWN_S:g} s"
    return finish_run(lab, "every call to the provider fails for a while", run, recovery=note)


def kill_provider(lab, trials):
    """Kill the provider of a run, refuse its connections for longer than three attempts take, and start it again."""
    from runs_app.models import Endpoint
    from runs_app.simulator.config import SimulatorConfig
    from runs_app.simulator.process import simulator_process
    from tests.system.up.conftest import free_port

    config = SimulatorConfig(port=free_port(), latency_ms=250)
    with simulator_process(config) as provider:
        run = lab.make_run("provider-killed", trials, max_attempts=3)
        Endpoint.objects.filter(name="campaign").update(base_url=provider.url)
        lab.start_workers(2)
        wait_until(lambda: is_under_way(run))
        in_flight = refresh(run).n_running
        os.kill(provider.pid, signal.SIGKILL)
    time.sleep(OUTAGE_S)
    with simulator_process(config):
        note = f"{time_next_result(run)} after its start; it was away for {OUTAGE_S:g} s"
        account = finish_run(lab, "kill -9 of the provider", run, answers=None, in_flight=in_flight, recovery=note)
    Endpoint.objects.filter(name="campaign").update(base_url=lab.provider.url)
    failed = refresh(run).n_failed
    return replace(account, lost=account.lost + failed)  # An outage must not fail a trial.


def freeze_provider(lab, trials):
    """Freeze the process of the provider: it accepts connections and sends nothing."""
    run, _ = start_run(lab, "provider-frozen", trials)
    os.kill(lab.provider.pid, signal.SIGSTOP)
    time.sleep(DOWN_S)
    os.kill(lab.provider.pid, signal.SIGCONT)
    note = f"{time_next_result(run)} after it went on; it stood still for {DOWN_S:g} s"
    return finish_run(lab, "the provider takes connections and says nothing", run, recovery=note)


def send_odd_replies(lab, trials):
    """Let the provider send each kind of broken reply in one run: none, slow, partial, invalid, 10 MB, NUL bytes."""
    from tests import factories
    from tests.system.faults.misbehaving_provider import BEHAVIOURS, serve_misbehaving_provider

    with serve_misbehaving_provider() as provider:
        endpoint = factories.make_endpoint("odd", base_url=provider.url, max_concurrency=64, is_free=True)
        run = lab.make_run(
            "provider-odd",
            1,
            items=[{"key": f"q{number}", "input": words} for number, words in enumerate(BEHAVIOURS)],
            model=factories.make_model("odd", endpoint=endpoint),
            cache_buster=False,
            request_timeout_s=5,
            max_attempts=2,
            stop_failure_rate=1,
        )
        lab.start_workers(2)
        fault = (
            f"{len(BEHAVIOURS)} kinds of replies: none, half, rubbish, 10 MB, invalid UTF-8, NUL bytes, never-ending"
        )
        # A worker that parses these replies for longer than the lease loses all its claims.
        return finish_run(lab, fault, run, answers=None, in_flight=run.n_trials, recovery="never stopped")


# Many at one instant ----------------------------------------------------------------------------------------


def launch_twice(lab, trials):
    """Launch an experiment by two processes at the same time."""
    from runs_app.models import Experiment, Run
    from tests import factories

    seed = lab.make_run("launched-twice-model", 1)
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
    no_output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for process in [subprocess.Popen(launch, cwd=ROOT, **no_output) for _ in range(2)]:
        process.wait(timeout=120)
    (run,) = Run.objects.filter(experiment=Experiment.objects.get(pk=experiment.pk))
    lab.start_workers(1)
    return finish_run(lab, "two launches in the same instant", run, recovery="never stopped")


def reach_budget(lab, trials):
    """Let eight workers reach the budget early. The ceiling of a call is more than twice its cost."""
    from runs_app.models import Endpoint, Run

    budget, ceiling = Decimal("0.000015") * trials, Decimal("0.0001")
    run = lab.make_run("budget-reached", trials, max_usd=budget)
    Run.objects.filter(pk=run.pk).update(reserve_usd=ceiling)
    Endpoint.objects.filter(name="campaign").update(is_free=False)
    lab.start_workers(8)
    wait_until(lambda: refresh(run).status == "paused")
    lab.end_workers()
    Endpoint.objects.filter(name="campaign").update(is_free=True)
    experiment = refresh(run).experiment
    spent = experiment.spent_usd + experiment.reserved_usd
    assert spent <= budget, f"${spent} of ${budget}"
    note = f"it paused itself at ${spent:.4f} of ${budget:.4f}, with {run.n_pending:,} trials left"
    answers = lab.provider.counters()["answers"]
    fault = f"eight workers reach the budget, {IN_FLIGHT} in flight each"
    return make_account(fault, run, answers=answers, recovery=note, ended=("done", "failed", "pending"))


FAULTS = {
    "worker": kill_worker,
    "replaced": replace_workers,
    "clock": shift_clocks,
    "cluster": kill_cluster,
    "idle": kill_idle_worker,
    "web": kill_web_server,
    "postgres": kill_postgres,
    "cut": cut_connections,
    "provider": stop_answers,
    "outage": kill_provider,
    "frozen": freeze_provider,
    "odd": send_odd_replies,
    "launches": launch_twice,
    "budget": reach_budget,
    "batches": kill_batch_workers,
}
