"""Faults of the simulated provider over real HTTP, repeatable for equal requests."""

import asyncio
import json
import time

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.simulator import SimulatorConfig
from runs_app.simulator.config import NAMED_FAULTS, ConfigError, parse_pairs, spread_error_rate
from runs_app.simulator.responses import choose_fault, draw_latency
from tests.integration.simulator.http_client import Client, Response, run_with_simulator


def make_faulty_config(fault: str, **more: object) -> SimulatorConfig:
    return SimulatorConfig(faults={fault: 1.0}, **more)


def ask_once(config: SimulatorConfig) -> Response:
    return run_with_simulator(config, lambda client: client.ask("What is 2 + 2?"))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429, 500, 502, 503])
def test_an_error_status_has_an_error_in_openais_format(status: int) -> None:
    response = ask_once(make_faulty_config(str(status)))
    assert response.status == status
    assert set(response.body["error"]) == {"message", "type", "param", "code"}


def test_a_429_has_a_retry_after_header_if_configured() -> None:
    assert ask_once(make_faulty_config("429", retry_after_s=2.5)).headers["Retry-After"] == "2.5"
    assert "Retry-After" not in ask_once(make_faulty_config("429")).headers


def test_slow_takes_the_configured_time() -> None:
    started = time.perf_counter()
    assert ask_once(make_faulty_config("slow", slow_s=0.3)).status == 200
    assert time.perf_counter() - started >= 0.3


def test_cut_closes_the_connection_in_the_middle_of_the_body() -> None:
    with pytest.raises(aiohttp.ClientError):
        ask_once(make_faulty_config("cut"))


def test_malformed_is_a_200_that_is_not_json() -> None:
    response = ask_once(make_faulty_config("malformed"))
    assert response.status == 200
    with pytest.raises(json.JSONDecodeError):
        _ = response.body


def test_no_choices_is_a_200_without_an_answer() -> None:
    assert ask_once(make_faulty_config("no_choices")).body["choices"] == []


def test_a_content_filter_is_a_400_that_names_the_policy() -> None:
    response = ask_once(make_faulty_config("content_filter"))
    assert response.status == 400
    assert response.body["error"]["code"] == "content_filter"


def test_a_refusal_has_no_content() -> None:
    choice = ask_once(make_faulty_config("refusal")).choice
    assert choice["message"]["content"] is None
    assert choice["message"]["refusal"]
    assert choice["finish_reason"] == "content_filter"


