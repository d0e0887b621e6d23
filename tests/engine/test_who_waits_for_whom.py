"""What is done while the endpoint is locked is as little as can be: answers and attempts are written before it, and the
commit goes with the last statement."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import IntegrityError, connection, transaction

from runs_app.engine.admitting import admit
from runs_app.engine.recording import record, write_trials
from runs_app.engine.statements import executed_last, fetched
from runs_app.models import Attempt, LedgerEntry, Run, Tick
from runs_app.reconciling import differences
from tests.engine.test_fencing_and_leases import result_of, worker

ENTER = "INSERT INTO runs_app_tick (run_id, at, done, failed, attempts) VALUES (%s, now(), 0, 0, 0)"


def in_another_session(work):
    """What it returns in a session of the database beside ours, which waits for no lock longer than a few seconds."""

    def go():
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '5s'")
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(go).result()


def test_a_worker_records_a_run_while_another_has_written_its_answers_and_not_yet_committed(run):
    mine, yours = worker(), worker()
    slow, quick = (result_of(admit(who, 1)[0]) for who in (mine, yours))
    with transaction.atomic():
        assert write_trials([slow], mine).held == [slow]
        assert in_another_session(lambda: record([quick], yours)) == 1
        transaction.set_rollback(True)
    assert Attempt.objects.get().worker_id == yours
    assert record([slow], mine) == 1
    run.refresh_from_db()
    assert (run.n_attempts, LedgerEntry.objects.filter(run=run).count()) == (2, 2)
    assert differences() == []


def test_the_last_statement_of_a_transaction_commits_it(run):
    with transaction.atomic():
        executed_last(ENTER, run.pk)
        assert in_another_session(Tick.objects.count) == 1
    assert fetched("SELECT count(*) FROM runs_app_tick") == [(1,)]


def test_within_another_transaction_it_commits_nothing(run):
    with transaction.atomic():
        with transaction.atomic():
            executed_last(ENTER, run.pk)
        assert in_another_session(Tick.objects.count) == 0
        transaction.set_rollback(True)
    assert not Tick.objects.exists()


@pytest.mark.parametrize("fault", ["of the statement", "of the commit"])
def test_what_it_breaks_is_raised_and_undone_with_all_that_came_before(run, fault):
    wrong = None if fault == "of the statement" else 0  # No run at all, or one that the commit looks for in vain.
    said = "null value" if wrong is None else "foreign key"

    @transaction.atomic
    def work():
        Run.objects.update(stop_reason="half done")
        executed_last(ENTER, wrong)

    with pytest.raises(IntegrityError, match=said):
        work()
    assert not Tick.objects.exists()
    assert not Run.objects.exclude(stop_reason="").exists()
    assert not connection.in_atomic_block
