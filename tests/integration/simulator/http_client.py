"""A client of a simulated provider over real HTTP on loopback."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from runs_app.simulator import RunningSimulator, SimulatorConfig, start

Result = TypeVar("Result")

IMAGE = b"\x89PNG\r\n\x1a\n not really a picture"
IMAGE_SHA = hashlib.sha256(IMAGE).hexdigest()


@dataclass(frozen=True)
class Response:
    status: int
    headers: Any
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def choice(self) -> dict[str, Any]:
        return self.body["choices"][0]

    @property
    def content(self) -> str:
        return self.choice["message"]["content"]


class Client:
    def __init__(self, running: RunningSimulator, session: aiohttp.ClientSession) -> None:
        self.running = running
        self._session = session

    async def chat(self, payload: dict[str, Any], **headers: str) -> Response:
        return await self.post("/v1/chat/completions", payload, **headers)

    async def ask(self, text: str, model: str = "sim/a", **more: Any) -> Response:
        return await self.chat(make_question(text, model, **more))

    async def post(self, path: str, payload: Any, **headers: str) -> Response:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        async with self._session.post(f"{self.running.root}{path}", data=data, headers=headers) as response:
            return Response(response.status, response.headers, await response.text())

    async def get(self, path: str) -> Response:
        async with self._session.get(f"{self.running.root}{path}") as response:
            return Response(response.status, response.headers, await response.text())

    async def counters(self) -> dict[str, Any]:
        return (await self.get("/counters")).body


def make_question(text: str, model: str = "sim/a", *, image: bytes | None = None, **more: Any) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if image is not None:
        url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return {"model": model, "messages": [{"role": "user", "content": parts}], **more}


async def wait_until_in_flight(client: Client, in_flight: int) -> None:
    """Wait until the server has this number of requests in flight."""
    async with asyncio.timeout(60):
        while (await client.counters())["in_flight"] != in_flight:
            await asyncio.sleep(0.01)


def run_with_simulator(config: SimulatorConfig, scene: Callable[[Client], Awaitable[Result]]) -> Result:
    """Run `scene` against a server of this configuration, and stop the server."""

    async def play() -> Result:
        running = await start(config)
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
                return await scene(Client(running, session))
        finally:
            await running.stop()

    return asyncio.run(play())
