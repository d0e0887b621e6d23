"""Workers on separate machines: one loses its network for longer than a lease, others vanish or freeze for good."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from evalsite.lib.ops.postgres import Embedded
from grading_app.grading.consistency_check import find_differences
from runs_app.models import Attempt, Run, Trial, Worker
from runs_app.simulator.config import SimulatorConfig
from tests.factories.engine import make_launched_run
from tests.prepared_database import copy_folder
from tests.system.faults.conftest import use_database_of
from tests.system.faults.machines import ROOT, create_machines, find_missing_support, run_database_on, run_provider_on
from tests.system.postgres.conftest import open_folder, read_line
from tests.system.processes.workers import IN_FLIGHT, MAX_CLAIMS, drain_process, get_data_dir, wait_until

TRIALS = 400
LEASE_S = 5
CUT_S = 2 * LEASE_S

pytestmark = [
    pytest.mark.processes,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(bool(find_missing_support()), reason=find_missing_support() or "-"),
]


@contextmanager
def run_database_machine(prepared, *names):
    """Run a database on one machine. Yield its URL and the other machines, which can reach it."""
    with open_folder() as folder, create_machines("database", *names) as (database, *others):
        embedded = Embedded(copy_folder(prepared / "postgres", folder / "postgres"))
        with run_database_on(database, embedded) as database_url, use_database_of(embedded):
            yield database_url, others


@pytest.fixture
def lab(prepared):
    """Four machines: one for the database, one for the provider, two for workers."""
    with run_database_machine(prepared, "provider", "near", "far") as (database_url, (provider, *workers)):
        config = SimulatorConfig(host=provider.address, latency_ms=1200)  # The run must not end before the cut.
        with run_provider_on(provider, config) as (url, counters):
            yield database_url, url, counters, workers


def is_served(machine):
    """Return whether the server currently executes a statement for this machine."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE client_addr = %s AND state = 'active')",
            [machine.address],
        )
        return cursor.fetchone()[0]


def count_answers(worker):
    return Attempt.objects.filter(worker__host=worker.name, outcome="ok").count()


def test_only_calls_in_flight_repeat_after_a_lease_without_network(lab):
    database_url, url, counters, (near, far) = lab
    run = make_launched_run(url, items=40, samples=TRIALS // 40, lease_s=LEASE_S)
    environment = {"DATABASE_URL": database_url, "EVALSITE_LLM_ALLOWED_HOSTS": url.split("/")[2]}
    with drain_process(near.shell, **environment) as near_worker, drain_process(far.shell, **environment) as far_worker:
        wait_until(lambda: count_answers(near) >= IN_FLIGHT and count_answers(far) >= IN_FLIGHT)
        far.cut_network()
        wait_until(lambda: not is_served(far))  # Its last statement may still be executing.
        far_claims = Trial.objects.filter(worker__host=far.name, status="running")
        n_cut, before = far_claims.count(), count_answers(near)
        restore_at = time.monotonic() + CUT_S
        wait_until(lambda: not far_claims.exists())
        wait_until(lambda: count_answers(near) > before)  # The other worker continues.
        wait_until(lambda: time.monotonic() > restore_at)
        far.restore_network()
        assert (near_worker.wait(timeout=300), far_worker.wait(timeout=300)) == (0, 0)
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", TRIALS, 0)
    assert 0 < n_cut <= MAX_CLAIMS
    assert counters()["requests"] <= TRIALS + n_cut
    outcomes = Counter(Attempt.objects.values_list("outcome", flat=True))
    assert outcomes.pop("ok") == TRIALS
    assert set(outcomes) <= {"lost", "late"}
    assert 0 < outcomes.total() <= n_cut
    assert set(Worker.objects.values_list("host", flat=True)) == {near.name, far.name}
    assert Run.objects.get().n_running == 0
    assert find_differences() == []


HOLD = (
    "import sys; from django.db import connection, transaction; transaction.set_autocommit(False); "
    "connection.cursor().execute('SELECT 1 FROM held WHERE id = %s FOR UPDATE', [{row}]); "
    "print('held', flush=True); sys.stdin.read()"
)
# The options that the site sets on each connection, with shorter times.
PROBES = (
    "-c tcp_keepalives_idle=1 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=2 -c tcp_user_timeout=3000",
    "-c idle_in_transaction_session_timeout=2000",
)


@contextmanager
def hold_lock(machine, database_url, row, options):
    """Run a process on the machine that locks a row within an open transaction."""
    url = f"{database_url}?options={options.replace(' ', '%20').replace('=', '%3D')}"
    process = subprocess.Popen(
        [*machine.shell, sys.executable, "manage.py", "shell", "--no-imports", "-c", HOLD.format(row=row)],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": url, "EVALSITE_DATA_DIR": get_data_dir()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def list_free_rows():
    """Return the ids of the rows that another transaction could lock now."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT id FROM held FOR UPDATE SKIP LOCKED")
        return {row[0] for row in cursor.fetchall()}


def test_locks_of_a_vanished_or_frozen_machine_are_released(prepared):
    """Without this, a machine that loses power while it holds a lock would stop all others for hours."""
    probes, timeout = PROBES
    with run_database_machine(prepared, "vanishing", "freezing") as (database_url, (vanishing, freezing)):
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE held AS SELECT generate_series(1, 3) AS id")
        first_lock, second_lock = (
            hold_lock(vanishing, database_url, 1, probes),
            hold_lock(freezing, database_url, 2, timeout),
        )
        with first_lock as vanished, second_lock as frozen:
            assert (read_line(vanished), read_line(frozen)) == ("held", "held")
            vanishing.cut_network()
            frozen.send_signal(signal.SIGSTOP)
            assert 1 not in list_free_rows()
            wait_until(lambda: list_free_rows() == {1, 2, 3})
