"""All fields of a reply are read, and hostile values cannot break the rows."""

import asyncio
import copy
import time
from decimal import Decimal

import pytest

from runs_app.llm import gateway
from runs_app.llm.calls import CallReply, ErrorClass, Kind
from runs_app.pricing.costs import Prices
from runs_app.simulator import SimulatorProcess
from tests.integration.gateway.fake_provider import FakeProvider, make_completion
from tests.integration.gateway.gateway_calls import SCHEMA, get_failure, make_call, make_request


def test_a_reply_has_text_token_counts_model_and_ids(simulator: SimulatorProcess) -> None:
    reply = make_call(make_request(simulator.url, 'Rate it as {"rating": N} from 1 to 7', response_format=SCHEMA))
    assert reply.text.startswith('{"rating": ')
    assert reply.raw_text == reply.text
    assert reply.finish_reason == "stop"
    assert reply.response_id.startswith("chatcmpl-")
    assert reply.served_model == "sim/a"
    assert reply.served_provider == "openai"
    assert (reply.input_tokens, reply.output_tokens) == (9, 4)
    assert reply.latency_ms >= 0
    assert len(reply.trace_id) == 32


def test_the_latency_of_the_first_call_does_not_include_imports(
    simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ClockOfImports:
        late = 0

        def perf_counter(self) -> float:
            return time.perf_counter() + self.late

    clock, exchange_class = ClockOfImports(), gateway._get_exchange_class

    def import_exchange_after_an_hour(*kind: type) -> object:
        clock.late = clock.late or 3600  # Only the first time.
        return exchange_class(*kind)

    monkeypatch.setattr(gateway, "time", clock)
    monkeypatch.setattr(gateway, "_get_exchange_class", import_exchange_after_an_hour)
    assert make_call(make_request(simulator.url)).latency_ms < 3_600_000
    assert clock.late == 3600


def test_separate_reasoning_is_stored_separately(simulator: SimulatorProcess) -> None:
    reply = make_call(make_request(simulator.url, parameters={"reasoning_effort": "low"}))
    assert reply.reasoning.startswith("Let me think.")
    assert "think" not in reply.text
    assert reply.reasoning_tokens > 0


def test_a_think_block_is_reasoning_and_the_raw_text_keeps_it(fake: FakeProvider) -> None:
    fake.reply = make_completion("<think>two and two</think>It is 4.")
    reply = make_call(make_request(fake.url))
    assert reply.text == "It is 4."
    assert reply.reasoning == "two and two"
    assert reply.raw_text == "<think>two and two</think>It is 4."


def test_the_request_id_of_the_provider_is_the_trace_id(fake: FakeProvider) -> None:
    fake.headers = {"x-request-id": "req_77"}
    assert make_call(make_request(fake.url)).trace_id == "req_77"


def test_the_backend_chosen_by_a_router_is_the_served_provider(fake: FakeProvider) -> None:
    fake.reply = make_completion(provider="Alibaba", model="qwen/qwen3-vl")
    reply = make_call(make_request(fake.url, provider="openrouter", model="qwen/qwen3-vl"))
    assert reply.served_provider == "Alibaba"
    assert reply.served_model == "qwen/qwen3-vl"


def test_cached_and_reasoning_tokens_are_read(fake: FakeProvider) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    fake.reply = make_completion(usage=usage)
    reply = make_call(make_request(fake.url))
    assert (reply.input_tokens, reply.cache_read_tokens, reply.cache_write_tokens) == (100, 60, 0)
    assert (reply.output_tokens, reply.reasoning_tokens) == (50, 30)


def test_a_reply_without_usage_has_unknown_tokens_and_cost(fake: FakeProvider) -> None:
    fake.reply = {name: value for name, value in make_completion().items() if name != "usage"}
    reply = make_call(make_request(fake.url))
    assert reply.input_tokens is None
    assert reply.cost_usd is None
    assert reply.cost_source == "unknown"


def test_characters_that_the_database_cannot_hold_are_replaced(fake: FakeProvider) -> None:
    fake.reply = make_completion("a\0b\ud800c", id="x" * 900, model="m" * 900)
    reply = make_call(make_request(fake.url))
    assert reply.text == "a�b�c"
    assert reply.text.encode()
    assert len(reply.response_id) == 200
    assert len(reply.served_model) == 200


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**30, "completion_tokens": 1, "total_tokens": 1, "cost": 10**30},
        {"prompt_tokens": -5, "completion_tokens": 1, "total_tokens": 1, "cost": -1},
        {"prompt_tokens": 2**31, "completion_tokens": 1, "total_tokens": 1},
        {"prompt_tokens": 9, "completion_tokens": -1, "total_tokens": 8},
        {"prompt_tokens": 9, "completion_tokens": 7.5, "total_tokens": 16.5},
        {"prompt_tokens": float("nan"), "completion_tokens": 1, "total_tokens": 1},
        {"prompt_tokens": "many", "completion_tokens": 1, "total_tokens": 1},
        {"prompt_tokens": None, "completion_tokens": 7},
        {"prompt_tokens": 9},
        ["none"],
    ],
)
@pytest.mark.parametrize("prices", [None, Prices(Decimal(2), Decimal(10))])
def test_impossible_token_counts_are_unknown_and_the_answer_is_kept(
    fake: FakeProvider, usage: object, prices: Prices | None
) -> None:
    fake.reply = make_completion(usage=usage)
    reply = make_call(make_request(fake.url, prices=prices, model="gpt-4o-mini"))
    assert (reply.text, len(fake.requests)) == ("hello", 1)
    assert (reply.input_tokens, reply.output_tokens, reply.cost_usd) == (None, None, None)


