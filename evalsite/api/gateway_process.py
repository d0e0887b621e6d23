"""The process of the gateway: one event loop for the calls of all programs. `up` starts it beside the web server.

A call through the web server's threads took 20 ms more than a direct one, and with eight programs 80 ms: middleware,
threads that wait for each other, and two transactions for each call. Here, the site's own middleware checks the access
of a program every few seconds, transactions are shared (`runs_app/engine/external_queue.py`), and most calls begin
without one (`runs_app/engine/prepared_calls.py`). The database notifies this process of each revoked token.
"""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import re
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from evalsite.lib.ops import handover
from evalsite.lib.ops.event_loop import run_in_fast_loop
from evalsite.lib.ops.web_connections import BASE_TRANSFER_S, MIN_BYTES_PER_S

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

logger = logging.getLogger("evalsite.gateway")

CALL = re.compile(r"/gateway/[-\w]+/v1/(chat/completions|messages)")
MAX_CONNECTIONS = 1000
MAX_CALLS = 256  # In flight at a time, over all programs.
IDLE_S = 75.0
STOP_S = 10.0  # Calls in flight may take so long after a stop signal.
LISTEN_AGAIN_S = 5.0
SWITCH_S = 0.0001  # How long a thread keeps the interpreter from another one. Python's default is fifty times that.

SAFE_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class GatewayConnection(RequestHandler):
    """A connection whose requests are for the gateway. With the first other request, it goes back to the web server.

    `received` are the bytes that the web server has read from it.
    """

    def __init__(self, server: Server, received: bytes, **options: Any) -> None:
        super().__init__(server, **options)
        self._received = received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        super().data_received(self._received)  # Here, because the loop may read the next bytes at any time after this.

    def data_received(self, data: bytes) -> None:
        is_idle = self._waiter is not None and not self._waiter.done() and not self._messages
        if is_idle and self._request_count and not handover.is_for_gateway(data):
            transport: Any = self.transport
            end, client = self._manager.end, transport.get_extra_info("socket")  # type: ignore[union-attr]
            if handover.send_connection(end, client.fileno(), data):
                transport.abort()  # Closes this process's copy alone.
                return
        super().data_received(data)


class Server(web.Server):
    """The server of all connections that the web server hands over."""

    def __init__(self, end: socket.socket, queue: Any) -> None:
        super().__init__(
            self.serve, access_log=None, keepalive_timeout=IDLE_S, auto_decompress=False, lingering_time=2.0
        )
        self.end, self.queue = end, queue
        from evalsite.api.kept_values import KeptValues

        self.accesses: KeptValues[Any] = KeptValues(lambda access: not isinstance(access, web.Response))
        self.tasks: set[asyncio.Task[None]] = set()

    def accept(self) -> None:
        """Take the connections that wait in the pair of sockets."""
        while (taken := handover.receive_connection(self.end)) is not None:
            client, received = taken
            if len(self.connections) >= MAX_CONNECTIONS:
                client.close()
                continue
            task = self._loop.create_task(self._adopt(client, received))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _adopt(self, client: socket.socket, received: bytes) -> None:
        with suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: GatewayConnection(self, received, loop=self._loop, **self._kwargs), client
            )

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        match = CALL.fullmatch(request.path)
        if match is None or request.method != "POST":
            return _copy_response(await self.queue.read(_ask_site, _build_environment(request)))
        form = "openai" if match[1] == "chat/completions" else "anthropic"
        access = await self._find_access(request)
        if isinstance(access, web.Response):
            return access
        from evalsite.api.gateway_api import Refused, answer_call

        if len(self.queue.calls) >= MAX_CALLS:
            busy = Refused(429, "The gateway has as many calls in flight as it can hold. Try again.", "rate_limited", 2)
            return _build_response(busy.build_reply(form))
        body = await _read_body(request)
        if body is None:
            return _build_response(Refused(413, "The request is too large.", "request_too_large").build_reply(form))
        reply = await answer_call(self.queue, access, form, request.headers, body)
        if reply.pieces is None:
            return _build_response(reply)
        response = web.StreamResponse(status=reply.status, headers=SAFE_HEADERS | reply.headers)
        await response.prepare(request)
        async for piece in reply.pieces:
            await response.write(piece)
        await response.write_eof()
        return response

    async def _find_access(self, request: web.BaseRequest) -> Any:
        """Return the access of the request, or the response of the site to a request that may not go on."""
        from evalsite.api.gateway_api import ACCESS_ONLY

        async def ask() -> Any:
            response = await self.queue.read(_ask_site, _build_environment(request) | {ACCESS_ONLY: True})
            access = getattr(response, "access", None)
            return _copy_response(response) if access is None else access

        names = ("Host", "Authorization", "x-api-key", "X-Forwarded-Proto", "X-Forwarded-For")
        key = (request.path, request.remote or "", *(request.headers.get(name, "") for name in names))
        return await self.accesses.get(self.queue, key, ask)


