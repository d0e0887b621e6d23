from collections.abc import Iterator

import pytest

from runs_app.simulator import SimulatorConfig, SimulatorProcess, simulator_process
from tests.integration.gateway.fake_provider import FakeProvider, run_fake_provider


@pytest.fixture(scope="session")
def running_simulator() -> Iterator[SimulatorProcess]:
    with simulator_process(SimulatorConfig(retry_after_s=7)) as process:
        yield process


@pytest.fixture
def simulator(running_simulator: SimulatorProcess) -> SimulatorProcess:
    """Return a simulated provider without faults, with reset counters."""
    running_simulator.set_faults(errors="", latency_ms=0, slow_s=None)
    running_simulator.reset()
    return running_simulator


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with run_fake_provider() as provider:
        yield provider
