"""A provider with the APIs of OpenAI and Anthropic, whole and streamed, in threads of this process.

The simulated provider streams, too. It does not show requests as they arrived, call tools, break the stream of a chosen
request, or send back the key that it received, and no user needs that.
"""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.factories.http_servers import serve

USAGE = {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16}


class ModelServer(BaseHTTPRequestHandler):
    """It answers `echo: TEXT`. The last message may be `fail`, `break`, `slow` or `leak`."""

    protocol_version = "HTTP/1.1"
    requests = []
    in_flight = most_in_flight = 0
    lock = threading.Lock()

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        cls = type(self)
        with cls.lock:
            cls.requests.append((self.path, dict(self.headers), body))
            cls.in_flight += 1
            cls.most_in_flight = max(cls.most_in_flight, cls.in_flight)
        try:
            self.answer(body)
        finally:
            with cls.lock:
                cls.in_flight -= 1

    def answer(self, body):
        content = body["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[-1].get("text", "")
        if text == "fail":
            self.send(429, {"error": {"message": "slow down", "type": "requests"}}, {"Retry-After": "1"})
            return
        if text == "slow":
            time.sleep(1.5)
        if text == "leak":
            text = self.headers.get("Authorization", "").removeprefix("Bearer ") or self.headers.get("x-api-key", "")
        is_openai = self.path.endswith("/chat/completions")
        if body.get("stream"):
            self.stream(list((list_chunks if is_openai else list_events)(text, body)), breaks=text == "break")
        else:
            self.send(200, (build_completion if is_openai else build_message)(text, body))

    def send(self, status, content, headers=()):
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events, *, breaks):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events[: 2 if breaks else None]:
            data = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
            time.sleep(0.02)
        if breaks:
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(b"0\r\n\r\n")


def build_completion(text, body):
    message = {"role": "assistant", "content": f"echo: {text}"}
    if body.get("tools"):
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        message |= {"content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if body.get("tools") else "stop"}
    return {
        "id": "cmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [choice],
        "usage": USAGE,
    }


def list_chunks(text, body):
    head = {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    for piece in ("echo: ", text):
        choice = {"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}
        yield f"data: {json.dumps(head | {'choices': [choice]})}\n\n"
    yield f"data: {json.dumps(head | {'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'stop'}]})}\n\n"
    if (body.get("stream_options") or {}).get("include_usage"):
        yield f"data: {json.dumps(head | {'choices': [], 'usage': USAGE})}\n\n"
    yield "data: [DONE]\n\n"


def build_message(text, body):
    usage = {"input_tokens": 12, "output_tokens": 4}
    content = [{"type": "text", "text": f"echo: {text}"}]
    fixed = {"id": "msg-1", "type": "message", "role": "assistant", "stop_reason": "end_turn", "stop_sequence": None}
    return fixed | {"model": body["model"], "content": content, "usage": usage}


def list_events(text, body):
    start = build_message(text, body) | {"content": [], "usage": {"input_tokens": 12, "output_tokens": 1}}
    events = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"echo: {text}"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


@contextmanager
def model_server():
    """Serve for the block. Yield the address and the class that collects the requests."""
    handler = type("CollectingServer", (ModelServer,), {"requests": [], "lock": threading.Lock()})
    with serve(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}", handler
