"""An observer of calls: a function of the laboratory's own that is told of every call to a model, after it was made.

`EVALSITE_CALL_OBSERVER` names it, `package.module.function`: to send traces to Langfuse, OpenTelemetry or a file,
without this program knowing any of them. It gets a `CallRequest` and what came of it, a `CallReply` or a `CallFailure`;
both carry no key, and the outcome's `trace_id` is the attempt's. It runs in a thread beside the calls, one call after
the other, in each worker. What it raises is logged and changes nothing; while it is slower than the calls for long,
some are left out, and how many is logged.
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

MOST_WAITING = 10_000  # Calls that were made and not yet told of. Images make a request large.


class ObserverQueue:
    """Hands calls to an observer, in a thread that ends with the process."""

    def __init__(self, observer: Observer, most_waiting: int = MOST_WAITING) -> None:
        self.observer = observer
        self.left_out = 0
        self._calls: queue.Queue[tuple[CallRequest, Outcome]] = queue.Queue(most_waiting)
        threading.Thread(target=self._tell, name="call-observer", daemon=True).start()

    def tell(self, request: CallRequest, outcome: Outcome) -> None:
        """Returns at once, whatever the observer does."""
        try:
            self._calls.put_nowait((request, outcome))
        except queue.Full:
            self.left_out += 1
            if self.left_out & (self.left_out - 1) == 0:  # The first, the second, the fourth: a log, not a flood.
                logger.warning("the observer of calls is too slow: %s were left out", self.left_out)

    def wait(self) -> None:
        """Until all was told."""
        self._calls.join()

    def _tell(self) -> None:
        while True:
            request, outcome = self._calls.get()
            try:
                self.observer(request, outcome)
            except Exception:
                logger.exception("the observer of calls failed")
            finally:
                self._calls.task_done()


@functools.cache
def observer_queue(name: str) -> ObserverQueue:
    """The one of this process."""
    return ObserverQueue(import_string(name))
