"""Requests for snapshots on the page of files: one at a time, visible until their end, and with their failure."""

import time
from datetime import timedelta

import pytest
from django.db import IntegrityError, connections, transaction
from django.urls import reverse
from django.utils import timezone

from datasets_app.models import BackgroundJob
from datasets_app.models.background_jobs import LOCK_CLASS
from grading_app.models import Snapshot
from grading_app.tasks import snapshot_experiment
from runs_app.models import Run
from tests import factories
from tests.page_text import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]
WAITING = "Waiting for a worker</strong> to create a snapshot."
ENTRIES = {"label": "submission", "reason": "To submit the paper"}


@pytest.fixture
def experiment(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    created = factories.make_experiment(dataset=factories.make_dataset(items=2), samples=1)
    (run,) = factories.make_runs(created, status="done")
    factories.plan_trials(run, answer=lambda item, *_: f"ANSWER: {item.target}")
    return created


@pytest.fixture
def queued(monkeypatch):
    """The arguments of the tasks that pages enqueue. No worker runs them."""
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *args, **options: tasks.append(args))
    return tasks


@pytest.fixture
def owner(client, experiment):
    client.force_login(experiment.owner)
    return client


def post(client, entries=ENTRIES):
    return page_text(client.post(reverse("snapshot_make", args=["pilot"]), entries, follow=True))


def read(client):
    return page_text(client.get(reverse("experiment_files", args=["pilot"])))


def test_a_requested_snapshot_is_shown_after_a_reload_until_it_is_there(owner, queued):
    post(owner)
    waiting = read(owner)
    assert "Waiting for a worker</strong> to create a snapshot. owner requested it" in waiting
    assert ": submission." in waiting
    assert "No snapshots yet" not in waiting
    assert "Create snapshot" not in waiting
    ((key,),) = queued
    BackgroundJob.objects.filter(pk=key).update(requested_at=timezone.now() - timedelta(minutes=2))
    assert "No worker has started on the snapshot" in read(owner)
    with BackgroundJob.objects.get().perform():
        assert "A snapshot is being created.</strong> owner requested it" in read(owner)
    digest = snapshot_experiment(key)
    done = read(owner)
    assert digest[:16] in done
    assert "Create snapshot" in done
    assert "being created" not in done
    assert "Waiting for a worker" not in done


def test_a_second_press_of_the_button_requests_no_second_snapshot(owner, queued):
    post(owner)
    assert "already being created, so no second one was requested" in post(owner)
    assert len(queued) == BackgroundJob.objects.count() == 1
    with pytest.raises(IntegrityError, match="backgroundjob_one_open"), transaction.atomic():
        BackgroundJob.objects.create(subject=BackgroundJob.objects.get().subject, timeout_s=1, actor="another page")


def test_a_task_that_runs_twice_makes_one_snapshot(owner, queued):
    post(owner)
    ((key,),) = queued
    assert snapshot_experiment(key)
    assert snapshot_experiment(key) == ""
    assert Snapshot.objects.count() == 1


def test_a_failed_snapshot_is_shown_with_its_reason_and_its_entries(owner, queued, experiment):
    post(owner)
    Run.objects.update(status="running")  # It was resumed between the request and the worker.
    ((key,),) = queued
    snapshot_experiment(key)
    page = owner.get(reverse("experiment_files", args=["pilot"]))
    assert "was not created:</strong> pilot is running; pause it, or wait until it is done" in page_text(page)
    assert 'value="To submit the paper"' in page.content.decode()
    assert experiment.history.filter(aspect="snapshot", to_value="not made").get().by == experiment.owner
    Run.objects.update(status="done")
    assert WAITING in post(owner)
    assert len(queued) == 2


def test_an_unexpected_error_of_the_worker_is_shown(owner, queued, monkeypatch):
    post(owner)
    monkeypatch.setattr("grading_app.tasks.make_snapshot", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        snapshot_experiment(*queued[0])
    assert "was not created:</strong> the worker stopped with an error; see its log" in read(owner)


@pytest.mark.django_db(transaction=True)
def test_the_snapshot_of_a_killed_worker_can_be_requested_again(owner, queued):
    post(owner)
    job = BackgroundJob.objects.get()
    worker = connections.create_connection("default")
    try:
        with worker.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s, %s)", [LOCK_CLASS, job.pk])
        BackgroundJob.objects.update(started_at=timezone.now())
        job.refresh_from_db()
        assert "A snapshot is being created" in read(owner)
        assert BackgroundJob.objects.sweep() == 0
        assert "no second one was requested" in post(owner)
    finally:
        worker.close()
    deadline = time.monotonic() + 60
    while (
        not BackgroundJob.objects.get().find_stop() and time.monotonic() < deadline
    ):  # The database ends the session after the connection.
        time.sleep(0.05)
    assert "The worker that created the snapshot has stopped." in read(owner)
    assert WAITING in post(owner)
    assert len(queued) == 2
    job.refresh_from_db()
    assert job.problem == "the worker stopped"


def test_a_request_that_no_worker_started_can_be_replaced(owner, queued):
    post(owner)
    BackgroundJob.objects.update(requested_at=timezone.now() - timedelta(minutes=11))
    page = read(owner)
    assert "No worker has started on the snapshot" in page
    assert "Create snapshot" in page
    post(owner)
    assert snapshot_experiment(*queued[0]) == ""
    assert snapshot_experiment(*queued[1])
    assert Snapshot.objects.count() == 1


def test_a_refused_request_keeps_the_entries(owner, queued):
    Run.objects.update(status="running")
    page = owner.post(reverse("snapshot_make", args=["pilot"]), ENTRIES)
    assert "pilot is running; pause it" in page_text(page)
    assert 'value="To submit the paper"' in page.content.decode()
    page = owner.post(reverse("snapshot_make", args=["pilot"]), ENTRIES | {"reason": ""})
    assert 'value="submission"' in page.content.decode()
    assert not queued


def test_a_reader_sees_that_a_snapshot_is_being_made_but_cannot_request_one(client, queued, experiment):
    client.force_login(experiment.owner)
    post(client)
    experiment.sharing = "group"
    experiment.save(update_fields=["sharing"])
    client.force_login(factories.make_user("reader", "Viewer"))
    page = read(client)
    assert WAITING in page
    assert "Create snapshot" not in page
