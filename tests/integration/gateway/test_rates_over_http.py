"""A real drain over HTTP follows the rate limits that a provider reports and its 429 replies."""

import asyncio
import time

import pytest

from runs_app.engine.worker import Drain, DrainLimits
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm import gateway
from runs_app.models import Endpoint, Experiment, Run
from runs_app.monitoring.health import load_endpoints
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True, scope="module")
def warm_up():
    gateway.warm_up()


def make_large_run(url, samples=1, **endpoint):
    experiment = factories.make_experiment(
        "many", dataset=factories.make_dataset("many", 60), samples=samples, max_usd=None, cache=False
    )
    (run,) = factories.make_runs(experiment)
    Run.objects.update(max_concurrency=1000)
    Endpoint.objects.update(base_url=url, is_free=True, **endpoint)
    factories.plan_trials(run)


def drain_for(seconds):
    drain = Drain(gateway.call, WorkerRegistration(), DrainLimits(seconds=seconds))

    async def go():
        try:
            return await drain.run()
        finally:
            await gateway.close_session()

    return asyncio.run(go())


@pytest.mark.slow
def test_an_exhausted_rate_limit_stops_calls_until_its_reset():
    """The provider accepts eight requests per minute and reports the rest with each answer; the drain makes eight."""
    with simulator_process(SimulatorConfig(rpm=8)) as provider:
        make_large_run(provider.url, adaptive=False, max_concurrency=2)
        drain_until(lambda: Run.objects.get().n_done == 8)
        drain_for(1)
        assert provider.counters()["requests"] == Run.objects.get().n_done == 8
    (reported,) = load_endpoints(Endpoint.objects.all())[0].reported_limits
    assert (reported.unit, reported.n) == ("requests", 0)


@pytest.mark.slow
def test_the_adaptive_limit_follows_the_capacity_of_the_provider():
    """The endpoint allows 100 calls in flight; the provider accepts 40, then 4, then 40."""
    with simulator_process(SimulatorConfig(latency_ms=30, max_in_flight=40, retry_after_s=0.02)) as provider:
        make_large_run(provider.url, samples=150, max_concurrency=100)
        Experiment.objects.update(max_attempts=10)
        drain_until(lambda: get_learned_limit() > 20)
        provider.set_faults(max_in_flight=4)
        drain_until(lambda: get_learned_limit() < 10)
        provider.set_faults(max_in_flight=40)
        drain_until(lambda: get_learned_limit() > 20)
    assert Run.objects.get().n_failed == 0


def get_learned_limit():
    return Endpoint.objects.get().throttle.get("limit", 0)


def drain_until(is_reached):
    ends = time.monotonic() + 60
    while not is_reached():
        assert time.monotonic() < ends, "waited in vain"
        drain_for(1)
