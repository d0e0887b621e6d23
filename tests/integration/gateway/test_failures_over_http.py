"""Every fault of a simulated provider has its error class and makes one request."""

import socket

import pytest

from runs_app.llm.calls import ErrorClass, Kind
from runs_app.simulator import SimulatorConfig, SimulatorProcess, simulator_process
from tests.integration.gateway.gateway_calls import SCHEMA, get_failure, make_call, make_request

T, P, E = Kind.TRANSIENT, Kind.PERMANENT, Kind.ENDPOINT


@pytest.mark.parametrize(
    ("fault", "error_class", "kind", "status"),
    [
        ("400", ErrorClass.BAD_REQUEST, P, 400),
        ("401", ErrorClass.UNAUTHORIZED, P, 401),
        ("402", ErrorClass.PAYMENT_REQUIRED, P, 402),
        ("403", ErrorClass.FORBIDDEN, P, 403),
        ("404", ErrorClass.NOT_FOUND, P, 404),
        ("408", ErrorClass.TIMEOUT, T, 408),
        ("422", ErrorClass.UNPROCESSABLE, P, 422),
        ("429", ErrorClass.RATE_LIMITED, E, 429),
        ("500", ErrorClass.SERVER_ERROR, T, 500),
        ("502", ErrorClass.SERVER_ERROR, T, 502),
        ("503", ErrorClass.OVERLOADED, E, 503),
        ("529", ErrorClass.OVERLOADED, E, 529),
        ("content_filter", ErrorClass.CONTENT_REFUSED, P, 400),
        ("malformed", ErrorClass.MALFORMED_REPLY, T, 200),
        ("no_choices", ErrorClass.MALFORMED_REPLY, T, 200),
        ("cut", ErrorClass.CONNECTION, T, None),
    ],
)
def test_each_fault_has_its_error_class(
    simulator: SimulatorProcess, fault: str, error_class: ErrorClass, kind: Kind, status: int | None
) -> None:
    simulator.set_faults(errors=f"{fault}=1")
    failure = get_failure(make_request(simulator.url))
    assert failure.error_class == error_class
    assert failure.kind == kind
    assert failure.http_status == status
    assert failure.message
    assert failure.trace_id
    assert failure.latency_ms is not None
    assert failure.__cause__ is None, "what it came from may hold a key"
    assert simulator.counters()["requests"] == 1, "one call is one request, whatever comes of it"


def test_the_retry_delay_is_read_from_a_429(simulator: SimulatorProcess) -> None:
    simulator.set_faults(errors="429=1")
    assert get_failure(make_request(simulator.url)).retry_after_s == 7.0


def test_a_slow_answer_is_a_timeout(simulator: SimulatorProcess) -> None:
    simulator.set_faults(errors="slow=1", slow_s=120)
    failure = get_failure(make_request(simulator.url, timeout_s=0.2))
    assert failure.error_class == ErrorClass.TIMEOUT
    assert failure.kind == T
    assert failure.latency_ms < 60_000


def test_a_server_that_accepts_and_never_answers_is_a_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        failure = get_failure(make_request(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", timeout_s=0.2))
    assert failure.error_class == ErrorClass.TIMEOUT


def test_a_closed_port_is_an_unreachable_endpoint() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # Bound so that no other process takes it, but not listening.
        failure = get_failure(make_request(f"http://127.0.0.1:{unused.getsockname()[1]}/v1"))
    assert failure.error_class == ErrorClass.UNREACHABLE
    assert failure.kind == E
    assert not failure.was_sent


def test_a_refusal_is_a_reply_and_not_a_failure(simulator: SimulatorProcess) -> None:
    simulator.set_faults(errors="refusal=1")
    reply = make_call(make_request(simulator.url))
    assert reply.refused
    assert "cannot help" in reply.text


def test_truncated_and_empty_answers_are_replies_and_not_failures(simulator: SimulatorProcess) -> None:
    simulator.set_faults(errors="truncated=1")
    assert make_call(make_request(simulator.url)).truncated
    simulator.set_faults(errors="empty=1")
    reply = make_call(make_request(simulator.url))
    assert reply.text == ""
    assert reply.finish_reason == "stop"
    assert not reply.refused


@pytest.mark.slow
def test_a_refused_schema_has_its_own_error_class() -> None:
    with simulator_process(SimulatorConfig(json_schema=False)) as simulator:
        failure = get_failure(make_request(simulator.url, response_format=SCHEMA))
        assert failure.error_class == ErrorClass.RESPONSE_FORMAT_UNSUPPORTED
        assert failure.kind == Kind.TRANSIENT  # The retry omits the schema.
        assert make_call(make_request(simulator.url)).text


@pytest.mark.slow
def test_a_wrong_key_is_unauthorized_and_the_correct_key_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulator_process(
        SimulatorConfig(key_env="EVALSITE_KEY_LAB"), environment={"EVALSITE_KEY_LAB": "right-key"}
    ) as simulator:
        monkeypatch.setenv("EVALSITE_KEY_LAB", "right-key")
        assert make_call(make_request(simulator.url, key_env="EVALSITE_KEY_LAB")).text
        monkeypatch.setenv("EVALSITE_KEY_LAB", "wrong-key")
        assert (
            get_failure(make_request(simulator.url, key_env="EVALSITE_KEY_LAB")).error_class == ErrorClass.UNAUTHORIZED
        )
