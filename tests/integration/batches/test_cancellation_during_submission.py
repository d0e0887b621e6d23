"""A batch is cancelled, or its run stopped, before or while a worker submits it."""

import asyncio

import pytest
from django.db import connections
from django.utils.module_loading import import_string

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.llm.providers import PROVIDERS
from runs_app.models import Endpoint, ProviderBatch, Run
from runs_app.processes.worker_process import is_drain_needed
from tests.factories.batches import Killed, drive_batches, kill_at, make_batched_run

pytestmark = pytest.mark.django_db(transaction=True)


def cancel():
    run_control.cancel(Run.objects.all(), by="tester", reason="enough")


def pause():
    run_control.pause(Run.objects.all(), by="tester", reason="a look at it")


def deactivate_endpoint():
    Endpoint.objects.update(is_active=False)


def resume_all():
    Endpoint.objects.update(is_active=True)
    run_control.resume(Run.objects.all(), by="tester")


def call_before(monkeypatch, kind, step, *, do):
    """Call `do` once, just before a worker takes this step at the provider."""
    api = import_string(PROVIDERS[kind].batch_api)
    real, waiting = getattr(api, step), [do]

    def run_in_thread():
        waiting.pop()()
        connections.close_all()

    async def wrapped_step(self, *arguments, **named):
        if waiting:
            await asyncio.to_thread(run_in_thread)
        return await real(self, *arguments, **named)

    monkeypatch.setattr(api, step, wrapped_step)


def test_a_batch_cancelled_during_its_upload_is_never_submitted(provider, monkeypatch):
    run = make_batched_run(provider.url)
    call_before(monkeypatch, "openai", "upload", do=cancel)
    drive_batches()
    run.refresh_from_db()
    assert provider.counters()["batches"] == 0
    assert (run.status, run.n_cancelled, ProviderBatch.objects.get().status) == ("cancelled", 6, "cancelled")
    assert find_differences() == []


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_batch_cancelled_in_submission_is_cancelled_at_the_provider(provider, monkeypatch, kind):
    run = make_batched_run(provider.url, kind)
    provider.set_faults(batch_waits={"done": 1000})
    call_before(monkeypatch, kind, "create", do=cancel)
    drive_batches(steps=400)
    run.refresh_from_db()
    batch = ProviderBatch.objects.get()
    assert batch.provider_id
    assert (run.status, run.n_cancelled, run.n_attempts, batch.status) == ("cancelled", 6, 0, "cancelled")
    assert "submitted" not in [change.to_value for change in batch.history]
    assert find_differences() == []


@pytest.mark.parametrize("stop", [pause, deactivate_endpoint])
@pytest.mark.parametrize("moment", ["before _build_jobs", "before save", "upload"])
def test_trials_of_an_unsubmitted_batch_are_released_if_their_run_or_endpoint_stops(
    provider, monkeypatch, stop, moment
):
    run = make_batched_run(provider.url)
    if moment == "upload":
        call_before(monkeypatch, "openai", "upload", do=stop)
    else:
        with pytest.raises(Killed):
            drive_batches(crash=kill_at(moment))
        stop()
    drive_batches()
    run.refresh_from_db()
    assert (ProviderBatch.objects.get().status, run.n_pending, run.n_attempts) == ("cancelled", 6, 0)
    assert provider.counters()["batches"] == 0
    assert not is_drain_needed()
    resume_all()
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_attempts, provider.counters()["batches"]) == ("done", 6, 6, 1)
    assert find_differences() == []
