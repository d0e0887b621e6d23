"""Results that a dead worker received but did not record are recorded by another worker, without a second call."""

import os
from decimal import Decimal

import pytest
from django.conf import settings

from grading_app.grading.consistency_check import find_differences
from runs_app.engine import outcomes
from runs_app.engine.leases import sweep_expired
from runs_app.engine.outcomes import RetryPolicy
from runs_app.engine.recorder import Result, record_results
from runs_app.engine.result_spool import MAX_RECORDED_BYTES, ResultSpool, record_orphaned_results
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm.calls import Allowance, CallFailure, ErrorClass, Remaining
from runs_app.models import Attempt, Endpoint, Trial, Worker
from tests.factories.engine import admit, build_provider, build_text_result, drain, expire_leases


@pytest.fixture
def worker(run):
    return WorkerRegistration()


@pytest.fixture
def spool(worker):
    return ResultSpool(settings.RESULT_SPOOL_DIR, worker.name)


def write_spool(spool, results):
    """Write a spool as a worker does that dies before it records these results."""
    for result in results:
        spool.add(result)
    spool.close()


def read_columns(model, **filters):
    """Return the stored columns of each row, without keys and timestamps."""
    rows = list(model.objects.filter(**filters).order_by("pk").values())
    passing = ("id", "trial_id", "token", "item_id", "sample_idx", "worker_id")
    return [
        {name: value for name, value in row.items() if name not in passing and not name.endswith("_at")} for row in rows
    ]


def build_failure(claim):
    failure = CallFailure(ErrorClass.TIMEOUT, "no answer within 60 s")
    conclusion = outcomes.build_failure_outcome(failure, attempts=3, yields=0, retry=RetryPolicy(3))
    return Result(claim, conclusion.status, conclusion.trial, [outcomes.build_attempt_from_failure(failure)])


@pytest.mark.parametrize("ending", [build_text_result, build_failure])
def test_spooled_results_of_a_dead_worker_are_recorded_like_direct_results(worker, spool, ending):
    claims = admit(worker.worker_id, 2)
    record_results([ending(claims[0])], worker.worker_id)
    write_spool(spool, [ending(claims[1])])
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 1

    stored, adopted = read_columns(Trial, attempts=1)
    assert adopted == stored
    direct, spooled = read_columns(Attempt)
    assert spooled == direct
    assert set(Attempt.objects.values_list("worker", flat=True)) == {worker.worker_id}
    assert Endpoint.objects.get().in_flight == 0
    assert find_differences() == []
    assert list(settings.RESULT_SPOOL_DIR.iterdir()) == []


@pytest.mark.parametrize("text", ["two\nlines", "\x00", "a\u2028b", '{"a": "\\"}', "\U0001f600"])
def test_results_with_any_text_are_recorded(worker, spool, text):
    (claim,) = admit(worker.worker_id, 1)
    write_spool(spool, [build_text_result(claim, text)])
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 1
    assert Trial.objects.get(pk=claim.trial_id).answer == text.replace("\x00", "\ufffd")


def test_an_answer_that_the_spool_cannot_hold_is_recorded(run):
    assert drain(build_provider("half \ud83d of a pair")) == 6
    assert set(Trial.objects.values_list("answer", flat=True)) == {"half ? of a pair"}


def test_a_result_recorded_before_its_worker_died_is_counted_once(worker, spool):
    results = [build_text_result(claim, "once") for claim in admit(worker.worker_id, 2)]
    record_results(results, worker.worker_id)
    write_spool(spool, results)
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 0
    assert Attempt.objects.count() == 2
    assert find_differences() == []


def test_a_result_of_a_reclaimed_trial_is_a_late_attempt_with_its_cost(run, worker, spool):
    (claim,) = admit(worker.worker_id, 1)
    expire_leases()
    sweep_expired()
    drain(build_provider("in time"))
    write_spool(spool, [build_text_result(claim)])
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 0
    assert Trial.objects.get(pk=claim.trial_id).answer == "in time"
    assert Attempt.objects.get(outcome="late").cost_usd == Decimal("0.5")
    assert find_differences() == []


def test_endpoint_feedback_of_a_dead_worker_is_dropped(worker, spool):
    (claim,) = admit(worker.worker_id, 1)
    result = build_text_result(claim)
    result.pause_s, result.allowance = 600.0, Allowance(requests=Remaining(0, 600.0))
    write_spool(spool, [result])
    record_orphaned_results(settings.RESULT_SPOOL_DIR)
    endpoint = Endpoint.objects.get()
    assert endpoint.paused_until is None
    assert len(admit(worker.worker_id, 1)) == 1


def test_the_spool_of_a_live_worker_is_not_processed(worker, spool):
    (claim,) = admit(worker.worker_id, 1)
    spool.add(build_text_result(claim))
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 0
    spool.close()
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 1


def test_the_spool_of_another_database_is_not_processed(worker, spool):
    (claim,) = admit(worker.worker_id, 1)
    write_spool(spool, [build_text_result(claim)])
    Worker.objects.filter(pk=worker.worker_id).update(name="a worker of another site")
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 0
    assert spool.path.exists()


def test_an_incomplete_line_is_skipped_and_the_others_are_recorded(worker, spool):
    results = [build_text_result(claim) for claim in admit(worker.worker_id, 2)]
    write_spool(spool, results)
    spool.path.write_bytes(spool.path.read_bytes()[:-20])
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 1
    expire_leases()
    assert sweep_expired() == 1


def test_a_refused_spool_is_renamed_and_the_drain_continues(run, worker, spool):
    (claim,) = admit(worker.worker_id, 1)
    result = build_text_result(claim)
    result.calls[0]["call"] = 2**40
    write_spool(spool, [result])
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 0
    assert [path.suffix for path in settings.RESULT_SPOOL_DIR.iterdir()] == [".refused"]
    expire_leases()
    sweep_expired()
    assert drain(build_provider()) == 6


def test_a_full_disk_does_not_damage_earlier_lines(worker, spool, monkeypatch, caplog):
    complete, truncated, following = (build_text_result(claim) for claim in admit(worker.worker_id, 3))
    spool.add(complete)
    write = os.write
    monkeypatch.setattr("runs_app.engine.result_spool.os.write", lambda file, line: write(file, line[: len(line) // 2]))
    spool.add(truncated)
    monkeypatch.undo()
    spool.add(following)
    assert "no space for a whole line" in caplog.text
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 1
    assert Trial.objects.get(status="done").pk == complete.claim.trial_id


def test_only_recorded_lines_are_removed_from_the_spool(worker, spool):
    recorded, unrecorded = (build_text_result(claim, "long " * 100_000) for claim in admit(worker.worker_id, 2))
    for result in (recorded, recorded, recorded, unrecorded):
        spool.add(result)
    assert spool.path.stat().st_size > MAX_RECORDED_BYTES
    spool.keep_only([unrecorded])
    assert spool.path.stat().st_size < MAX_RECORDED_BYTES
    spool.close()
    assert record_orphaned_results(settings.RESULT_SPOOL_DIR) == 1
    assert Trial.objects.get(status="done").pk == unrecorded.claim.trial_id


def test_a_drain_that_ends_leaves_no_spool(run):
    assert drain(build_provider()) == 6
    assert list(settings.RESULT_SPOOL_DIR.iterdir()) == []


def test_a_drain_without_a_spool_logs_a_warning_and_continues(run, caplog):
    settings.RESULT_SPOOL_DIR.parent.mkdir(exist_ok=True)
    settings.RESULT_SPOOL_DIR.write_text("in the way")
    assert drain(build_provider()) == 6
    assert "no result spool" in caplog.text
