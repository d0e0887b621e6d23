"""The call observer: a function of the site's operator that runs after every call to a model.

`EVALSITE_CALL_OBSERVER` names it as `package.module.function`. It can send traces to Langfuse, OpenTelemetry or a file.
Its arguments are a `CallRequest` and the outcome, a `CallReply` or a `CallFailure`. Neither contains a key, and the
outcome's `trace_id` is that of the attempt. Each worker runs it in a thread, for one call at a time. Its exceptions are
logged and change nothing. If it is slower than the calls, some calls are dropped, and their number is logged. A process
that ends waits a few seconds for it.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections.abc import Callable
from multiprocessing.util import Finalize

from django.utils.module_loading import import_string

from runs_app.llm.calls import CallFailure, CallReply, CallRequest

logger = logging.getLogger("evalsite.observer")

Outcome = CallReply | CallFailure
Observer = Callable[[CallRequest, Outcome], object]

MAX_WAITING = 10_000  # Calls in the queue. Images make a request large.
FINISH_S = 5.0  # The longest wait for the observer at the end of the process.


class ObserverQueue:
    """A queue of calls for an observer, with a thread that ends with the process."""

    def __init__(self, observer: Observer, max_waiting: int = MAX_WAITING) -> None:
        self.observer = observer
        self.n_dropped = 0
        self._calls: queue.Queue[tuple[CallRequest, Outcome]] = queue.Queue(max_waiting)
        threading.Thread(target=self._run, name="call-observer", daemon=True).start()

    def put(self, request: CallRequest, outcome: Outcome) -> None:
        """Add a call. This returns at once, whatever the observer does."""
        try:
            self._calls.put_nowait((request, outcome))
        except queue.Full:
            self.n_dropped += 1
            if self.n_dropped & (self.n_dropped - 1) == 0:  # Log only the 1st, 2nd, 4th, 8th ... to limit the log.
                logger.warning("the call observer is too slow: %s calls were dropped", self.n_dropped)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until the observer has processed all calls. Return how many it has not processed in this time."""
        with self._calls.all_tasks_done:
            self._calls.all_tasks_done.wait_for(lambda: not self._calls.unfinished_tasks, timeout_s)
            return self._calls.unfinished_tasks

    def finish(self) -> None:
        """Wait for the observer at the end of the process, because its thread ends with the process."""
        if remaining := self.wait(FINISH_S):
            logger.warning("the call observer is too slow: the process ended before %s calls", remaining)

    def _run(self) -> None:
        while True:
            request, outcome = self._calls.get()
            try:
                self.observer(request, outcome)
            except Exception:
                logger.exception("the call observer failed")
            finally:
                self._calls.task_done()


@functools.cache
def get_observer_queue(name: str) -> ObserverQueue:
    """Return this process's queue for the observer of this name."""
    observer_queue = ObserverQueue(import_string(name))
    # Not atexit: processes of multiprocessing, as those of the task queue, end without it.
    Finalize(None, observer_queue.finish, exitpriority=0)
    return observer_queue
