"""Locks end before a commit is on disk, but a cycle and a record return only when it is."""

import pytest
from django.db import connection

from runs_app.engine import prepared_sql, recorder, worker_cycle
from runs_app.engine.admission import WorkerCapacity
from runs_app.engine.recorder import Result, record_results
from runs_app.engine.worker_cycle import run_cycle
from tests.factories.engine import register_worker


def read(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


@pytest.fixture
def commits(transactional_db, monkeypatch):
    """Return, for each wait for the disk, whether the log was on disk up to its end before the wait.

    The database of the tests waits for no disk, so this session does as those of a site.
    """
    found = []
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")

    def wait():
        written = read("SELECT pg_current_wal_insert_lsn()")
        prepared_sql.wait_for_disk()
        found.append(read(f"SELECT pg_current_wal_flush_lsn() >= '{written}'"))

    for module in (worker_cycle, recorder):
        monkeypatch.setattr(module, "wait_for_disk", wait)
    yield found
    with connection.cursor() as cursor:
        cursor.execute("RESET synchronous_commit")


def test_a_cycle_and_a_record_wait_for_the_disk(run, commits):
    worker = register_worker()
    claims = run_cycle([], worker, WorkerCapacity(4)).claims
    assert len(claims) == 4
    assert commits == [True]
    record_results([Result(claim, "done", {"answer": "4", "raw_response": "4"}) for claim in claims], worker)
    assert commits == [True, True]
    run.refresh_from_db()
    assert run.n_done == 4


def test_only_these_transactions_commit_without_waiting(run, commits):
    run_cycle([], register_worker(), WorkerCapacity(1))
    assert read("SHOW synchronous_commit") == "on"
    assert run.trials.filter(status="running").count() == 1
