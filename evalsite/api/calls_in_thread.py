"""A call of the gateway within one thread of a web server: a second thread waits for the model.

The transactions run in the thread of the request, on its connection.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse

from runs_app.engine.external_queue import Executors, ExternalQueue
from runs_app.llm.http_transport import close_session


class RequestThread(Executor):
    """An executor whose work is done by the thread that iterates over it. It yields everything that is no work."""

    def __init__(self) -> None:
        self.entries: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.entries.put((future, lambda: function(*args, **kwargs)))
        return future

    def __iter__(self) -> Iterator[Any]:
        while (entry := self.entries.get()) is not None:
            if not isinstance(entry, tuple):
                yield entry
                continue
            future, work = entry
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - the other thread raises it
                future.set_exception(error)


def answer_in_thread(answer: Callable[[ExternalQueue], Awaitable[Any]]) -> HttpResponse | StreamingHttpResponse:
    """Return the response to a call. The call is recorded when its response is complete."""
    thread = RequestThread()

    async def run() -> None:
        calls = ExternalQueue(Executors(thread, thread, thread), record_after_s=0)
        try:
            reply = await answer(calls)
            thread.entries.put(reply)
            if reply.pieces is not None:
                async for piece in reply.pieces:
                    thread.entries.put(piece)
        except BaseException as error:  # noqa: BLE001 - the thread of the request raises it
            thread.entries.put(error)
        finally:
            await calls.finish()
            await close_session()
            thread.entries.put(None)

    threading.Thread(target=asyncio.run, args=(run(),), daemon=True).start()
    entries = iter(thread)
    reply = next(entries)
    if isinstance(reply, BaseException):
        raise reply

    def list_pieces() -> Iterator[bytes]:
        try:
            for entry in entries:
                if isinstance(entry, BaseException):
                    raise entry
                yield entry
        finally:
            for _ in entries:  # The program has left: the call goes on to its end.
                pass

    if reply.pieces is None:
        for _ in entries:
            pass
        return HttpResponse(reply.body, status=reply.status, headers=reply.headers)
    return StreamingHttpResponse(
        list_pieces(), status=reply.status, headers=reply.headers | {"Cache-Control": "no-cache"}
    )
