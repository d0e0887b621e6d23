"""Our own reading of a reply in OpenAI's form equals litellm's, for recorded replies and their mutations."""

import asyncio
import copy
import dataclasses
import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs_app.llm import gateway
from runs_app.llm.answers import read_openai_answer
from runs_app.llm.calls import CallFailure
from runs_app.llm.gateway import ReplayTransport
from runs_app.llm.keys import KEYLESS
from runs_app.llm.providers import PROVIDERS
from runs_app.llm.replies import read_reply
from runs_app.pricing.costs import Prices
from tests.integration.gateway.gateway_calls import make_request
from tests.integration.gateway.test_providers_conform import SAMPLES

OPENAI_FORM = [name for name in sorted(PROVIDERS) if PROVIDERS[name].speaks_openai]
REPLIES = {name: [sample["reply"] for sample in SAMPLES[name]["replies"].values()] for name in OPENAI_FORM}
VALUES = [
    None, True, 0, 1, -1, 7, 2.5, 10**12, "", " ", "hello", "stop", "length", "eos", "tool_calls", "weird", [], {},
    ["x"], {"a": 1}, "<think>hmm</think>hello", "a < b", "a\0b", {"cached_tokens": 3}, {"reasoning_tokens": 2},
    {"cached_tokens": 1, "cache_write_tokens": 2}, [{"type": "text", "text": "hello"}], [{"index": 0}],
    {"message": "broken"}, {"role": "user"}, {"text": "hello"},
]  # fmt: skip
NEW_NAMES = [
    "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call", "finish_details", "usage", "cost",
    "prompt_tokens_details", "completion_tokens_details", "prompt_cache_hit_tokens", "cache_creation_input_tokens",
    "reasoning_tokens", "images", "thinking_blocks", "provider_specific_fields", "logprobs", "error", "provider",
    "cached_tokens", "cache_write_tokens", "text_tokens", "native_finish_reason", "id", "model", "role", "unheard_of",
]  # fmt: skip


def list_paths(value, path=()):
    """Return the places in a JSON value, itself included."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in entries:
        yield from list_paths(entry, (*path, name))


def get_place(value, path):
    for name in path:
        value = value[name]
    return value


@st.composite
def mutated_replies(draw, name: str):
    reply = copy.deepcopy(draw(st.sampled_from(REPLIES[name])))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from([path for path in list_paths(reply) if path] or [()]))
        if not path:
            break
        parent = get_place(reply, path[:-1])
        match draw(st.sampled_from(["replace", "delete", "add", "double"])):
            case "replace":
                parent[path[-1]] = copy.deepcopy(draw(st.sampled_from(VALUES)))
            case "delete":
                del parent[path[-1]]
            case "add" if isinstance(parent, dict):
                parent[draw(st.sampled_from(NEW_NAMES))] = copy.deepcopy(draw(st.sampled_from(VALUES)))
            case "double" if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[path[-1]]))
    return reply


def read_both_ways(name: str, reply: object, **fields: object):
    """Return our own reading, None if it is left to litellm, and litellm's reading or failure."""
    request = make_request("http://127.0.0.1:9/v1", provider=name, model=SAMPLES[name]["model"], **fields)
    body = json.dumps(reply).encode()

    def read(answer, exchange):
        return dataclasses.replace(read_reply(request, answer, exchange, 0, gateway._get_listed_cost), trace_id="")

    async def read_by_litellm():
        exchange = gateway._get_exchange_class(ReplayTransport)(request, KEYLESS, 200, body)
        return read(await gateway._complete(request, exchange), exchange)

    exchange = ReplayTransport(request, KEYLESS, 200, body)
    asyncio.run(exchange._send("", None, None, None, None))
    answer = read_openai_answer(exchange.payload)
    own = None
    if answer is not None:
        try:
            own = read(answer, exchange)
        except CallFailure as failure:
            own = failure.error_class
    try:
        return own, asyncio.run(read_by_litellm())
    except CallFailure as failure:
        return own, failure.error_class
    except Exception as error:  # noqa: BLE001 - as in `gateway.call`
        return own, exchange.get_failure(error).error_class


@pytest.mark.slow
@pytest.mark.parametrize("name", OPENAI_FORM)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_mutated_reply_is_read_as_litellm_reads_it_or_left_to_litellm(name: str, data: st.DataObject) -> None:
    own, by_litellm = read_both_ways(name, data.draw(mutated_replies(name), "reply"))
    assert own is None or own == by_litellm


@pytest.mark.parametrize("name", OPENAI_FORM)
@pytest.mark.parametrize("prices", [{}, {"is_free": True}, {"prices": Prices(Decimal(2), Decimal(10), Decimal(1))}])
def test_every_recorded_reply_with_a_known_reason_is_read_without_litellm(name: str, prices: dict) -> None:
    read = 0
    for reply in REPLIES[name]:
        own, by_litellm = read_both_ways(name, reply, **prices)
        if reply["choices"][0]["finish_reason"] != "insufficient_system_resource":
            assert own == by_litellm
            read += 1
    assert read


TEXTS = ["<b>", "a<think>b</think>", "</think>x", "<thinking>y</thinking>z", "\0"]
TEXT = st.text(max_size=30) | st.sampled_from(TEXTS)


@given(TEXT, st.none() | TEXT, st.none() | TEXT, st.booleans())
def test_any_text_is_read_as_litellm_reads_it(content: str, reasoning: str | None, refusal: str | None, known: bool):
    reply = copy.deepcopy(SAMPLES["openai"]["replies"]["answer"]["reply"])
    message = reply["choices"][0]["message"]
    message |= {"content": content, "refusal": refusal}
    if reasoning is not None:
        message["reasoning_content" if known else "reasoning"] = reasoning
    own, by_litellm = read_both_ways("openai", reply)
    assert own is None or own == by_litellm
    assert own is not None or "<" in content


COUNT = st.none() | st.integers(0, 3000) | st.sampled_from([2**31 - 1, 2**31])


@given(COUNT, COUNT, COUNT, COUNT, COUNT, st.sampled_from(["openai", "xai", "deepseek", "openrouter", "groq"]))
def test_any_counts_are_read_and_priced_as_litellm_does(n_input, n_output, total, cached, reasoning, name) -> None:
    reply = copy.deepcopy(SAMPLES[name]["replies"]["answer"]["reply"])
    reply["usage"] = {
        "prompt_tokens": n_input,
        "completion_tokens": n_output,
        "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    own, by_litellm = read_both_ways(name, reply)
    assert own is None or own == by_litellm
