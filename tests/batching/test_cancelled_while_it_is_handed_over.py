"""A batch is cancelled in the very moment in which a worker hands it over."""

import asyncio

import pytest
from django.db import connections

from runs_app import steering
from runs_app.batching.keeping import APIS
from runs_app.models import ProviderBatch, Run
from runs_app.reconciling import differences
from tests.batching.world import batched_run, work

pytestmark = pytest.mark.django_db(transaction=True)


def cancel_the_run():
    steering.cancel(Run.objects.all(), by="tester", reason="enough")
    connections.close_all()


def cancelled_before(monkeypatch, kind, step):
    """The run is cancelled when a worker is about to take this step at the provider."""
    real = getattr(APIS[kind], step)

    async def cancelled_first(self, *arguments, **named):
        await asyncio.to_thread(cancel_the_run)
        return await real(self, *arguments, **named)

    monkeypatch.setattr(APIS[kind], step, cancelled_first)


def test_cancelled_during_its_upload_it_is_never_submitted(provider, monkeypatch):
    run = batched_run(provider.url)
    cancelled_before(monkeypatch, "openai", "upload")
    work()
    run.refresh_from_db()
    assert provider.counters()["batches"] == 0
    assert (run.status, run.n_cancelled, ProviderBatch.objects.get().status) == ("cancelled", 6, "cancelled")
    assert differences() == []


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_cancelled_during_its_submission_it_is_cancelled_at_the_provider(provider, monkeypatch, kind):
    run = batched_run(provider.url, kind)
    provider.set_faults(batch_waits={"done": 1000})
    cancelled_before(monkeypatch, kind, "create")
    work(steps=400)
    run.refresh_from_db()
    batch = ProviderBatch.objects.get()
    assert batch.provider_id
    assert (run.status, run.n_cancelled, run.n_attempts, batch.status) == ("cancelled", 6, 0, "cancelled")
    assert "submitted" not in [change.to_value for change in batch.history]
    assert differences() == []
