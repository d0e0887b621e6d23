"""The call observer: a site's own function that receives every call and cannot delay or break it."""

import logging
import threading

import pytest
from django.test import override_settings

from evalsite.lib.ops.checks import check_observer
from runs_app.llm import call_observer
from runs_app.llm.call_observer import ObserverQueue
from runs_app.llm.calls import CallFailure, CallReply
from tests.integration.gateway.gateway_calls import call, failure_of, request

TOLD = []
HERE = f"{__name__}.remember"


def remember(asked, outcome):
    TOLD.append((asked, outcome))


@pytest.fixture
def told():
    TOLD.clear()
    with override_settings(CALL_OBSERVER=HERE):
        yield TOLD
    call_observer.get_observer_queue.cache_clear()


def test_the_observer_gets_the_request_and_the_reply(simulator, told, monkeypatch):
    monkeypatch.setenv("LAB_KEY", "sk-of-the-lab")
    reply = call(request(simulator.url, "What is 3 + 4?", key_env="LAB_KEY"))
    call_observer.get_observer_queue(HERE).wait()
    ((asked, outcome),) = told
    assert asked.messages[-1]["content"] == "What is 3 + 4?"
    assert outcome == reply
    assert len(outcome.trace_id) == 32
    assert "sk-of-the-lab" not in repr(asked) + repr(outcome)


def test_the_observer_gets_failures(simulator, told):
    simulator.set_faults(errors="500=1")
    failure = failure_of(request(simulator.url))
    call_observer.get_observer_queue(HERE).wait()
    ((_, outcome),) = told
    assert isinstance(outcome, CallFailure)
    assert outcome.trace_id == failure.trace_id != ""


def test_a_failing_observer_is_logged_and_does_not_affect_the_call(simulator, caplog):
    with override_settings(CALL_OBSERVER=f"{__name__}.missing_its_arguments"):
        assert isinstance(call(request(simulator.url)), CallReply)
        call_observer.get_observer_queue(f"{__name__}.missing_its_arguments").wait()
    assert "the call observer failed" in caplog.text


def missing_its_arguments():
    raise AssertionError("is never reached: it takes no arguments")


def test_a_slow_observer_delays_no_call(caplog):
    goes_on = threading.Event()
    observer_queue = ObserverQueue(lambda asked, outcome: goes_on.wait(), max_waiting=2)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            observer_queue.put(None, None)
    assert observer_queue.n_dropped >= 17  # Two wait, and the observer may hold one.
    assert "calls were dropped" in caplog.text
    goes_on.set()
    observer_queue.wait()


@pytest.mark.parametrize("name", ["nowhere.at_all", f"{__name__}.TOLD", "plain"])
def test_an_unknown_observer_is_an_error_at_startup(name):
    with override_settings(CALL_OBSERVER=name):
        (problem,) = check_observer(None)
    assert name in problem.msg


def test_an_empty_name_and_a_valid_name_are_accepted():
    with override_settings(CALL_OBSERVER=""):
        assert check_observer(None) == []
    with override_settings(CALL_OBSERVER=HERE):
        assert check_observer(None) == []
