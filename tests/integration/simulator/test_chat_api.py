"""The simulated provider implements OpenAI's chat API."""

import asyncio

import pytest

from runs_app.simulator import SimulatorConfig
from tests.integration.simulator.http_client import (
    IMAGE,
    Client,
    make_question,
    run_with_simulator,
    wait_until_in_flight,
)


def test_a_completion_has_openais_format() -> None:
    async def scene(client: Client) -> None:
        response = await client.ask("What is 2 + 2?", "sim/a")
        assert response.status == 200
        assert response.body["object"] == "chat.completion"
        assert response.body["model"] == "sim/a"
        assert response.body["system_fingerprint"].startswith("fp_")
        assert response.choice["finish_reason"] == "stop"
        assert response.choice["message"]["role"] == "assistant"
        assert "ANSWER:" in response.content

    run_with_simulator(SimulatorConfig(), scene)


def test_usage_is_one_token_per_four_characters_and_a_constant_per_image() -> None:
    async def scene(client: Client) -> None:
        plain = (await client.ask("x" * 400)).body["usage"]
        pictured = (await client.ask("x" * 400, image=IMAGE)).body["usage"]
        assert plain["prompt_tokens"] == 100
        assert pictured["prompt_tokens"] == 100 + 765
        assert plain["total_tokens"] == plain["prompt_tokens"] + plain["completion_tokens"]
        assert plain["completion_tokens"] > 0

    run_with_simulator(SimulatorConfig(), scene)


def test_response_ids_are_unique() -> None:
    async def scene(client: Client) -> None:
        responses = await asyncio.gather(*(client.ask("same") for _ in range(50)))
        assert len({response.body["id"] for response in responses}) == 50

    run_with_simulator(SimulatorConfig(), scene)


def test_the_served_model_name_can_be_configured() -> None:
    async def scene(client: Client) -> None:
        assert (await client.ask("hello")).body["model"] == "sim/a-2026-01-01"
        assert (await client.get("/v1/models")).body["data"][0]["id"] == "sim/a-2026-01-01"

    run_with_simulator(SimulatorConfig(served_name="sim/a-2026-01-01"), scene)


def test_the_model_list_contains_configured_and_requested_models() -> None:
    async def scene(client: Client) -> None:
        await client.ask("hello", "sim/asked")
        listed = [model["id"] for model in (await client.get("/v1/models")).body["data"]]
        assert listed == ["sim/skilled", "sim/asked"]

    run_with_simulator(SimulatorConfig(skills={"sim/skilled": 0.5}), scene)


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"{not json", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        ({"messages": [{"role": "user", "content": "x"}]}, "model"),
        ({"model": "m", "messages": []}, "messages"),
        ({"model": "m", "messages": ["x"]}, "role"),
        (make_question("x", stream_options=7), "stream_options"),
        (make_question("x", response_format="json"), "response_format"),
        ({"model": "m", "messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "audio"),
        (
            {
                "model": "m",
                "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}]}],
            },
            "data URL",
        ),
    ],
)
def test_an_unreadable_request_is_refused(payload: object, complaint: str) -> None:
    async def scene(client: Client) -> None:
        response = await client.post("/v1/chat/completions", payload)
        assert response.status == 400
        assert complaint in response.body["error"]["message"]
        assert response.body["error"]["type"] == "invalid_request_error"

    run_with_simulator(SimulatorConfig(), scene)


def test_only_the_configured_key_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIM_TEST_KEY", "right-key")

    async def scene(client: Client) -> None:
        assert (await client.chat(make_question("x"))).status == 401
        assert (await client.chat(make_question("x"), Authorization="Bearer wrong")).status == 401
        assert (await client.chat(make_question("x"), Authorization="Bearer right-key")).status == 200
        assert (await client.counters())["statuses"] == {"401": 2, "200": 1}

    run_with_simulator(SimulatorConfig(key_env="SIM_TEST_KEY"), scene)


def test_requests_beyond_the_limit_in_flight_get_a_429() -> None:
    async def scene(client: Client) -> None:
        held_requests = [asyncio.create_task(client.ask(f"question {number}")) for number in range(4)]
        await wait_until_in_flight(client, 4)
        refused_responses = await asyncio.gather(*(client.ask(f"question {number}") for number in range(4, 12)))
        assert {response.status for response in refused_responses} == {429}
        counters = await client.counters()
        assert counters["peak_in_flight"] == 4
        assert counters["turned_away"] == {"429": 8}
        assert counters["unique_bodies"] == 4, "what is turned away was not asked"
        for one in held_requests:
            one.cancel()
        await wait_until_in_flight(client, 0)
        await client.post("/faults", {"latency_ms": 0})
        assert (await client.ask("question 4")).status == 200, "there is room again"

    run_with_simulator(SimulatorConfig(max_in_flight=4, latency_ms=600_000), scene)


def test_requests_beyond_the_rate_limit_get_a_429_with_retry_after() -> None:
    async def scene(client: Client) -> None:
        responses = [await client.ask("again") for _ in range(5)]
        assert [response.status for response in responses] == [200, 200, 200, 429, 429]
        assert responses[-1].headers["Retry-After"] == "7"

    run_with_simulator(SimulatorConfig(rpm=3, retry_after_s=7), scene)


def test_json_schemas_can_be_refused() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}

    async def scene(client: Client) -> None:
        response = await client.ask("x", response_format=schema)
        assert response.status == 400
        assert "response_format" in response.body["error"]["message"]
        assert (await client.ask("x")).status == 200

    run_with_simulator(SimulatorConfig(json_schema=False), scene)


def test_an_answer_is_cut_at_max_tokens() -> None:
    async def scene(client: Client) -> None:
        response = await client.ask("Tell me all about rivers.", max_tokens=2)
        assert len(response.content) == 8
        assert response.choice["finish_reason"] == "length"

    run_with_simulator(SimulatorConfig(), scene)


def test_reasoning_is_separate_from_the_answer_if_an_effort_is_requested() -> None:
    async def scene(client: Client) -> None:
        response = await client.ask("What is 2 + 2?", reasoning_effort="low")
        assert response.choice["message"]["reasoning_content"]
        assert response.body["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
        assert "reasoning_content" not in (await client.ask("What is 2 + 2?")).choice["message"]

    run_with_simulator(SimulatorConfig(), scene)
