"""The gunicorn worker: an event loop serves slow clients, and threads process complete requests.

Gunicorn's own threads read requests and send responses themselves. A few slow clients, one per thread, would then block
the site. Here the event loop collects each request, sends the rest of each response and waits for clients to close.
Separate threads read bodies that are too large for memory, and only from accounts. A thread that waits for a
client to read a long response lends its slot to another thread.
"""

from __future__ import annotations

import errno
import selectors
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from django.utils.module_loading import import_string
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, ThreadWorker

from evalsite.lib.ops import handover
from evalsite.lib.ops.call_stack import call_with_room
from evalsite.lib.ops.web_connections import (
    HEAD_BYTES,
    HEAD_S,
    LINGER_S,
    MAX_DOWNLOADS,
    PageThreads,
    WebConnection,
    find_header,
)

WARM_THREADS = 4  # The pool uses them first. Each has a connection, which takes a few megabytes of the server.
WARM_UP_S = 0.5  # How long a prepared thread waits for the others.
UPLOAD_THREADS = 8  # Number of threads that read large bodies.
MAX_CONNECTIONS = 500  # A further connection closes the connection that has waited longest.
REFUSALS = {
    403: ("Forbidden", "Sign in, or send an access token, before you send a request of this size."),
    408: ("Request Timeout", "The request did not arrive in time."),
    431: ("Request Header Fields Too Large", "The request's head is too large."),
    503: ("Service Unavailable", "The site cannot serve this request now. Try again later."),
}


