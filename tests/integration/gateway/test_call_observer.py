"""The call observer: a site's own function that receives every call and cannot delay or break it."""

import logging
import os
import subprocess
import sys
import threading

import pytest
from django.conf import settings
from django.test import override_settings

from evalsite.lib.ops.checks import check_observer
from runs_app.llm import call_observer
from runs_app.llm.call_observer import ObserverQueue
from runs_app.llm.calls import CallFailure, CallReply
from tests.integration.gateway.gateway_calls import get_failure, make_call, make_request

OBSERVED_CALLS = []
HERE = f"{__name__}.remember"


def remember(observed_request, outcome):
    OBSERVED_CALLS.append((observed_request, outcome))


@pytest.fixture
def observed_calls():
    OBSERVED_CALLS.clear()
    with override_settings(CALL_OBSERVER=HERE):
        yield OBSERVED_CALLS
    call_observer.get_observer_queue.cache_clear()


def test_the_observer_gets_the_request_and_the_reply(simulator, observed_calls, monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_LAB", "sk-of-the-lab")
    reply = make_call(make_request(simulator.url, "What is 3 + 4?", key_env="EVALSITE_KEY_LAB"))
    call_observer.get_observer_queue(HERE).wait()
    ((observed_request, outcome),) = observed_calls
    assert observed_request.messages[-1]["content"] == "What is 3 + 4?"
    assert outcome == reply
    assert len(outcome.trace_id) == 32
    assert "sk-of-the-lab" not in repr(observed_request) + repr(outcome)


def test_the_observer_gets_failures(simulator, observed_calls):
    simulator.set_faults(errors="500=1")
    failure = get_failure(make_request(simulator.url))
    call_observer.get_observer_queue(HERE).wait()
    ((_, outcome),) = observed_calls
    assert isinstance(outcome, CallFailure)
    assert outcome.trace_id == failure.trace_id != ""


def test_a_failing_observer_is_logged_and_does_not_affect_the_call(simulator, caplog):
    with override_settings(CALL_OBSERVER=f"{__name__}.omit_arguments"):
        assert isinstance(make_call(make_request(simulator.url)), CallReply)
        call_observer.get_observer_queue(f"{__name__}.omit_arguments").wait()
    assert "the call observer failed" in caplog.text


def omit_arguments():
    raise AssertionError("is never reached: it takes no arguments")


def test_a_slow_observer_delays_no_call(caplog):
    goes_on = threading.Event()
    observer_queue = ObserverQueue(lambda observed_request, outcome: goes_on.wait(), max_waiting=2)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            observer_queue.put(None, None)
    assert observer_queue.n_dropped >= 17  # Two wait, and the observer may hold one.
    assert "calls were dropped" in caplog.text
    goes_on.set()
    observer_queue.wait()


SLOW_OBSERVER = """
import time

def remember(request, outcome):
    time.sleep(0.05)
    with open("observed", "a") as file:
        file.write(f"{request} ")
"""
OBSERVE = """
from multiprocessing import get_context
from runs_app.llm.call_observer import get_observer_queue

def observe():
    for number in range(4):
        get_observer_queue("slow_observer.remember").put(number, None)

if __name__ == "__main__":
    {start}
"""
IN_CHILD = "child = get_context('fork').Process(target=observe); child.start(); child.join()"


@pytest.mark.parametrize("start", ["observe()", IN_CHILD], ids=["worker", "worker of the task queue"])
def test_a_process_that_ends_lets_the_observer_see_its_last_calls(tmp_path, start):
    (tmp_path / "slow_observer.py").write_text(SLOW_OBSERVER)
    (tmp_path / "observe.py").write_text(OBSERVE.format(start=start))
    subprocess.run(
        [sys.executable, "observe.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{settings.BASE_DIR}", "PATH": os.defpath},
        check=True,
    )
    assert (tmp_path / "observed").read_text() == "0 1 2 3 "


@pytest.mark.parametrize("name", ["nowhere.at_all", f"{__name__}.OBSERVED_CALLS", "plain"])
def test_an_unknown_observer_is_an_error_at_startup(name):
    with override_settings(CALL_OBSERVER=name):
        (problem,) = check_observer(None)
    assert name in problem.msg


def test_an_empty_name_and_a_valid_name_are_accepted():
    with override_settings(CALL_OBSERVER=""):
        assert check_observer(None) == []
    with override_settings(CALL_OBSERVER=HERE):
        assert check_observer(None) == []