def test_truncated_is_half_of_the_answer() -> None:
    complete, half = ask_once(SimulatorConfig()), ask_once(make_faulty_config("truncated"))
    assert half.choice["finish_reason"] == "length"
    assert half.content == complete.content[: len(complete.content) // 2]


def test_empty_is_an_empty_answer() -> None:
    assert ask_once(make_faulty_config("empty")).content == ""


def run_campaign(config: SimulatorConfig) -> list[int]:
    async def scene(client: Client) -> list[int]:
        responses = await asyncio.gather(*(client.ask(f"question {number}") for number in range(60)))
        retried = await asyncio.gather(*(client.ask(f"question {number}") for number in range(60)))
        return [response.status for response in (*responses, *retried)]

    return run_with_simulator(config, scene)


def test_faults_repeat_with_the_same_seed_and_differ_with_another() -> None:
    faults = {"429": 0.2, "500": 0.2}
    first = run_campaign(SimulatorConfig(faults=faults, seed=1))
    assert first == run_campaign(SimulatorConfig(faults=faults, seed=1))
    assert first != run_campaign(SimulatorConfig(faults=faults, seed=2))
    assert first[:60] != first[60:], "trying again is another draw"
    assert set(first) == {200, 429, 500}


def test_request_fields_that_do_not_affect_the_answer_do_not_affect_the_fault() -> None:
    async def scene(client: Client) -> None:
        for number in range(20):
            await client.ask(f"question {number}", user="one")
        before = (await client.counters())["faults"]
        await client.post("/counters/reset", {})
        for number in range(20):
            await client.ask(f"question {number}", user="another", metadata={"trial": str(number)})
        assert (await client.counters())["faults"] == before

    run_with_simulator(SimulatorConfig(faults={"500": 0.5}), scene)


def test_faults_can_be_changed_while_the_server_runs() -> None:
    async def scene(client: Client) -> None:
        assert (await client.ask("x")).status == 200
        changed = await client.post("/faults", {"errors": "503=1", "latency_ms": 1})
        assert changed.body["errors"] == {"503": 1.0}
        assert changed.body["latency_ms"] == 1
        assert (await client.ask("x")).status == 503
        assert (await client.post("/faults", {"errors": {}})).status == 200
        assert (await client.ask("x")).status == 200

    run_with_simulator(SimulatorConfig(), scene)


@pytest.mark.parametrize(
    "wanted",
    [
        {"errors": "teapot=1"},
        {"erors": "500=1"},
        {"errors": "500=0.7,503=0.7"},
        {"latency_ms": -1},
        {"latency_ms": None},
        {"latency_ms": "5"},
        [1],
    ],
)
def test_invalid_fault_settings_are_refused_and_change_nothing(wanted: object) -> None:
    async def scene(client: Client) -> None:
        assert (await client.post("/faults", wanted)).status == 400
        assert (await client.ask("x")).status == 200

    run_with_simulator(SimulatorConfig(), scene)


@given(st.integers(), st.integers(0, 2**64 - 1), st.integers(0, 100), st.floats(0, 1))
def test_a_fault_depends_only_on_seed_request_and_repetition(
    seed: int, fingerprint: int, n_asked: int, rate: float
) -> None:
    faults = {"500": rate / 2, "cut": rate / 2}
    chosen = choose_fault(faults, seed, fingerprint, n_asked)
    assert chosen == choose_fault(faults, seed, fingerprint, n_asked)
    assert chosen in {None, "500", "cut"}
    assert choose_fault({"500": 1.0}, seed, fingerprint, n_asked) == "500"
    assert choose_fault({"500": 0.0}, seed, fingerprint, n_asked) is None


def test_faults_occur_at_the_configured_rates() -> None:
    faults = {"429": 0.1, "cut": 0.3}
    chosen = [choose_fault(faults, 0, fingerprint, 0) for fingerprint in range(20_000)]
    assert chosen.count("429") / 20_000 == pytest.approx(0.1, abs=0.01)
    assert chosen.count("cut") / 20_000 == pytest.approx(0.3, abs=0.015)


def test_a_log_normal_latency_has_the_given_median() -> None:
    config = SimulatorConfig(latency_ms=80, latency_sigma=0.5)
    delays = sorted(draw_latency(config, None, fingerprint, 0) for fingerprint in range(5001))
    assert delays[2500] == pytest.approx(0.080, rel=0.05)
    assert delays[4000] > 1.3 * delays[2500]
    assert draw_latency(SimulatorConfig(latency_ms=80), "slow", 1, 0) == pytest.approx(4.0)


def test_an_error_rate_is_spread_over_transient_faults() -> None:
    assert sum(spread_error_rate(0.25).values()) == pytest.approx(0.25)
    assert spread_error_rate(0.0) == {}


@pytest.mark.parametrize("text", ["429", "=0.1", "429=often", "429=0.1,500"])
def test_the_error_of_a_bad_rate_list_names_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match="--errors"):
        parse_pairs(text, "--errors")


def test_a_config_refuses_unknown_faults_and_rates_above_one() -> None:
    for faults in ({"teapot": 0.1}, {"200": 0.1}, {"429": 1.5}, {"429": 0.6, "500": 0.6}):
        with pytest.raises(ConfigError):
            SimulatorConfig(faults=faults)
    assert SimulatorConfig(faults=dict.fromkeys(NAMED_FAULTS, 0.1)).faults["cut"] == 0.1
