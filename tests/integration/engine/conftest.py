"""An engine to try promises on: real rows, a real drain, and a provider that is a function."""

import asyncio

import pytest

from runs_app.engine.worker import Drain, DrainLimits
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm.calls import CallReply
from runs_app.llm.http_transport import close
from runs_app.models import Run
from tests import factories


def reply(text="ready", **fields):
    """An answer as the gateway gives it."""
    defaults = {
        "text": text,
        "raw_text": text,
        "reasoning": "",
        "finish_reason": "stop",
        "refused": False,
        "response_id": "r-1",
        "served_model": "small-2026",
        "served_provider": "lab",
        "input_tokens": 10,
        "output_tokens": 5,
        "reasoning_tokens": None,
        "cache_read_tokens": None,
        "cache_write_tokens": None,
        "cost_usd": None,
        "cost_source": "unknown",
        "latency_ms": 3,
        "trace_id": "t",
    }
    return CallReply(**{**defaults, **fields})


@pytest.fixture
def experiment(transactional_db):
    """Three items, one condition, two samples: six trials, pending, in a run that is running."""
    world = factories.make_world()
    experiment = factories.make_experiment("pilot", owner=world.owner, samples=2, max_usd=None)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    return experiment


@pytest.fixture
def run(experiment):
    return Run.objects.get(experiment=experiment)


def drain(call, **limits):
    """Drain with this provider until nothing is left. Returns how many results were written."""

    registration = WorkerRegistration()

    async def go():
        try:
            return await Drain(call, registration, DrainLimits(**{"until_idle": True, **limits})).run()
        finally:
            await close()  # Whatever answers the calls, batches go over HTTP.

    return asyncio.run(go())


def answering(text="ready", **fields):
    async def call(request):
        return reply(text, **fields)

    return call
