"""`/healthz` reports whether workers process waiting work, without revealing the work."""

from datetime import timedelta

import pytest
from django.utils import timezone
from django_q.models import OrmQ

from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Run, Worker
from runs_app.monitoring.blockers import find_blockers
from runs_app.taskqueue.broker import MAINTENANCE_TASK
from tests import factories

pytestmark = pytest.mark.django_db


def compute_time_ago(seconds):
    return timezone.now() - timedelta(seconds=seconds)


def make_worker(seen=0.0, stopped_at=None):
    worker = Worker.objects.create(name=f"private-host:{Worker.objects.count()}", host="private-host", pid=1)
    Worker.objects.filter(pk=worker.pk).update(seen_at=compute_time_ago(seen), stopped_at=stopped_at)


def queue_task(waits=0.0):
    return OrmQ.objects.create(key="evalsite", payload=MAINTENANCE_TASK, lock=compute_time_ago(waits))


@pytest.fixture
def waiting_run(transactional_db):
    (run,) = factories.make_runs(factories.make_experiment("private-study"))
    Run.objects.filter(pk=run.pk).update(status="running", n_pending=5)
    return run


def get_health(client, query=""):
    response = client.get(f"/healthz{query}")
    return response.status_code, response.json()


def test_workers_with_a_recent_heartbeat_are_counted(client):
    make_worker()
    make_worker(seen=30)
    make_worker(seen=90)
    make_worker(stopped_at=timezone.now())
    assert get_health(client)[1]["workers_alive"] == 2


def test_only_a_waiting_task_has_an_age(client):
    queue_task(waits=42)
    queue_task(waits=7)
    queue_task(waits=-3600)  # Locked by its worker.
    assert 42 <= get_health(client)[1]["oldest_waiting_task_s"] < 142
    OrmQ.objects.filter(lock__lt=timezone.now()).delete()
    assert get_health(client)[1]["oldest_waiting_task_s"] is None


@pytest.mark.parametrize(("waits", "state"), [(200, "ok"), (400, "stale")])
def test_a_task_that_waits_too_long_makes_workers_stale_and_the_site_stays_healthy(client, waits, state):
    queue_task(waits=waits)
    assert (get_health(client)[0], get_health(client)[1]["workers"]) == (200, state)
    assert get_health(client, "?workers=1")[0] == (503 if state == "stale" else 200)
    assert get_health(client, "?workers=0")[0] == 200


@pytest.mark.parametrize(
    ("seen", "code"), [(None, 503), (300, 503), (90, 200), (0, 200)], ids=["never", "long ago", "just left", "now"]
)
def test_workers_are_stale_if_calls_wait_without_a_worker(client, waiting_run, seen, code):
    if seen is not None:
        make_worker(seen=seen, stopped_at=timezone.now())
    status, body = get_health(client, "?workers=1")
    assert status == code
    assert body["status"] == ("ok" if code == 200 else "stale")


FULL = 'the database is out of resources: could not extend file "base/5/16384": No space left on device'


def test_a_worker_that_cannot_record_blocks_the_site_and_says_why_to_its_members_only(client, waiting_run):
    make_worker()
    Worker.objects.update(trouble=FULL)
    assert (get_health(client)[0], get_health(client)[1]["workers"]) == (200, "blocked")
    assert get_health(client, "?workers=1")[0] == 503
    assert "extend" not in str(get_health(client, "?workers=1")[1])
    blockers = find_blockers(Run.objects.with_design())
    assert [blocker.sentence for blocker in blockers] == [
        f"A worker cannot record results: {FULL}. Trials continue when it has resources again."
    ]


@pytest.mark.parametrize("change", [{"seen_at": compute_time_ago(300)}, {"stopped_at": compute_time_ago(1)}])
def test_the_trouble_of_a_worker_that_is_gone_blocks_nothing(client, change):
    make_worker()
    Worker.objects.update(trouble=FULL, **change)
    assert get_health(client, "?workers=1")[1]["workers"] == "ok"


def test_a_worker_stores_its_trouble_until_the_database_works_again(monkeypatch):
    registration = WorkerRegistration()
    registration.note_trouble(FULL * 9)
    registration.send_heartbeat(1, 0)
    assert Worker.objects.get().trouble == (FULL * 9)[:200]
    monkeypatch.setattr("runs_app.engine.worker_registration.TROUBLE_S", -1.0)  # As if this time had passed.
    registration.send_heartbeat(1, 0)
    assert Worker.objects.get().trouble == ""


@pytest.mark.parametrize("change", [{"status": "paused"}, {"is_batched": True}, {"n_pending": 0, "n_done": 5}])
def test_no_worker_is_needed_if_no_call_waits(client, waiting_run, change):
    Run.objects.filter(pk=waiting_run.pk).update(**change)
    assert get_health(client, "?workers=1") == (
        200,
        {"status": "ok", "workers": "ok", "workers_alive": 0, "oldest_waiting_task_s": None},
    )


def test_the_report_contains_only_counts_and_ages_and_needs_one_query(client, waiting_run, django_assert_num_queries):
    make_worker()
    queue_task(waits=3)
    with django_assert_num_queries(1):
        response = client.get("/healthz?workers=1")
    assert set(response.json()) == {"status", "workers", "workers_alive", "oldest_waiting_task_s"}
    assert b"private" not in response.content