def test_an_empty_answer_can_have_zero_output_tokens(fake: FakeProvider) -> None:
    fake.reply = make_completion("", usage={"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000})
    reply = make_call(make_request(fake.url, prices=Prices(Decimal(2), Decimal(10))))
    assert (reply.output_tokens, reply.cost_usd) == (0, Decimal("0.002"))


def test_an_impossible_cost_is_unknown(fake: FakeProvider) -> None:
    """A cost too large for its column would stop the recorder."""
    fake.reply = make_completion(usage={"prompt_tokens": 2**31 - 1, "completion_tokens": 1, "total_tokens": 2**31})
    assert make_call(make_request(fake.url, prices=Prices(Decimal(600), Decimal(600)))).cost_usd is None
    fake.reply = make_completion(usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "cost": "free"})
    assert make_call(make_request(fake.url)).cost_usd is None


@pytest.mark.parametrize(
    ("reply", "error_class", "kind"),
    [
        ({"error": {"message": "Provider returned error", "code": 502}}, ErrorClass.SERVER_ERROR, Kind.TRANSIENT),
        ({"error": {"message": "slow down", "code": 429}}, ErrorClass.RATE_LIMITED, Kind.ENDPOINT),
        ({"error": {"message": "something broke"}}, ErrorClass.SOFT_FAILURE, Kind.TRANSIENT),
        (
            {"error": {"message": "Upstream error from Alibaba: <400> InternalError.Algo.DataInspectionFailed"}},
            ErrorClass.CONTENT_REFUSED,
            Kind.PERMANENT,
        ),
        (make_completion("", choice={"finish_reason": "error"}), ErrorClass.SOFT_FAILURE, Kind.TRANSIENT),
        (make_completion("", choice={"error": {"message": "x", "code": 503}}), ErrorClass.OVERLOADED, Kind.ENDPOINT),
        ([1, 2], ErrorClass.MALFORMED_REPLY, Kind.TRANSIENT),
        ({"choices": "none"}, ErrorClass.MALFORMED_REPLY, Kind.TRANSIENT),
        ({"choices": [{"index": 0}]}, ErrorClass.MALFORMED_REPLY, Kind.TRANSIENT),
        (b"", ErrorClass.MALFORMED_REPLY, Kind.TRANSIENT),
        (b"<html>Bad gateway</html>", ErrorClass.MALFORMED_REPLY, Kind.TRANSIENT),
        (b"[" * 9_000, ErrorClass.MALFORMED_REPLY, Kind.TRANSIENT),
    ],
)
def test_a_200_without_an_answer_is_a_failure(
    fake: FakeProvider, reply: object, error_class: ErrorClass, kind: Kind
) -> None:
    fake.reply = reply
    failure = get_failure(make_request(fake.url))
    assert (failure.error_class, failure.kind) == (error_class, kind)
    assert failure.http_status == 200


def test_a_reply_beyond_the_limit_is_not_read(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs_app.llm.http_transport.MAX_REPLY_BYTES", 2**20)
    fake.reply = make_completion("x" * 2**21)
    assert get_failure(make_request(fake.url)).error_class == ErrorClass.MALFORMED_REPLY


def test_the_messages_are_not_changed_by_the_call(simulator: SimulatorProcess) -> None:
    call_request = make_request(simulator.url, "x")
    before = copy.deepcopy(call_request.messages)
    make_call(call_request)
    assert call_request.messages == before


@pytest.mark.slow
def test_300_calls_can_be_in_flight_at_once(simulator: SimulatorProcess) -> None:
    async def make_calls() -> list[CallReply]:
        replies = await asyncio.gather(*(gateway.call(make_request(simulator.url, f"q {n}")) for n in range(300)))
        await gateway.close_session()
        return replies

    peak, latency_ms = 0, 750
    while peak < 300 and latency_ms < 30_000:  # A busy machine needs longer to send all calls before the first answer.
        latency_ms *= 2
        simulator.reset()
        simulator.set_faults(latency_ms=latency_ms)
        assert len(asyncio.run(make_calls())) == 300
        peak = simulator.counters()["peak_in_flight"]
    assert peak == 300
    assert simulator.counters()["answered_again"] == 0


def test_a_cancelled_call_does_not_affect_the_next_call(simulator: SimulatorProcess) -> None:
    simulator.set_faults(latency_ms=60_000)

    async def scene() -> CallReply:
        calling = asyncio.create_task(gateway.call(make_request(simulator.url)))
        while (await asyncio.to_thread(simulator.counters))["in_flight"] == 0:
            await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await asyncio.to_thread(simulator.set_faults, latency_ms=0)
        reply = await gateway.call(make_request(simulator.url))
        await gateway.close_session()
        return reply

    assert asyncio.run(scene()).text
