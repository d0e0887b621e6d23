"""The web server's worker, without a wait that stops everybody."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from gunicorn.workers.gthread import ThreadWorker


class Worker(ThreadWorker):  # type: ignore[misc]
    """Closes finished connections in a thread of the pool.

    Gunicorn 27 does it in the thread that accepts connections, and waits there up to two seconds for the other end to
    close too: one client that takes its time would stop the site for all.
    """

    def finish_request(self, connection: Any, done: Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None or done.result() is not False:
            super().finish_request(connection, done)
            return
        self.nr_conns -= 1
        try:
            self.tpool.submit(connection.close, graceful=True)
        except RuntimeError:  # The pool ends: so does the server.
            connection.close()