class WebWorker(ThreadWorker):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Connections that the event loop serves, oldest first. A thread serves the others.
        self.waiting: dict[WebConnection, None] = {}
        n_threads = UPLOAD_THREADS + MAX_DOWNLOADS
        self.uploads = ThreadPoolExecutor(max_workers=n_threads, thread_name_prefix="upload")
        self.page_threads, self.upload_threads = PageThreads(self.cfg.threads), PageThreads(UPLOAD_THREADS)
        self.gateway = handover.open_own_end()

    def run(self) -> None:
        if self.gateway is not None:
            self.poller.register(self.gateway, selectors.EVENT_READ, self._take_back)
        if hasattr(self.wsgi, "warm_up"):
            threading.Thread(target=self._warm_up, daemon=True, name="warm-up").start()
        super().run()

    def _warm_up(self) -> None:
        """Prepare the process, then some threads of pages. The pool starts a thread for a call if no other is idle."""
        self.wsgi.warm_up()
        barrier = threading.Barrier(WARM_THREADS)
        with suppress(RuntimeError):  # The pool is shut down because the server stops.
            for _ in range(WARM_THREADS):
                self.tpool.submit(self._warm_up_thread, barrier)

    def _warm_up_thread(self, barrier: threading.Barrier) -> None:
        self.wsgi.warm_up_thread()
        with suppress(threading.BrokenBarrierError):
            barrier.wait(timeout=WARM_UP_S)  # So that no thread is prepared twice.

    def get_thread_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=self.cfg.threads + MAX_DOWNLOADS, thread_name_prefix="page")

    def accept(self, listener: socket.socket) -> None:
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._close_oldest()
            elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return
        if self.nr_conns >= MAX_CONNECTIONS:
            self._close_oldest()
        self.nr_conns += 1
        self._await_request(WebConnection(self.cfg, client, address, listener.getsockname()), HEAD_S)

    # Receiving requests.

    def _await_request(self, conn: WebConnection, seconds: float) -> None:
        conn.begin_wait()
        conn.set_deadline(seconds)
        self._watch(conn, selectors.EVENT_READ, self._on_readable)
        if conn.received:
            self._process_received(conn, 0)
        else:
            self._on_readable(conn)

    def _on_readable(self, conn: WebConnection) -> None:
        try:
            data = conn.sock.recv_now()
        except OSError:
            data = b""
        if data is None:
            return
        if not data:
            self._discard(conn)
            return
        if not conn.received:  # The first bytes of the next request on a keep-alive connection.
            conn.set_deadline(HEAD_S)
        conn.received += data
        self._process_received(conn, len(data))

    def _process_received(self, conn: WebConnection, arrived: int) -> None:
        """Pass the connection to a thread when its request is complete or its body is too large to collect."""
        had_head = bool(conn.head)
        if not conn.read_head():
            if len(conn.received) > HEAD_BYTES:
                self._refuse(conn, 431)
        elif self.gateway is not None and handover.is_for_gateway(conn.received):
            if handover.send_connection(self.gateway, conn.sock.fileno(), bytes(conn.received)):
                self._discard(conn)  # Closes this process's copy alone.
            else:
                self._refuse(conn, 503)
        elif conn.is_whole:
            self._release(conn)
            conn.sock.begin_request(is_complete=True)
            self.enqueue_req(conn)
        elif conn.is_large:
            self._release(conn)
            self._submit(self.tpool, conn, self._may_send_large_body, self._on_sender_checked)
        else:
            conn.extend_deadline(arrived)
            if not had_head and (find_header(conn.head, b"expect") or "").lower() == "100-continue":
                conn.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _take_back(self, _sock: Any) -> None:
        """Take the connections whose next request is not for the gateway."""
        while self.gateway is not None and (taken := handover.receive_connection(self.gateway)) is not None:
            client, received = taken
            self.nr_conns += 1
            conn = WebConnection(self.cfg, client, client.getpeername(), client.getsockname())
            conn.received += received
            self._await_request(conn, HEAD_S)

    @staticmethod
    def _may_send_large_body(conn: WebConnection) -> bool:
        """Ask the function that the setting LARGE_BODY_CHECK names."""
        from django.conf import settings  # Import late: Django must be set up first.

        check = import_string(settings.LARGE_BODY_CHECK)
        bearer = find_header(conn.head, b"authorization") or ""
        return bool(check(find_header(conn.head, b"cookie") or "", bearer))

    def _on_sender_checked(self, conn: WebConnection, done: Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            problem = None if done.cancelled() else done.exception()
            self.log.error("the sender of a request could not be checked: %r", problem)
            self._refuse(conn, 503)
        elif done.result():
            conn.sock.begin_request(is_complete=False)
            self._submit(self.uploads, conn, self.handle, self.finish_request)
        else:
            self._refuse(conn, 403)

    def _submit(self, pool: ThreadPoolExecutor, conn: WebConnection, work: Any, callback: Any) -> None:
        try:
            future = pool.submit(work, conn)
        except RuntimeError:  # The pool is shut down because the server stops.
            self._discard(conn)
            return
        future.add_done_callback(lambda done: self.method_queue.defer(callback, conn, done))

    def handle(self, conn: WebConnection) -> Any:
        conn.init()
        conn.parser.unreader.unread(conn.take_request())
        threads = self.page_threads if conn.sock.is_complete else self.upload_threads
        with threads.process(conn.sock):
            return call_with_room(super().handle, conn)

    # Sending responses.

    def _refuse(self, conn: WebConnection, status: int) -> None:
        reason, text = REFUSALS[status]
        head = f"HTTP/1.1 {status} {reason}\r\nConnection: close\r\nContent-Type: text/plain\r\n"
        conn.is_keepalive = False
        conn.received.clear()
        conn.begin_wait()
        try:
            conn.sock.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
        except OSError:
            self._discard(conn)
        else:
            self._send_rest(conn)

    def finish_request(self, conn: WebConnection, done: Future[Any]) -> None:
        failed = done.cancelled() or done.exception() is not None
        conn.is_keepalive = not failed and bool(done.result())
        conn.begin_wait()
        self._send_rest(conn)

    def _send_rest(self, conn: WebConnection) -> None:
        if conn.sock.unsent:
            conn.extend_deadline(0)
            self._watch(conn, selectors.EVENT_WRITE, self._on_writable)
        elif conn.is_keepalive:
            conn.received[:0] = conn.parser.unreader.take_buffered()
            seconds = self.cfg.keepalive if self.alive else STOP_KEEPALIVE_LINGER
            self._await_request(conn, HEAD_S if conn.received else seconds)
        else:
            self._linger(conn)

    def _on_writable(self, conn: WebConnection) -> None:
        try:
            conn.extend_deadline(conn.sock.send_now())
        except OSError:
            self._discard(conn)
            return
        if not conn.sock.unsent:
            self._release(conn)
            self._send_rest(conn)

    def _linger(self, conn: WebConnection) -> None:
        """Wait for the client to close. Closing first could cut off a response that the client has not read."""
        try:
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._discard(conn)
            return
        conn.set_deadline(LINGER_S)
        self._watch(conn, selectors.EVENT_READ, self._on_lingering)

    def _on_lingering(self, conn: WebConnection) -> None:
        try:
            data = conn.sock.recv_now()
        except OSError:
            data = b""
        if data == b"":
            self._discard(conn)

    # Connections in the event loop.
    def _watch(self, conn: WebConnection, event: int, callback: Any) -> None:
        self._release(conn)
        try:
            self.poller.register(conn.sock, event, partial(self._call, callback, conn))
        except (OSError, ValueError):  # The socket was closed in the meantime.
            self._discard(conn)
        else:
            self.waiting[conn] = None

    def _call(self, callback: Any, conn: WebConnection, _sock: Any) -> None:
        if conn in self.waiting:  # An earlier event of the same poll may have closed it.
            callback(conn)

    def _release(self, conn: WebConnection) -> None:
        if conn in self.waiting:
            del self.waiting[conn]
            self.poller.unregister(conn.sock)

    def _discard(self, conn: WebConnection) -> None:
        self._release(conn)
        self.nr_conns -= 1
        conn.close()

    def _close_oldest(self) -> None:
        if self.waiting:
            self._discard(next(iter(self.waiting)))

    def murder_keepalived(self, force: bool = False) -> None:
        """Close the connections whose deadline has passed. Gunicorn calls this at least once a second."""
        now = time.monotonic()
        for conn in [conn for conn in self.waiting if force or conn.deadline <= now]:
            if conn.head and not conn.sock.unsent and not force:
                self._refuse(conn, 408)
            else:
                self._discard(conn)

    def _cap_keepalive(self, deadline: float) -> None:
        """Limit the deadline of connections without a pending response, because the server stops."""
        for conn in self.waiting:
            if not conn.sock.unsent:
                conn.deadline = min(conn.deadline, deadline)

    def handle_quit(self, sig: int, frame: Any) -> None:
        self.uploads.shutdown(wait=False, cancel_futures=True)
        super().handle_quit(sig, frame)
