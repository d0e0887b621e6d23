"""Answers and attempts are written before the endpoint is locked, so that workers rarely wait for each other."""

from concurrent.futures import ThreadPoolExecutor

from django.db import connection, transaction

from grading_app.grading.consistency_check import find_differences
from runs_app.engine.recorder import record_results, write_trials
from runs_app.models import Attempt, LedgerEntry
from tests.factories.engine import admit, build_text_result, register_worker


def run_in_another_session(work):
    """Return the result of `work()` in another database session with a lock timeout of five seconds."""

    def go():
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '5s'")
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(go).result()


def test_a_worker_records_results_while_another_has_uncommitted_answers_of_the_same_run(run):
    mine, yours = register_worker(), register_worker()
    slow, quick = (build_text_result(admit(worker_id, 1)[0]) for worker_id in (mine, yours))
    with transaction.atomic():
        assert write_trials([slow], mine).held == [slow]
        assert run_in_another_session(lambda: record_results([quick], yours)) == 1
        transaction.set_rollback(True)
    assert Attempt.objects.get().worker_id == yours
    assert record_results([slow], mine) == 1
    run.refresh_from_db()
    assert (run.n_attempts, LedgerEntry.objects.filter(run=run).count()) == (2, 2)
    assert find_differences() == []
