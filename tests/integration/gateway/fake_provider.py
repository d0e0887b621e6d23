"""A fake provider that returns a given reply and records its requests."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.factories.http_servers import serve


@dataclass
class ReceivedRequest:
    path: str
    headers: dict[str, str]
    body: Any
    raw: bytes = b""


@dataclass
class FakeProvider:
    url: str = ""
    status: int = 200
    listing: Any = None  # the list of models, as JSON or bytes; None: 404
    reply: Any = None  # JSON, or bytes to send as they are
    replies: dict[str, tuple[int, Any]] = field(default_factory=dict)  # Status and JSON of single paths
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[ReceivedRequest] = field(default_factory=list)

    @property
    def last(self) -> ReceivedRequest:
        return self.requests[-1]


def make_completion(content: str | None = "hello", **changes: Any) -> dict[str, Any]:
    """Return a chat completion in OpenAI's format, with `message`, `choice` and other fields merged into it."""
    message = {"role": "assistant", "content": content, **changes.pop("message", {})}
    choice = {"index": 0, "finish_reason": "stop", "message": message, **changes.pop("choice", {})}
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "sim/a",
        "choices": [choice],
        "usage": usage,
        **changes,
    }


@contextmanager
def run_fake_provider() -> Iterator[FakeProvider]:
    fake = FakeProvider(reply=make_completion())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            is_form = headers["content-type"] == "application/x-www-form-urlencoded"
            content = dict(parse_qsl(body.decode())) if is_form else json.loads(body)
            fake.requests.append(ReceivedRequest(self.path, headers, content, body))
            status, reply = fake.replies.get(self.path, (fake.status, fake.reply))
            content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **fake.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            fake.requests.append(ReceivedRequest(f"GET {self.path}", headers, None))
            if fake.listing is None:
                self.send_error(404)
                return
            content = fake.listing if isinstance(fake.listing, bytes) else json.dumps(fake.listing).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_args: object) -> None:
            pass

    with serve(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        fake.url = f"http://127.0.0.1:{server.server_port}"
        yield fake


PRIVATE_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def make_service_account(token_uri: str) -> dict[str, str]:
    """Return a service account of Google as its JSON file has it. Its assertions are signed by PRIVATE_KEY."""
    pem = PRIVATE_KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "client_email": "lab@project.iam.gserviceaccount.com",
        "private_key": pem.decode(),
        "private_key_id": "k1",
        "token_uri": token_uri,
    }
