"""Workers on machines of their own; one loses its network for longer than a lease, and comes back."""

import time
from collections import Counter

import pytest
from django.core.management import call_command

from evalsite.lib.postgres import Embedded
from runs_app.models import Attempt, Run, Trial, Worker
from runs_app.reconciling import differences
from runs_app.simulating.config import SimulatorConfig
from tests.faults.conftest import launched, served_by
from tests.faults.machines import database_on, machines, missing, provider_on
from tests.postgres.conftest import open_folder
from tests.processes.workers import IN_FLIGHT, drain_process, wait_until

TRIALS = 400
LEASE_S = 2
CUT_S = 3 * LEASE_S

pytestmark = [
    pytest.mark.processes,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]


@pytest.fixture
def lab():
    """Four machines: of the database, of the provider, and of two workers."""
    with open_folder() as folder, machines("database", "provider", "near", "far") as (database, provider, *workers):
        embedded = Embedded(folder / "postgres")
        embedded.start()
        embedded.stop()
        config = SimulatorConfig(host=provider.address, latency_ms=600)
        with database_on(database, embedded) as database_url, served_by(embedded):
            call_command("migrate", interactive=False, verbosity=0)
            with provider_on(provider, config) as (url, counters):
                yield database_url, url, counters, workers


def n_of(worker):
    return Attempt.objects.filter(worker__host=worker.name, outcome="ok").count()


def test_a_machine_cut_off_for_longer_than_a_lease_costs_what_it_had_in_flight_and_no_more(lab):
    database_url, url, counters, (near, far) = lab
    run = launched(url, items=40, samples=TRIALS // 40, lease_s=LEASE_S)
    known = {"DATABASE_URL": database_url, "EVALSITE_LLM_ALLOWED_HOSTS": url.split("/")[2]}
    with drain_process(near.shell, **known) as one, drain_process(far.shell, **known) as other:
        wait_until(lambda: n_of(near) >= IN_FLIGHT and n_of(far) >= IN_FLIGHT)
        far.pull_the_cable()
        held = Trial.objects.filter(worker__host=far.name, status="running")
        at_cut, before = held.count(), n_of(near)
        back_at = time.monotonic() + CUT_S
        wait_until(lambda: not held.exists(), seconds=30)
        assert n_of(near) > before, "one waited for the other"
        wait_until(lambda: time.monotonic() > back_at)
        far.plug_it_in()
        assert (one.wait(timeout=60), other.wait(timeout=60)) == (0, 0)
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", TRIALS, 0)
    assert 0 < at_cut <= IN_FLIGHT
    assert counters()["requests"] <= TRIALS + at_cut
    outcomes = Counter(Attempt.objects.values_list("outcome", flat=True))
    assert outcomes.pop("ok") == TRIALS
    assert set(outcomes) <= {"lost", "late"}
    assert 0 < outcomes.total() <= at_cut
    assert set(Worker.objects.values_list("host", flat=True)) == {near.name, far.name}
    assert Run.objects.get().n_running == 0
    assert differences() == []
