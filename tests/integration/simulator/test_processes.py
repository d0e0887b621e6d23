"""The simulated provider as a process: command line, address line and exit."""

import argparse
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from runs_app.simulator import SimulatorConfig, simulator_process
from runs_app.simulator.config import NAMED_FAULTS, add_options, build_config

REPOSITORY = Path(__file__).resolve().parents[3]


def parse_config(arguments: list[str]) -> SimulatorConfig:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return build_config(vars(parser.parse_args(arguments)))


@pytest.mark.slow
@given(
    st.builds(
        SimulatorConfig,
        port=st.integers(0, 65535),
        served_name=st.none() | st.just("-odd name"),
        latency_ms=st.floats(0, 1e6),
        latency_sigma=st.floats(0, 5),
        event_ms=st.floats(0, 1e6),
        slow_s=st.none() | st.floats(0, 100),
        faults=st.dictionaries(st.sampled_from([*NAMED_FAULTS, "429", "500"]), st.floats(0, 0.1), max_size=5),
        retry_after_s=st.none() | st.floats(0, 100),
        seed=st.integers(),
        key_env=st.none() | st.just("SOME_KEY"),
        max_in_flight=st.none() | st.integers(1, 10_000),
        rpm=st.none() | st.integers(1, 10_000),
        json_schema=st.booleans(),
        skills=st.dictionaries(st.sampled_from(["a/b", "c"]), st.floats(0, 1)),
        answers=st.lists(st.just(Path("/x y/answers.jsonl"))).map(tuple),
        profiles=st.lists(st.just(Path("skills.json"))).map(tuple),
        replays=st.lists(st.just(Path("replay.jsonl"))).map(tuple),
    )
)
def test_a_command_line_round_trips_the_configuration(config: SimulatorConfig) -> None:
    assert parse_config(config.build_arguments()) == config


@pytest.mark.slow
@pytest.mark.processes
def test_a_process_listens_counts_requests_and_exits() -> None:
    with simulator_process(SimulatorConfig(faults={"500": 1.0})) as simulator:
        assert simulator.url == f"http://127.0.0.1:{simulator.port}/v1"
        assert simulator.counters()["requests"] == 0
        assert simulator.set_faults(errors="")["errors"] == {}
        simulator.reset()
        pid = simulator.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
@pytest.mark.processes
def test_a_process_that_cannot_start_reports_the_reason(tmp_path: Path) -> None:
    missing = SimulatorConfig(replays=(tmp_path / "missing.jsonl",))
    with pytest.raises(RuntimeError, match=r"missing\.jsonl"), simulator_process(missing):
        pytest.fail("it must not start")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_its_address_and_stops_on_a_signal(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "simulate_provider", "--port", "0", "--latency-ms", "1"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:")
        root = line.removeprefix("listening on ").strip().removesuffix("/v1")
        with urllib.request.urlopen(f"{root}/counters", timeout=60) as response:  # noqa: S310 - our own server
            assert response.status == 200
        process.send_signal(number)
        assert process.wait(timeout=300) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("option", ["--errors=teapot=1", "--latency-ms=-3", "--replay=/no/such/file", "--skill=a=2"])
def test_the_command_refuses_a_bad_option(option: str) -> None:
    with pytest.raises(CommandError) as caught:
        call_command("simulate_provider", option)
    assert caught.value.returncode == 2
    assert str(caught.value).strip()


@pytest.mark.slow
@pytest.mark.processes
def test_a_bad_option_exits_with_code_2_and_without_a_traceback() -> None:
    completed = subprocess.run(
        [sys.executable, "manage.py", "simulate_provider", "--skill=a=2"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 2
    assert completed.stderr.strip()
    assert "Traceback" not in completed.stderr
