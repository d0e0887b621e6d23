"""The simulated provider streams answers in the forms of OpenAI and of Anthropic."""

import json
import time

import aiohttp
import openai
import pytest

from runs_app.simulator import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests.integration.simulator.http_client import Client, make_question, run_with_simulator

QUESTION = [{"role": "user", "content": "How many legs has a spider?"}]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def provider():
    with simulator_process(SimulatorConfig(event_ms=5)) as simulator:
        yield simulator


def test_openais_client_reads_the_same_text_streamed_and_whole(provider) -> None:
    client = openai.OpenAI(base_url=provider.url, api_key="none")
    whole = client.chat.completions.create(model="sim/a", messages=QUESTION)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(model="sim/a", messages=QUESTION, **options))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == whole.choices[0].message.content
    assert len(texts) > 3
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage == whole.usage


def test_tokens_of_a_stream_are_sent_only_on_request(provider) -> None:
    client = openai.OpenAI(base_url=provider.url, api_key="none")
    assert all(
        chunk.usage is None for chunk in client.chat.completions.create(model="a", messages=QUESTION, stream=True)
    )


def test_a_message_of_anthropics_api_has_the_same_text_streamed_and_whole() -> None:
    async def scene(client: Client) -> None:
        fields = {"model": "sim/a", "messages": QUESTION, "max_tokens": 100, "system": "Be brief."}
        whole = (await client.post("/v1/messages", fields)).body
        streamed = (await client.post("/v1/messages", {**fields, "stream": True})).text
        blocks = [block.split("\n") for block in streamed.strip().split("\n\n")]
        events = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
        assert [name.removeprefix("event: ") for name, _ in blocks] == [event["type"] for event in events]
        deltas = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
        assert "".join(deltas) == whole["content"][0]["text"]
        assert len(deltas) > 1
        assert events[0]["message"]["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
        assert events[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
        assert (events[-2]["delta"]["stop_reason"], events[-1]["type"]) == (whole["stop_reason"], "message_stop")

    run_with_simulator(SimulatorConfig(), scene)


def test_events_arrive_one_by_one() -> None:
    with simulator_process(SimulatorConfig(event_ms=30)) as simulator:
        client = openai.OpenAI(base_url=simulator.url, api_key="none")
        arrivals = [time.monotonic() for _ in client.chat.completions.create(model="a", messages=QUESTION, stream=True)]
    assert arrivals[-1] - arrivals[0] > 0.03 * (len(arrivals) - 3)


def test_a_cut_stream_ends_after_half_of_its_events() -> None:
    async def scene(client: Client) -> None:
        address = f"{client.running.root}/v1/chat/completions"
        received: list[bytes] = []
        async with client._session.post(address, json=make_question("hello", stream=True)) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await read(response, received)
        assert b"".join(received).count(b"data: ") >= 2
        assert b"[DONE]" not in b"".join(received)

    async def read(response: aiohttp.ClientResponse, received: list[bytes]) -> None:
        while line := await response.content.readline():
            received.append(line)

    run_with_simulator(SimulatorConfig(faults={"cut": 1.0}), scene)


def test_a_malformed_stream_has_an_event_that_is_no_json() -> None:
    async def scene(client: Client) -> None:
        text = (await client.chat(make_question("hello", stream=True))).text
        events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
        unreadable = [event for event in events if not event.endswith("}")]
        assert len(unreadable) == 1
        assert text.rstrip().endswith("[DONE]")

    run_with_simulator(SimulatorConfig(faults={"malformed": 1.0}), scene)
