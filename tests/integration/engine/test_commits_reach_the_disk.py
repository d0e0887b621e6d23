"""Locks end before a commit is on disk, but a cycle and a record return only when it is."""

import pytest
from django.db import connection

from runs_app.engine import prepared_sql, worker_cycle
from runs_app.engine.admission import WorkerCapacity
from runs_app.engine.recorder import Result, record_results
from runs_app.engine.worker_cycle import run_cycle
from tests.factories.engine import register_worker


def read(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


@pytest.fixture
def durable_session(transactional_db):
    """The database of the tests waits for no disk, so this session does as those of a site."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
    yield
    with connection.cursor() as cursor:
        cursor.execute("RESET synchronous_commit")


@pytest.fixture
def commits(durable_session, monkeypatch):
    """Return, for each transaction that commits in one round trip, whether it was on disk after that.

    A commit may reach the disk on its own, so each is only checked at once. The last statement returns the end of the
    log after the commit.
    """
    found, fetch = [], prepared_sql.fetch_pipelined

    def fetch_pipelined(*statements):
        rows = fetch(*statements)
        if ("COMMIT", ()) in statements:
            found.append(read(f"SELECT pg_current_wal_flush_lsn() >= '{rows[-1][0][0]}'"))
        return rows

    monkeypatch.setattr(prepared_sql, "fetch_pipelined", fetch_pipelined)
    return found


def test_a_cycle_and_a_record_wait_for_the_disk(run, commits):
    worker = register_worker()
    claims = run_cycle([], worker, WorkerCapacity(4)).claims
    assert len(claims) == 4
    assert commits == [True]
    record_results([Result(claim, "done", {"answer": "4", "raw_response": "4"}) for claim in claims], worker)
    assert commits == [True, True]
    run.refresh_from_db()
    assert run.n_done == 4


def test_a_cycle_that_ends_its_run_waits_for_the_disk_too(run, durable_session, monkeypatch):
    worker, waits = register_worker(), []
    claims = run_cycle([], worker, WorkerCapacity(6)).claims

    def wait():
        waits.append(prepared_sql._thread.commits_may_be_off_disk)
        prepared_sql.wait_for_disk()

    monkeypatch.setattr(worker_cycle, "wait_for_disk", wait)
    run_cycle([Result(claim, "done", {"answer": "4"}) for claim in claims], worker, WorkerCapacity(6))
    run.refresh_from_db()
    assert (run.status, waits, prepared_sql._thread.commits_may_be_off_disk) == ("done", [True], False)


def test_only_these_transactions_commit_without_waiting(run, durable_session):
    run_cycle([], register_worker(), WorkerCapacity(1))
    assert read("SHOW synchronous_commit") == "on"
    assert run.trials.filter(status="running").count() == 1
