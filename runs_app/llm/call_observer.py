"""An observer of calls: a function of the laboratory that is called after every call to a model.

`EVALSITE_CALL_OBSERVER` names it as `package.module.function`. It can send traces to Langfuse, OpenTelemetry or a file.
It gets a `CallRequest` and the outcome, a `CallReply` or a `CallFailure`. Both carry no key, and the outcome's
`trace_id` is the attempt's. It runs in a thread beside the calls, one call after the other, in each worker. Its
exceptions are logged and change nothing. If it stays slower than the calls, some are left out, and their number is
logged.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections.abc import Callable

from django.utils.module_loading import import_string

from runs_app.llm.calls import CallFailure, CallReply, CallRequest

logger = logging.getLogger("evalsite.observer")

Outcome = CallReply | CallFailure
Observer = Callable[[CallRequest, Outcome], object]

MAX_WAITING = 10_000  # Finished calls that the observer has not seen yet. Images make a request large.


class ObserverQueue:
    """A queue that passes calls to an observer, in a thread that ends with the process."""

    def __init__(self, observer: Observer, most_waiting: int = MAX_WAITING) -> None:
        self.observer = observer
        self.left_out = 0
        self._calls: queue.Queue[tuple[CallRequest, Outcome]] = queue.Queue(most_waiting)
        threading.Thread(target=self._tell, name="call-observer", daemon=True).start()

    def tell(self, request: CallRequest, outcome: Outcome) -> None:
        """Pass on a call. This returns at once, whatever the observer does."""
        try:
            self._calls.put_nowait((request, outcome))
        except queue.Full:
            self.left_out += 1
            if self.left_out & (self.left_out - 1) == 0:  # Log the first, second, fourth, eighth ... to avoid a flood.
                logger.warning("the call observer is too slow: %s calls were dropped", self.left_out)

    def wait(self) -> None:
        """Wait until the observer has seen all calls."""
        self._calls.join()

    def _tell(self) -> None:
        while True:
            request, outcome = self._calls.get()
            try:
                self.observer(request, outcome)
            except Exception:
                logger.exception("the call observer failed")
            finally:
                self._calls.task_done()


@functools.cache
def observer_queue(name: str) -> ObserverQueue:
    """Return the queue of this process."""
    return ObserverQueue(import_string(name))
