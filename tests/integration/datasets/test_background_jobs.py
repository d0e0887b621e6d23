"""Jobs for pages: one open job per subject, one worker per job, progress during the work, and an end that stays."""

from datetime import timedelta

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from datasets_app.models import BackgroundJob
from datasets_app.models import background_jobs as jobs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def queued(monkeypatch):
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda *call, **options: tasks.append(call))
    return tasks


def request_job(subject="upload 1/a", kind="import"):
    return BackgroundJob.objects.request(subject, kind, task="some.task", timeout_s=60, by="a test", parameters={})


def read_elsewhere(column):
    """Read a column over a second connection, as a page does during the work."""
    other = connections.create_connection("default")
    try:
        with other.cursor() as cursor:
            cursor.execute(f"SELECT {column} FROM datasets_app_backgroundjob")
            return cursor.fetchone()[0]
    finally:
        other.close()


def test_a_subject_has_one_open_job_and_may_have_another_after_its_end(queued):
    first, is_new = request_job()
    assert is_new
    assert request_job(kind="check") == (first, False)
    assert request_job("upload 1/b")[1]
    with first.perform():
        first.finish()
    assert request_job()[1]
    assert [call[0] for call in queued] == ["some.task"] * 3


def test_a_second_worker_does_nothing_while_the_first_one_works_or_after_its_end(queued):
    job, _ = request_job()
    with job.perform() as is_first:
        with BackgroundJob.objects.get().perform() as is_second:
            assert (is_first, is_second) == (True, False)
        job.finish(dataset=["set", 1])
    with BackgroundJob.objects.get().perform() as is_third:
        assert not is_third
    assert BackgroundJob.objects.get().result == {"dataset": ["set", 1]}


@pytest.fixture
def closed_late(monkeypatch):
    """The connections of workers, which close only after the test. The server, too, ends a session after its close."""
    create, closes = connections.create_connection, []

    def create_connection(alias):
        own = create(alias)
        closes.append(own.close)
        own.close = lambda: None
        return own

    monkeypatch.setattr(connections, "create_connection", create_connection)
    yield
    for close in closes:
        close()


def test_a_job_is_free_for_the_next_worker_as_soon_as_one_leaves_it(queued, closed_late):
    job, _ = request_job()
    with job.perform():
        assert not BackgroundJob.objects.get().is_lost
    assert BackgroundJob.objects.get().is_lost
    with BackgroundJob.objects.get().perform() as is_next:
        assert is_next


def test_progress_is_visible_while_the_transaction_of_the_work_is_open_and_stays_after_its_rollback(queued):
    job, _ = request_job()
    with job.perform():
        job.enter(jobs.SAVING, total=90)
        with transaction.atomic():
            job.report(30)
            assert read_elsewhere("done") == 30
            transaction.set_rollback(True)
        assert (BackgroundJob.objects.get().done, BackgroundJob.objects.get().state) == (30, "saving")


def test_a_worker_that_lost_its_job_to_another_one_records_nothing(queued, monkeypatch):
    monkeypatch.setattr(jobs, "REPORT_S", 0)
    job, _ = request_job()
    with job.perform():
        with connection.cursor() as cursor:  # The database ends the connection; the worker goes on.
            cursor.execute("SELECT pg_terminate_backend(%s, 60000)", [job._own_connection.connection.info.backend_pid])
            assert cursor.fetchone() == (True,)
        job._own_connection.close()
        replacement = BackgroundJob.objects.get()
        assert replacement.is_lost
        with replacement.perform() as is_mine:
            assert is_mine
            replacement.report(5)
            job.report(99)
            job.finish("too late")
            assert BackgroundJob.objects.get().is_active
            assert BackgroundJob.objects.get().done == 5
            replacement.finish()
    assert BackgroundJob.objects.get().state == "done"


def test_the_sweep_ends_lost_jobs_leaves_others_and_deletes_old_ones(queued):
    lost, _ = request_job("upload 1/lost")
    with lost.perform():
        pass  # It dies before the end.
    running, _ = request_job("upload 1/running")
    request_job("upload 1/waiting")
    old, _ = request_job("upload 1/old")
    with old.perform():
        old.finish()
    BackgroundJob.objects.filter(pk=old.pk).update(ended_at=timezone.now() - jobs.KEPT_FOR - timedelta(days=1))
    with running.perform():
        assert BackgroundJob.objects.sweep() == 1
    states = dict(BackgroundJob.objects.values_list("subject", "problem"))
    assert states == {"upload 1/lost": jobs.WORKER_STOPPED, "upload 1/running": "", "upload 1/waiting": ""}
    assert request_job("upload 1/lost")[1]


def test_a_problem_that_quotes_what_the_database_cannot_store_ends_the_job(queued):
    job, _ = request_job()
    with job.perform():
        job.finish("the row has 'a\0b\ud800'")
    assert BackgroundJob.objects.get().problem == "the row has 'a?b?'"


def test_only_a_job_that_ended_is_late_or_was_lost_can_be_tried_again(queued):
    job, _ = request_job()
    job.retry()
    assert len(queued) == 1
    BackgroundJob.objects.update(requested_at=timezone.now() - timedelta(seconds=30))
    BackgroundJob.objects.get().retry()
    assert len(queued) == 2
    with job.perform():
        BackgroundJob.objects.get().retry()
        assert len(queued) == 2
        job.finish("it failed")
    BackgroundJob.objects.get().retry()
    assert len(queued) == 3
    assert BackgroundJob.objects.get().state == "queued"
