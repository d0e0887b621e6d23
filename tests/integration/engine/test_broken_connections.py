"""Broken connections, answers that cannot be stored, and deleted rows: each error affects only its own trial."""

import asyncio

import pytest
from django.db import InterfaceError, OperationalError

from grading_app.grading.consistency_check import find_differences
from runs_app import deletion, run_control
from runs_app.engine import recorder, requests, worker_cycle
from runs_app.engine import worker as worker_module
from runs_app.engine.design_cache import DesignCache
from runs_app.engine.leases import sweep_expired
from runs_app.engine.recorder import record_results
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Attempt, Experiment, Run
from tests.factories.engine import (
    admit,
    build_provider,
    build_reply,
    build_text_result,
    drain,
    expire_leases,
    register_worker,
)


def fail_first_call(monkeypatch, owner, name, error):
    """Wrap the real function so that its first call fails."""
    real, calls = getattr(owner, name), []

    def wrapped(*arguments, **keywords):
        calls.append(arguments)
        if len(calls) == 1:
            raise error
        return real(*arguments, **keywords)

    monkeypatch.setattr(owner, name, wrapped)
    return calls


@pytest.mark.parametrize("error", [OperationalError("gone"), InterfaceError("closed")])
def test_claims_lost_with_a_broken_connection_are_released_without_an_attempt(run, monkeypatch, error):
    monkeypatch.setattr(worker_module, "OUTAGE_S", 0.01)
    fail_first_call(monkeypatch, DesignCache, "fetch", error)
    drain(build_provider(), concurrency=4)
    assert set(run.trials.values_list("status", "attempts")) == {("done", 1)}
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"ok"}
    assert find_differences() == []


def test_calls_in_flight_survive_a_broken_connection(run, monkeypatch):
    monkeypatch.setattr(worker_module, "OUTAGE_S", 0.01)
    fail_first_call(monkeypatch, worker_module, "run_cycle", OperationalError("gone"))
    received = []

    async def call(request):
        received.append(request)
        return build_reply()

    drain(call)
    assert len(received) == 6
    assert find_differences() == []


def test_an_answer_that_the_database_refuses_fails_only_its_own_trial(run):
    received = []

    async def call(request):
        received.append(request)
        return build_reply(output_tokens=2**40 if len(received) == 2 else 5)

    drain(call)
    assert set(run.trials.filter(status="failed").values_list("error_class", flat=True)) == {"internal_error"}
    assert run.trials.filter(status="done").count() == 5
    assert len(received) == 6
    assert find_differences() == []


def test_long_answers_are_written_in_several_statements(run, monkeypatch):
    monkeypatch.setattr(recorder, "MAX_BATCH_CHARS", 100)
    portions = fail_first_call(monkeypatch, worker_cycle, "write_and_lock", OperationalError("gone"))
    monkeypatch.setattr(worker_module, "OUTAGE_S", 0.01)
    drain(build_provider("x" * 90))
    assert max(len(results) for _, results, _ in portions) == 1
    assert run.trials.filter(status="done", answer="x" * 90).count() == 6


def test_a_late_answer_to_a_deleted_experiment_does_not_stop_the_drain(run, caplog):
    holder = register_worker()
    claims = admit(holder, 2)
    expire_leases()
    sweep_expired()
    run_control.pause(Run.objects.all(), by="test")
    deletion.delete(Experiment.objects.get(), by="test")
    assert record_results([build_text_result(claim) for claim in claims], holder) == 0
    assert "2 answers arrived after their experiment was deleted" in caplog.text


def test_a_request_that_cannot_be_built_fails_only_its_own_trial(run, monkeypatch):
    monkeypatch.setattr("runs_app.engine.outcomes.compute_backoff_s", lambda *_, **__: 0.0)
    real = requests.RunDesign.prepare_request

    def ask(design, question, sample_idx):
        if question.key == "item-1":
            raise KeyError("a bug")
        return real(design, question, sample_idx)

    monkeypatch.setattr(requests.RunDesign, "prepare_request", ask)
    drain(build_provider())
    run.refresh_from_db()
    assert (run.n_done, run.n_failed) == (4, 2)
    assert set(Attempt.objects.filter(outcome="transient").values_list("cost_usd", flat=True)) == {0}


def test_the_heartbeat_continues_after_an_error(run, monkeypatch):
    Experiment.objects.update(lease_s=1)
    monkeypatch.setattr(worker_module, "HEARTBEAT_S", 0.02)
    beats = fail_first_call(monkeypatch, WorkerRegistration, "send_heartbeat", ValueError("a bug"))

    async def call(request):
        async with asyncio.timeout(60):
            while len(beats) < 3:
                await asyncio.sleep(0.01)
        return build_reply()

    assert drain(call) == 6
    assert len(beats) > 2
