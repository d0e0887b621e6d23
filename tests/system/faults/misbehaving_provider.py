"""A provider that misbehaves as the question requests. It writes to TCP directly, so no library repairs replies."""

import asyncio
import json
import threading
from collections import Counter
from contextlib import contextmanager

from tests.integration.gateway.fake_provider import make_completion

MB = 2**20
FINE = json.dumps(make_completion("fine")).encode()


def build_response(body, *, status="200 OK", length=None, kind="application/json"):
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body) if length is None else length}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def build_completion(content):
    return build_response(json.dumps(make_completion(content)).encode())


REPLIES = {
    "fine": build_response(FINE),
    "hangs up": b"",
    "half a reply": build_response(FINE[: len(FINE) // 2], length=len(FINE)),
    "not http": b"\x16\x03\x01\x02\x00 I speak something else\r\n\r\n",
    "web page": build_response(b"<html><body>Welcome to the captive portal</body></html>", kind="text/html"),
    "empty body": build_response(b""),
    "no json": build_response(b'{"choices": [{"message"'),
    "other json": build_response(b'[1, {"choices": 7}, null]'),
    "numbers for words": build_response(
        json.dumps(make_completion() | {"id": 7, "model": [], "choices": [{"message": 3}]}).encode()
    ),
    "deep json": build_response(b'{"a":' * 100_000),
    "invalid utf-8": build_response(FINE.replace(b"fine", b"f\xff\xfe\xc3ne")),
    "nul bytes": build_completion("a\0b"),
    "raw nul bytes": build_response(FINE.replace(b"fine", b"a\0b")),
    "half a character": build_response(FINE.replace(b"fine", b"a\\ud83db")),
    "10 MB of text": build_completion("x" * (10 * MB)),
    "10 MB of rubbish": build_response(b"\x00\xff" * (5 * MB)),
    "20 MB of text": build_completion("x" * (20 * MB)),
    "mad numbers": build_response(
        json.dumps(
            make_completion("mad")
            | {"usage": {"prompt_tokens": 10**30, "completion_tokens": -5, "total_tokens": 10**30, "cost": -3.0}}
        ).encode()
    ),
    "long names": build_response(
        json.dumps(make_completion("long") | {"id": "i" * 5000, "model": "m" * 5000}).encode()
    ),
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
    "key in error": build_response(b'{"error": {"message": "bad key sk-abcdefgh12345678"}}', status="400 Bad Request"),
}
SILENT = {"never answers": b"", "half open": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"}
DRIPPING = "drips"
BEHAVIOURS = (*REPLIES, *SILENT, DRIPPING)


class Misbehaving:
    def __init__(self):
        self.url = ""
        self.requests = Counter()

    async def serve(self, reader, writer):
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):  # The client closed the connection.
            pass
        finally:
            writer.close()

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        behaviour = body["messages"][-1]["content"]
        self.requests[behaviour] += 1
        writer.write(SILENT.get(behaviour, REPLIES.get(behaviour, b"HTTP/1.1 200 OK\r\n\r\n")))
        await writer.drain()
        if behaviour in SILENT:
            await reader.read()  # Until the client closes the connection.
        while behaviour == DRIPPING:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)


@contextmanager
def serve_misbehaving_provider():
    provider = Misbehaving()
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(provider.serve, "127.0.0.1", 0))
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield provider
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        server.close()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
