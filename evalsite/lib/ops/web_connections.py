"""Client connections of the web server: a socket with bounded waits, and collection of a request without a thread."""

from __future__ import annotations

import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import IO, Any

from gunicorn.workers.gthread import TConn

HEAD_S = 10.0  # Limit from the first wait for a request to the end of its head.
IDLE_S = 30.0  # Limit without any byte, while a body or a response is transferred.
# A body or response of n bytes may take BASE_TRANSFER_S + n / MIN_BYTES_PER_S.
BASE_TRANSFER_S, MIN_BYTES_PER_S = 20.0, 1024
LINGER_S = 2.0  # Wait after the response for the client to close.
HEAD_BYTES = 64 * 2**10
BODY_BYTES = 64 * 2**10  # The upload threads read larger bodies.
RESPONSE_BYTES = 512 * 2**10  # Maximum in memory for each response to a slow client.
MAX_DOWNLOADS = 16  # Threads that wait for clients to read the rest of a longer response.
END_OF_HEAD = b"\r\n\r\n"


class ClientSocket:
    """A non-blocking socket whose calls wait within limits.

    Threads call its normal methods; the event loop calls the methods with `_now`. A response is sent immediately as far
    as the client accepts it. At most RESPONSE_BYTES of the rest stay in `unsent`, so that the thread is free again. If
    more remains, the thread waits, and another thread processes pages meanwhile.
    """

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._timeout: float | None = None
        self._waited_s = 0.0  # Seconds that threads waited during this request.
        self._transferred = 0
        self._began = time.monotonic()
        self.page_threads: PageThreads | None = None  # Set while one of its threads processes the request.
        self.unsent = bytearray()
        self.is_complete = False  # The whole request has been received: no wait is needed.
        client.setblocking(False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def begin_request(self, *, is_complete: bool) -> None:
        self.is_complete, self._waited_s, self._transferred = is_complete, 0.0, 0
        self._began = time.monotonic()

    def setblocking(self, flag: bool) -> None:
        """Clear the time-out. The real socket stays non-blocking."""
        self._timeout = None

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def gettimeout(self) -> float | None:
        return self._timeout

    def recv(self, size: int) -> bytes:
        """Return the received bytes, or b"" at the end. Raise TimeoutError if the client is slower than the limits."""
        if self.is_complete:
            return b""
        self._wait(select.POLLIN)
        data = self._client.recv(size)
        self._transferred += len(data)
        return data

    def send(self, data: bytes) -> int:
        self.sendall(data)
        return len(data)

    def sendall(self, data: bytes) -> None:
        self.unsent += data
        self.send_now()
        if len(self.unsent) <= RESPONSE_BYTES:
            return
        with self.page_threads.lend(self) if self.page_threads else nullcontext():
            while len(self.unsent) > RESPONSE_BYTES:
                self._wait(select.POLLOUT)
                self.send_now()

    @property
    def bytes_per_s(self) -> float:
        return self._transferred / max(time.monotonic() - self._began, 0.001)

    def disconnect(self) -> None:
        """End the connection from another thread. A thread that waits for the client then raises OSError."""
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def sendfile(self, file: IO[bytes], offset: int = 0, count: int | None = None) -> int:
        file.seek(offset)
        remaining = count if count is not None else 2**63
        while remaining and (data := file.read(min(remaining, 2**16))):
            self.sendall(data)
            remaining -= len(data)
        return file.tell() - offset

    def send_now(self) -> int:
        """Send as many bytes as the client accepts without waiting. Return their number."""
        sent = 0
        try:
            while sent < len(self.unsent):
                sent += self._client.send(memoryview(self.unsent)[sent : sent + 2**18])
        except BlockingIOError:
            pass
        finally:
            del self.unsent[:sent]
        self._transferred += sent
        return sent

    def recv_now(self) -> bytes | None:
        """Return the received bytes, b"" at the end of the stream, or None if nothing has arrived."""
        try:
            return self._client.recv(2**16)
        except BlockingIOError:
            return None

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._client, event)
        timeout_s = min(IDLE_S, BASE_TRANSFER_S + self._transferred / MIN_BYTES_PER_S - self._waited_s)
        if self._timeout is not None:
            timeout_s = min(timeout_s, self._timeout)
        began = time.monotonic()
        ready = poll.poll(max(timeout_s, 0) * 1000)
        self._waited_s += time.monotonic() - began
        if not ready:
            raise TimeoutError("the client is too slow")


