"""Workers on machines of their own: one loses its network for longer than a lease, others vanish or freeze for good."""

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
from runs_app.models import Attempt, Run, Trial, Worker
from runs_app.monitoring.consistency_check import find_differences
from runs_app.simulator.config import SimulatorConfig
from tests.factories.engine import make_launched_run
from tests.prepared_database import copy_folder
from tests.system.faults.conftest import served_by
from tests.system.faults.machines import ROOT, database_on, machines, missing, provider_on
from tests.system.postgres.conftest import line_of, open_folder
from tests.system.processes.workers import IN_FLIGHT, MAX_CLAIMS, drain_process, get_data_dir, wait_until

TRIALS = 400
LEASE_S = 3
CUT_S = 2 * LEASE_S

pytestmark = [
    pytest.mark.processes,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]


@contextmanager
def database_among(prepared, *names):
    """Its address, and so many other machines that reach it."""
    with open_folder() as folder, machines("database", *names) as (database, *others):
        embedded = Embedded(copy_folder(prepared / "postgres", folder / "postgres"))
        with database_on(database, embedded) as database_url, served_by(embedded):
            yield database_url, others


@pytest.fixture
def lab(prepared):
    """Four machines: of the database, of the provider, and of two workers."""
    with database_among(prepared, "provider", "near", "far") as (database_url, (provider, *workers)):
        config = SimulatorConfig(host=provider.address, latency_ms=600)
        with provider_on(provider, config) as (url, counters):
            yield database_url, url, counters, workers


def is_served(machine):
    """Whether the server does anything for it at this moment."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE client_addr = %s AND state = 'active')",
            [machine.address],
        )
        return cursor.fetchone()[0]


def n_of(worker):
    return Attempt.objects.filter(worker__host=worker.name, outcome="ok").count()


def test_only_calls_in_flight_repeat_after_a_lease_without_network(lab):
    database_url, url, counters, (near, far) = lab
    run = make_launched_run(url, items=40, samples=TRIALS // 40, lease_s=LEASE_S)
    known = {"DATABASE_URL": database_url, "EVALSITE_LLM_ALLOWED_HOSTS": url.split("/")[2]}
    with drain_process(near.shell, **known) as one, drain_process(far.shell, **known) as other:
        wait_until(lambda: n_of(near) >= IN_FLIGHT and n_of(far) >= IN_FLIGHT)
        far.pull_the_cable()
        wait_until(lambda: not is_served(far))  # What it said last may be at work still.
        held = Trial.objects.filter(worker__host=far.name, status="running")
        at_cut, before = held.count(), n_of(near)
        back_at = time.monotonic() + CUT_S
        wait_until(lambda: not held.exists())
        wait_until(lambda: n_of(near) > before)  # One does not wait for the other.
        wait_until(lambda: time.monotonic() > back_at)
        far.plug_it_in()
        assert (one.wait(timeout=120), other.wait(timeout=120)) == (0, 0)
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", TRIALS, 0)
    assert 0 < at_cut <= MAX_CLAIMS
    assert counters()["requests"] <= TRIALS + at_cut
    outcomes = Counter(Attempt.objects.values_list("outcome", flat=True))
    assert outcomes.pop("ok") == TRIALS
    assert set(outcomes) <= {"lost", "late"}
    assert 0 < outcomes.total() <= at_cut
    assert set(Worker.objects.values_list("host", flat=True)) == {near.name, far.name}
    assert Run.objects.get().n_running == 0
    assert find_differences() == []


HOLD = (
    "import sys; from django.db import connection, transaction; transaction.set_autocommit(False); "
    "connection.cursor().execute('SELECT 1 FROM held WHERE id = %s FOR UPDATE', [{row}]); "
    "print('held', flush=True); sys.stdin.read()"
)
# As the site sets them on each connection, but quicker.
PROBES = (
    "-c tcp_keepalives_idle=1 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=2 -c tcp_user_timeout=3000",
    "-c idle_in_transaction_session_timeout=2000",
)


@contextmanager
def holding(machine, database_url, row, options):
    """A process there that locks a row, within a transaction that it does not end."""
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


def free_rows():
    """Those that another transaction could lock now."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT id FROM held FOR UPDATE SKIP LOCKED")
        return {row[0] for row in cursor.fetchall()}


def test_locks_of_a_vanished_or_frozen_machine_are_released(prepared):
    """Else one machine that loses its power at the wrong moment would stop all the others for hours."""
    probes, timeout = PROBES
    with database_among(prepared, "vanishing", "freezing") as (database_url, (vanishing, freezing)):
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE held AS SELECT generate_series(1, 3) AS id")
        one, other = holding(vanishing, database_url, 1, probes), holding(freezing, database_url, 2, timeout)
        with one as vanished, other as frozen:
            assert (line_of(vanished), line_of(frozen)) == ("held", "held")
            vanishing.pull_the_cable()
            frozen.send_signal(signal.SIGSTOP)
            assert 1 not in free_rows()
            wait_until(lambda: free_rows() == {1, 2, 3})
