"""Pages and commands run with room for their calls: at no depth does a call take new memory each time it is made."""

import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from gunicorn.workers.gthread import ThreadWorker

from evalsite import command_line
from evalsite.lib.ops.call_stack import call_with_room
from evalsite.lib.ops.gunicorn_worker import WebWorker

pytestmark = pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="counts the memory of a thread")
DEPTHS, CALLS = 400, 200  # More calls than a piece of Python's stack has room for.


def count_faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def call_small_function(small=lambda one, two: None):
    before = count_faults()
    for _ in range(CALLS):
        small(1, 2)
    return count_faults() - before


def descend(depth, work):
    return descend(depth - 1, work) if depth else work()


def find_most_faults():
    """Return the most pages of memory that CALLS calls took at one depth. A call across a border takes one or more."""
    return max(descend(depth, call_small_function) for depth in range(DEPTHS))


@pytest.fixture
def thread():
    """A thread begins with an empty stack, wherever the test runs."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_call_with_room_takes_memory_once_at_each_depth(thread):
    assert thread.submit(call_with_room, find_most_faults).result() < CALLS / 4


def test_a_call_with_room_passes_arguments_and_errors_on():
    assert call_with_room(divmod, 7, 2) == (3, 1)
    assert call_with_room(dict, function=1) == {"function": 1}
    with pytest.raises(ZeroDivisionError):
        call_with_room(divmod, 7, 0)


def test_the_web_server_handles_a_request_with_room(thread, monkeypatch):
    monkeypatch.setattr(ThreadWorker, "handle", lambda worker, conn: find_most_faults())
    worker = object.__new__(WebWorker)
    worker.page_threads = SimpleNamespace(process=lambda sock: nullcontext())
    assert thread.submit(worker.handle, MagicMock()).result() < CALLS / 4


def test_a_command_runs_with_room(thread, monkeypatch):
    faults = []
    monkeypatch.setattr(command_line, "execute", lambda: faults.append(find_most_faults()))
    monkeypatch.setattr(command_line, "database", nullcontext)
    monkeypatch.setattr(sys, "argv", ["manage.py", "version"])
    thread.submit(command_line.main).result()
    assert faults[0] < CALLS / 4
