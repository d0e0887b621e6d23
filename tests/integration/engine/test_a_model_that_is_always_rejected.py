"""A model that always answers 429 stops its own run, and the other runs of the endpoint go on."""

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.engine import recorder
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Endpoint, Run
from tests import factories
from tests.factories.engine import build_reply, drain


@pytest.fixture
def runs(transactional_db, settings, monkeypatch):
    """Two runs at one endpoint. A run stops after four pauses in a row, and pauses are short."""
    settings.RATE_LIMIT_PAUSES = 4
    monkeypatch.setattr(recorder, "LONGEST_PAUSE_S", 0.05)
    endpoint = factories.make_endpoint("shared", is_free=True)
    experiment = factories.make_experiment(
        "both",
        dataset=factories.make_dataset("some", 12),
        models=[factories.make_model(name, endpoint=endpoint) for name in ("greedy", "modest")],
        max_usd=None,
        backoff_s=0.1,
    )
    for run in factories.make_runs(experiment):
        factories.plan_trials(run)
    return {run.condition.model.name: run for run in Run.objects.with_design()}


async def reject_one_model(request):
    if request.model.endswith("greedy"):
        raise CallFailure(ErrorClass.RATE_LIMITED, "too many requests", http_status=429, retry_after_s=0.05)
    return build_reply()


def test_only_the_run_of_the_rejected_model_stops(runs):
    drain(reject_one_model, seconds=60)
    rejected, answered = runs["greedy"], runs["modest"]
    rejected.refresh_from_db()
    answered.refresh_from_db()
    assert (answered.status, answered.n_done) == ("done", 12)
    assert (rejected.status, rejected.n_pending, rejected.n_failed) == ("stopped", 12, 0)
    assert rejected.stop_reason.startswith(
        "Model greedy at endpoint shared answered 429 (too many requests) 4 times in a row"
    )
    assert find_differences() == []


def test_the_rejection_that_stops_a_run_does_not_pause_the_others(runs, settings):
    settings.RATE_LIMIT_PAUSES = 1

    async def call(request):
        if request.model.endswith("greedy"):
            raise CallFailure(ErrorClass.RATE_LIMITED, "tomorrow", http_status=429, retry_after_s=600)
        return build_reply()

    drain(call, seconds=60)
    assert set(Run.objects.values_list("status", flat=True)) == {"done", "stopped"}
    assert not Endpoint.objects.get(name="shared").is_paused


def test_a_resumed_run_counts_from_the_beginning_and_an_answer_resets_the_count(runs):
    drain(reject_one_model, seconds=60)
    run_control.resume(Run.objects.filter(status="stopped"), by="test")
    assert Run.objects.get(pk=runs["greedy"].pk).rejections == 0
    calls = 0

    async def reject_every_third(request):
        nonlocal calls
        calls += 1
        if calls % 3:
            raise CallFailure(ErrorClass.RATE_LIMITED, "too many requests", http_status=429, retry_after_s=0.01)
        return build_reply()

    drain(reject_every_third, seconds=60)
    run = Run.objects.get(pk=runs["greedy"].pk)
    assert (run.status, run.n_done, run.rejections) == ("done", 12, 0)
