import pytest

from runs_app.simulator import SimulatorConfig, simulator_process


@pytest.fixture(scope="session")
def running_provider():
    with simulator_process(SimulatorConfig()) as process:
        yield process


@pytest.fixture
def provider(running_provider, monkeypatch):
    """Return a simulated provider without faults, with reset counters, and set its key."""
    monkeypatch.setenv("EVALSITE_KEY_BATCH", "sk-simulated")
    running_provider.set_faults(errors="", batch_faults={}, batch_waits={}, json_schema=True)
    running_provider.reset()
    return running_provider