class PageThreads:
    """The slots of the threads that process requests. A thread lends its slot while it waits for a slow client.

    At most MAX_DOWNLOADS threads wait. The next one disconnects the slowest client, so slow clients delay neither pages
    nor other downloads.
    """

    def __init__(self, slots: int) -> None:
        self._slots = threading.BoundedSemaphore(slots)
        self._lock = threading.Lock()
        self._waiting: set[ClientSocket] = set()

    @contextmanager
    def process(self, client: ClientSocket) -> Iterator[None]:
        """Hold a slot during the block."""
        with self._slots:
            client.page_threads = self
            try:
                yield
            finally:
                client.page_threads = None

    @contextmanager
    def lend(self, client: ClientSocket) -> Iterator[None]:
        """Release the thread's slot during the block, in which it waits for its client."""
        with self._lock:
            if len(self._waiting) >= MAX_DOWNLOADS:
                slowest = min(self._waiting, key=lambda waiting_client: waiting_client.bytes_per_s)
                self._waiting.remove(slowest)
                slowest.disconnect()
            self._waiting.add(client)
        self._slots.release()
        try:
            yield
        finally:
            self._slots.acquire()
            with self._lock:
                self._waiting.discard(client)


class WebConnection(TConn):  # type: ignore[misc]
    """A connection whose next request the event loop collects in `received`."""

    def __init__(self, cfg: Any, client: socket.socket, address: Any, server: Any) -> None:
        super().__init__(cfg, ClientSocket(client), address, server)
        self.received = bytearray()
        self.deadline = 0.0
        self.is_keepalive = False
        self.begin_wait()

    def begin_wait(self) -> None:
        """Reset the state for the next request, but keep its bytes that have already arrived."""
        self.began = time.monotonic()
        self.head = b""
        self.length: int | None = 0
        self.progress = 0
        self._searched = 0

    def read_head(self) -> bool:
        """Return whether the head is complete; if so, set `head` and `length`. A large body has the length None."""
        if self.head:
            return True
        end = self.received.find(END_OF_HEAD, max(self._searched - len(END_OF_HEAD), 0))
        self._searched = len(self.received)
        if end < 0:
            return False
        self.head = bytes(self.received[: end + len(END_OF_HEAD)])
        self.length = parse_body_length(self.head)
        return True

    @property
    def is_large(self) -> bool:
        return self.length is None

    @property
    def is_whole(self) -> bool:
        return self.length is not None and len(self.received) >= len(self.head) + self.length

    def take_request(self) -> bytes:
        """Remove and return the bytes of this request. Keep the bytes of the next one."""
        end = len(self.received) if self.length is None else len(self.head) + self.length
        request = bytes(self.received[:end])
        del self.received[:end]
        return request

    def set_deadline(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds

    def extend_deadline(self, transferred: int) -> None:
        """Set the deadline after `transferred` more bytes.

        The deadline is IDLE_S from now, but not later than the total time allowed for all bytes so far.
        """
        self.progress += transferred
        now = time.monotonic()
        self.deadline = min(now + IDLE_S, self.began + BASE_TRANSFER_S + self.progress / MIN_BYTES_PER_S)


def parse_body_length(head: bytes) -> int | None:
    """Return the length of a small body. Return None if the body is large or the head gives no valid length."""
    if find_header(head, b"transfer-encoding") is not None:
        return None
    lengths = re.findall(rb"\r\ncontent-length[ \t]*:[ \t]*([^\r\n]*)", head, re.IGNORECASE)
    if not lengths:
        return 0
    if len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,12}[ \t]*", lengths[0]):
        return None
    length = int(lengths[0])
    return length if length <= BODY_BYTES else None


def find_header(head: bytes, name: bytes) -> str | None:
    match = re.search(rb"\r\n" + re.escape(name) + rb"[ \t]*:[ \t]*([^\r\n]*)", head, re.IGNORECASE)
    return match[1].decode("latin-1").strip() if match else None
