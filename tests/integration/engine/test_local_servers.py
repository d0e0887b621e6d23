"""A model that stalls on a local server is unloaded after three timeouts in a row, counted over all workers."""

import asyncio
import dataclasses

import pytest
from django.db import connection

from evalsite.lib.history import StatusChange
from grading_app.grading.consistency_check import find_differences
from runs_app.engine import rate_limiter
from runs_app.engine.model_state import note_call
from runs_app.engine.worker import Drain, DrainLimits
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Endpoint, Experiment, LanguageModel, Trial
from runs_app.processes.worker_process import evict
from runs_app.simulator import SimulatorConfig, start
from tests.factories.engine import build_reply
from tests.integration.gateway.fake_provider import run_fake_provider
from tests.integration.gateway.gateway_calls import make_request

TIMED_OUT = {"outcome": "transient", "error_class": "timeout"}


@pytest.fixture
def local(run, monkeypatch):
    monkeypatch.setattr(rate_limiter, "FIRST_WAIT_S", 0.01)  # A server whose calls all time out is tested sooner.
    Endpoint.objects.update(local_server="ollama", max_concurrency=1, is_free=True)
    Experiment.objects.update(max_attempts=1, stop_after_attempts=100)
    return run


def drain_and_list_unloads(call):
    """Drain with this provider; return the requests whose model was unloaded."""
    unloaded_requests = []

    async def record_unload(trial_request):
        unloaded_requests.append(trial_request)

    registration = WorkerRegistration()

    async def go():
        await Drain(call, registration, DrainLimits(until_idle=True), evict=record_unload).run()

    asyncio.run(go())
    return unloaded_requests


def answer_with_outcomes(*words):
    remaining = list(words)

    async def call(trial_request):
        word = remaining.pop(0)
        if word == "ok":
            return build_reply()
        raise CallFailure(ErrorClass(word), "no")

    return call


def test_the_third_timeout_in_a_row_unloads_the_model_and_is_recorded_in_the_history(local):
    (trial_request,) = drain_and_list_unloads(answer_with_outcomes("timeout", "timeout", "timeout", "ok", "ok", "ok"))
    assert trial_request.model == "vendor/small"
    (change,) = StatusChange.objects.filter(aspect="local server")
    assert (change.to_value, change.reason) == ("evicted", "3 time-outs in a row")
    assert find_differences() == []


def test_only_an_answer_resets_the_timeout_count(local):
    assert (
        drain_and_list_unloads(answer_with_outcomes("timeout", "timeout", "ok", "timeout", "server_error", "timeout"))
        == []
    )
    assert LanguageModel.objects.get().stalls == 2


def test_workers_share_the_timeout_count_and_exactly_one_unloads_the_model(local):
    model = LanguageModel.objects.get().pk
    calls = [note_call(model, TIMED_OUT, worker) for worker in ("a", "b", "a", "b", "a", "b")]
    assert calls == [False, False, True, False, False, True]
    assert list(StatusChange.objects.filter(aspect="local server").values_list("actor", flat=True)) == ["b", "a"]


def test_released_calls_and_cached_answers_do_not_reset_the_timeout_count(local):
    model = LanguageModel.objects.get().pk
    calls = [TIMED_OUT, {"outcome": "released"}, TIMED_OUT, {"outcome": "cached"}, TIMED_OUT]
    assert [note_call(model, call, "worker") for call in calls] == [False, False, False, False, True]


def test_no_model_is_unloaded_without_the_option(local):
    Endpoint.objects.update(local_server="")
    assert (
        drain_and_list_unloads(answer_with_outcomes("timeout", "timeout", "timeout", "timeout", "timeout", "timeout"))
        == []
    )
    assert LanguageModel.objects.get().stalls == 0


def set_address(url):
    Endpoint.objects.update(base_url=url)
    connection.close()


@pytest.mark.slow
def test_a_stalled_model_answers_after_it_is_unloaded(local):
    """A real drain, a real server: the first three trials time out, the rest are answered."""

    unloaded = []

    async def call_with_short_timeout_first(trial_request):
        return await gateway.call(trial_request if unloaded else dataclasses.replace(trial_request, timeout_s=0.3))

    async def unload(trial_request):
        await evict(trial_request)
        unloaded.append(trial_request.model)

    async def go():
        running = await start(SimulatorConfig(stalled=("vendor/small",)))
        await asyncio.to_thread(set_address, running.url)
        try:
            await Drain(call_with_short_timeout_first, registration, DrainLimits(until_idle=True), evict=unload).run()
        finally:
            await gateway.close_session()
            await running.stop()
        return running.simulator.counters.unloaded

    gateway.warm_up()
    registration = WorkerRegistration()
    assert dict(asyncio.run(go())) == {"vendor/small": 1}
    assert unloaded == ["vendor/small"]
    assert sorted(Trial.objects.values_list("status", flat=True)) == ["done"] * 3 + ["failed"] * 3
    assert find_differences() == []


async def unload_and_close(call):
    try:
        await evict(call)
    finally:
        await gateway.close_session()


def test_a_model_is_unloaded_by_ollamas_own_request_and_a_failure_is_ignored(settings, monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_LAB", "secret-of-the-lab")
    with run_fake_provider() as fake:
        asyncio.run(unload_and_close(make_request(f"{fake.url}/v1", model="qwen3:8b", key_env="EVALSITE_KEY_LAB")))
        assert (fake.last.path, fake.last.body) == ("/api/generate", {"model": "qwen3:8b", "keep_alive": 0})
        assert fake.last.headers["authorization"] == "Bearer secret-of-the-lab"
        fake.status = 500
        asyncio.run(unload_and_close(make_request(fake.url, model="qwen3:8b")))
        settings.LLM_ALLOWED_HOSTS = []
        asyncio.run(unload_and_close(make_request("http://203.0.113.1", model="qwen3:8b")))
        assert len(fake.requests) == 2