async def _read_body(request: web.BaseRequest) -> bytes | None:
    """Return the body, or None if it is too large. Raise TimeoutError if the program sends it too slowly."""
    from django.conf import settings

    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if (request.content_length or 0) > limit:
        return None
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if request.content.is_eof():  # Usually, the body arrives with the head.
        whole = request.content.read_nowait()
        return whole if len(whole) <= limit else None
    body = bytearray()
    async with asyncio.timeout(BASE_TRANSFER_S + (request.content_length or limit) / MIN_BYTES_PER_S):
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > limit:
                return None
    return bytes(body)


def _build_environment(request: web.BaseRequest) -> dict[str, Any]:
    """Return a WSGI environment with the head of the request, for the site's own middleware."""
    host, port = (request.transport.get_extra_info("sockname") if request.transport else None) or ("", 0)
    environment = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": request.path.encode().decode("latin-1"),
        "QUERY_STRING": request.query_string,
        "SERVER_NAME": str(host),
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": request.remote or "",
        "CONTENT_LENGTH": "0",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
    }
    left_out = ("content-length", "content-type", "transfer-encoding", "connection", "accept-encoding")
    for name, value in request.headers.items():
        if name.lower() not in left_out and "_" not in name:
            environment[f"HTTP_{name.upper().replace('-', '_')}"] = value
    return environment


def _ask_site(environment: dict[str, Any]) -> Any:
    """Return the response of the site, with all its middleware."""
    from django.db import close_old_connections

    from evalsite.wsgi import Request, application

    close_old_connections()
    response = application.get_response(Request(environment))
    response.close()
    return response


def _copy_response(response: Any) -> web.Response:
    headers = {name: value for name, value in response.items() if name.lower() != "content-length"}
    body = b"" if response.streaming else response.content
    copied = web.Response(body=body, status=response.status_code, headers=headers)
    if response.status_code >= 400:
        copied.force_close()  # Only programs with access may hold the places of connections.
    return copied


def _build_response(reply: Any) -> web.Response:
    return web.Response(body=reply.body, status=reply.status, headers=SAFE_HEADERS | reply.headers)


async def listen_for_revocations(prepared: Any) -> None:
    """Tell the prepared calls of each token that is revoked. Without a connection, they read it within a second."""
    import psycopg
    from django.db import connection

    from runs_app.models.tokens import REVOKED_CHANNEL

    names = ("dbname", "user", "password", "host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey")
    parameters = {name: value for name, value in connection.get_connection_params().items() if name in names}
    loop = asyncio.get_running_loop()

    def read(session: psycopg.AsyncConnection[Any], ended: asyncio.Event) -> None:
        try:
            session.pgconn.consume_input()
            while notice := session.pgconn.notifies():
                prepared.revoke(int(notice.extra))
        except psycopg.Error:
            loop.remove_reader(session.fileno())
            ended.set()

    while True:
        try:
            async with await psycopg.AsyncConnection.connect(**parameters, autocommit=True) as session:
                await session.execute(f"LISTEN {REVOKED_CHANNEL}")
                ended = asyncio.Event()
                loop.add_reader(session.fileno(), read, session, ended)
                try:
                    await ended.wait()
                finally:
                    loop.remove_reader(session.fileno())
        except (psycopg.Error, OSError):
            pass
        logger.warning("the gateway does not hear of revoked tokens, and reads them every second")
        await asyncio.sleep(LISTEN_AGAIN_S)


async def serve(end: socket.socket) -> None:
    """Serve until a stop signal, then let the calls in flight end, and record their replies."""
    from runs_app.engine.external_queue import Executors, ExternalQueue, open_spool
    from runs_app.engine.prepared_calls import PreparedCalls
    from runs_app.llm.http_transport import close_session

    threads = [ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("admission", "recording", "reading")]
    loop = asyncio.get_running_loop()
    spool, worker_id = await loop.run_in_executor(threads[1], open_spool)
    prepared = PreparedCalls()
    queue = ExternalQueue(Executors(*threads), spool, worker_id, prepared=prepared)
    listening = asyncio.create_task(listen_for_revocations(prepared))
    server = Server(end, queue)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    gc.freeze()
    loop.add_reader(end, server.accept)
    await stopped.wait()
    loop.remove_reader(end)
    server.pre_shutdown()
    listening.cancel()
    await queue.finish(STOP_S)
    await server.shutdown(1.0)
    await close_session()


def main() -> None:
    end = handover.open_own_end()
    if end is None:
        raise SystemExit("The process of the gateway is started by `up`.")
    import evalsite.wsgi  # noqa: I001 - sets Django up
    import evalsite.api.gateway_api  # noqa: F401

    sys.setswitchinterval(SWITCH_S)
    run_in_fast_loop(serve(end))


if __name__ == "__main__":
    main()
