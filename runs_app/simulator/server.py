"""The HTTP server of the simulated provider."""

import asyncio
import hmac
import json
import os
import signal
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from evalsite.lib.ops.event_loop import run_in_fast_loop
from runs_app.simulator.batches import BatchStore, convert_parameters
from runs_app.simulator.config import ConfigError, SimulatorConfig, parse_pairs, spread_error_rate
from runs_app.simulator.known_answers import AnswerKey, Recordings
from runs_app.simulator.model_behaviour import Answerer
from runs_app.simulator.request_counters import Counters, MinuteWindow, render_counters
from runs_app.simulator.request_parser import ChatRequest, UnreadableRequest, read_chat
from runs_app.simulator.responses import (
    Reply,
    build_completion,
    build_error,
    build_message,
    build_reply,
    choose_fault,
    draw_latency,
    list_chunks,
    list_message_events,
)
from runs_app.simulator.skill_profiles import read_profiles

BACKLOG = 4096
MAX_BODY_BYTES = 64 * 2**20
STALLED_S = 3600.0
GRACE_S = 2.0  # Time for answers in progress when the server stops.

_BATCH_SETTINGS = ("batch_faults", "batch_waits")
_RUNTIME_SETTINGS = (
    "latency_ms",
    "latency_sigma",
    "event_ms",
    "slow_s",
    "retry_after_s",
    "max_in_flight",
    "rpm",
    "json_schema",
)


class SimulatedRefusal(Exception):
    """A request that gets an error status."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = build_error(status, message, code)


class Simulator:
    """The state of one server: its configuration, which can change while it runs, its models and its counters."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.config = config
        self.counters = Counters()
        self.batches = BatchStore(self)
        profiles = {model: profile for path in config.profiles for model, profile in read_profiles(path).items()}
        self.answerer = Answerer(config.seed, config.skills, AnswerKey.read(config.answers), config.judge, profiles)
        self.recordings = Recordings.read(config.replays) if config.replays else None
        self._minute = MinuteWindow()
        self._stalled = set(config.stalled)
        self._authorization = _read_authorization(config.key_env)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/messages", self.message)
        app.router.add_get("/v1/models", self.list_models)
        app.router.add_post("/api/generate", self.unload)
        self.batches.add_routes(app.router)
        app.router.add_get("/", self.page)
        app.router.add_get("/counters", self.show_counters)
        app.router.add_post("/counters/reset", self.reset)
        app.router.add_post("/faults", self.change_faults)
        return app

    # The model API ---------------------------------------------------------------------------------------------------

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Handle POST /v1/chat/completions."""
        return await self._handle(request, await request.read())

    async def message(self, request: web.Request) -> web.StreamResponse:
        """Handle POST /v1/messages of Anthropic's API."""
        try:
            body = json.dumps(convert_parameters(json.loads(await request.read()))).encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            body = b"{}"
        return await self._handle(request, body)

    async def _handle(self, request: web.Request, body: bytes) -> web.StreamResponse:
        """Answer a request in OpenAI's format. The address of the request decides on the format of the answer."""
        self.counters.arrive()
        try:
            # Raise SimulatedRefusal for a wrong key, or for a request beyond the limits.
            self._check_key(request)
            limit = self.config.max_in_flight
            if limit is not None and self.counters.in_flight >= limit:
                raise SimulatedRefusal(429, f"The server is overloaded: {limit} requests are in flight.", "overloaded")
            if not self._minute.admit(self.config.rpm):
                raise SimulatedRefusal(429, f"Rate limit reached: {self.config.rpm} requests a minute.")
            chat = self._read(body)
        except SimulatedRefusal as refusal:
            self.counters.turned_away[str(refusal.status)] += 1
            return self._refuse(refusal)
        self.counters.enter()
        try:
            return await self._answer(request, chat)
        except SimulatedRefusal as refusal:
            return self._refuse(refusal)
        finally:
            self.counters.leave()

    def find_refusal(self, request: web.Request) -> web.Response | None:
        """Return the error response of a batch request with a wrong key, or None."""
        try:
            self._check_key(request)
        except SimulatedRefusal as refusal:
            return self._refuse(refusal)
        return None

    def _check_key(self, request: web.Request) -> None:
        """Raise SimulatedRefusal for a wrong key, in a bearer token or in the header of Anthropic's clients."""
        if self._authorization is None:
            return
        authorization = request.headers.get("Authorization") or f"Bearer {request.headers.get('x-api-key', '')}"
        if not hmac.compare_digest(authorization.encode(), self._authorization):
            raise SimulatedRefusal(401, "Incorrect API key provided.")

    def _read(self, body: bytes) -> ChatRequest:
        try:
            chat = read_chat(body)
        except UnreadableRequest as error:
            raise SimulatedRefusal(400, str(error)) from None
        if not self.config.json_schema and chat.response_format.get("type") == "json_schema":
            raise SimulatedRefusal(400, "Invalid parameter: 'response_format' of type 'json_schema' is not supported.")
        return chat

    async def _answer(self, request: web.Request, chat: ChatRequest) -> web.StreamResponse:
        fault, repetition = self._count_request(chat)
        if chat.model in self._stalled:
            delay = STALLED_S
        else:
            delay = draw_latency(self.config, fault, chat.fingerprint, repetition)
        if fault is not None and (refusal := _build_refusal(fault)):
            await _sleep(delay)
            raise refusal
        reply = await self._create_reply(chat, fault, delay)
        return await self._send(request, chat, reply, fault)

    def _count_request(self, chat: ChatRequest) -> tuple[str | None, int]:
        """Count a request. Return its fault and the number of earlier equal requests."""
        self.counters.models[chat.model] += 1
        repetition = self.counters.count_request(chat.fingerprint)
        fault = choose_fault(self.config.faults, self.config.seed, chat.fingerprint, repetition)
        if fault is not None:
            self.counters.faults[fault] += 1
        return fault, repetition

    async def answer_one(self, body: bytes) -> tuple[int, ChatRequest | None, Reply | dict[str, object]]:
        """Return the result of one call of a batch, without latency: its status, and a reply or an error body."""
        try:
            chat = self._read(body)
            fault, _ = self._count_request(chat)
            if fault is not None and (refusal := _build_refusal(fault)):
                raise refusal
            reply = await self._create_reply(chat, fault, 0.0)
        except SimulatedRefusal as refusal:
            return refusal.status, None, refusal.body
        self.counters.count_answer(chat.fingerprint)
        return 200, chat, reply

    async def _create_reply(self, chat: ChatRequest, fault: str | None, delay: float) -> Reply:
        """Return the recorded or simulated reply after its latency. Raise SimulatedRefusal for a recorded error."""
        if self.recordings is None:
            await _sleep(delay)
            answer = self.answerer.answer(chat)
            return Reply(answer.content, reasoning=answer.reasoning).truncate(chat.max_tokens).apply_fault(fault)
        recorded = self.recordings.find(chat)
        if recorded is None:
            await _sleep(delay)
            raise SimulatedRefusal(404, "no recorded answer", "no_recorded_answer")
        is_timed = recorded.latency_ms is not None and fault != "slow"
        await _sleep((recorded.latency_ms or 0.0) / 1000 if is_timed else delay)
        if recorded.status != 200:
            raise SimulatedRefusal(recorded.status, recorded.error)
        return build_reply(recorded).apply_fault(fault)

    async def _send(
        self, request: web.Request, chat: ChatRequest, reply: Reply, fault: str | None
    ) -> web.StreamResponse:
        is_message, name = request.path.endswith("/messages"), self.config.served_name
        if chat.is_stream:
            has_choices = fault != "no_choices"
            events = (
                list_message_events(chat, reply, name)
                if is_message
                else list_chunks(chat, reply, name, has_choices=has_choices)
            )
            return await self._stream(request, chat, list(events), fault)
        if is_message:
            body = json.dumps(build_message(chat, reply, name)).encode()
        else:
            body = build_completion(chat, reply, name, has_choices=fault != "no_choices")
        if fault == "cut":
            self.counters.statuses["cut"] += 1
            # Send half of the announced body and close the connection.
            response = web.StreamResponse(
                headers={"Content-Type": "application/json", "Content-Length": str(len(body))}
            )
            await response.prepare(request)
            await response.write(body[: len(body) // 2])
            if request.transport is not None:
                request.transport.close()
            return response
        if fault == "malformed":
            body = body[: len(body) // 2]
        self.counters.statuses["200"] += 1
        self.counters.count_answer(chat.fingerprint)
        return web.Response(body=body, content_type="application/json", headers=self._rate_limit_headers())

    async def _stream(
        self, request: web.Request, chat: ChatRequest, events: list[bytes], fault: str | None
    ) -> web.StreamResponse:
        """Send events one by one. A `cut` stream ends after half of them, a `malformed` one has half of an event."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **self._rate_limit_headers()})
        await response.prepare(request)
        half = len(events) // 2
        for n, event in enumerate(events):
            if fault == "cut" and n == half:
                self.counters.statuses["cut"] += 1
                if request.transport is not None:
                    request.transport.close()
                return response
            await response.write(event[: len(event) // 2] + b"\n\n" if fault == "malformed" and n == half else event)
            await _sleep(self.config.event_ms / 1000)
        self.counters.statuses["200"] += 1
        self.counters.count_answer(chat.fingerprint)
        await response.write_eof()
        return response

    def _rate_limit_headers(self) -> dict[str, str]:
        """Return OpenAI's rate headers: remaining requests in this minute, and the time until the oldest expires."""
        if self.config.rpm is None:
            return {}
        remaining, reset_s = self._minute.count_remaining(self.config.rpm)
        return {"x-ratelimit-remaining-requests": str(remaining), "x-ratelimit-reset-requests": f"{reset_s:.3f}s"}

    def _refuse(self, refusal: SimulatedRefusal) -> web.Response:
        self.counters.statuses[str(refusal.status)] += 1
        headers = self._rate_limit_headers()
        if refusal.status == 429 and self.config.retry_after_s is not None:
            headers["Retry-After"] = f"{self.config.retry_after_s:g}"
        return web.json_response(refusal.body, status=refusal.status, headers=headers)

    async def list_models(self, request: web.Request) -> web.Response:
        """Handle GET /v1/models: list the configured, recorded and requested models."""
        if refusal := self.find_refusal(request):
            return refusal
        recorded = self.recordings.models if self.recordings else {}
        served = [self.config.served_name] if self.config.served_name else []
        names = dict.fromkeys([*served, *self.config.skills, *recorded, *self.counters.models])
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "simulator"} for name in names]
        return web.json_response({"object": "list", "data": models})

    async def unload(self, request: web.Request) -> web.Response:
        """Handle POST /api/generate with keep_alive 0, as in Ollama: unload the model, so that it stops stalling."""
        payload = json.loads(await request.read())
        if payload.get("keep_alive") != 0 or payload.get("prompt"):
            return web.json_response(build_error(400, "Only keep_alive 0 without a prompt is supported."), status=400)
        model = str(payload.get("model"))
        self.counters.unloaded[model] += 1
        self._stalled.discard(model)
        return web.json_response({"model": model, "response": "", "done": True, "done_reason": "unload"})

    # Monitoring and control ------------------------------------------------------------------------------------------

    async def page(self, _request: web.Request) -> web.Response:
        """Handle GET /: show the counters as a page."""
        return web.Response(text=render_counters(self.counters.as_dict()), content_type="text/html")

    async def show_counters(self, _request: web.Request) -> web.Response:
        """Handle GET /counters: return the counters as JSON."""
        return web.json_response(self.counters.as_dict())

    async def reset(self, _request: web.Request) -> web.Response:
        """Handle POST /counters/reset: reset counters, recordings and the sequence of faults, and delete batches."""
        self.counters = self.counters.reset()
        self.batches.reset()
        if self.recordings is not None:
            self.recordings.restart()
        return web.json_response(self.counters.as_dict())

    async def change_faults(self, request: web.Request) -> web.Response:
        """Handle POST /faults: change faults, latency and limits. Invalid input gets a 400."""
        try:
            self.config = change_config(self.config, json.loads(await request.read()))
        except (ConfigError, ValueError, TypeError, AttributeError) as error:
            return web.json_response(build_error(400, str(error)), status=400)
        settings = {name: getattr(self.config, name) for name in _RUNTIME_SETTINGS}
        return web.json_response({"errors": dict(self.config.faults), **settings})


def change_config(config: SimulatorConfig, settings: dict[str, Any]) -> SimulatorConfig:
    """Return the configuration with these settings.

    They are `errors` (mapping or "429=0.1,..."), `error_rate`, and the runtime settings.
    """
    valid = ("errors", "error_rate", *_BATCH_SETTINGS, *_RUNTIME_SETTINGS)
    unknown = sorted(settings.keys() - set(valid))
    if unknown:
        raise ConfigError(f"unknown setting {unknown[0]!r}; valid settings: {', '.join(valid)}")
    changes: dict[str, Any] = {name: dict(settings[name]) for name in _BATCH_SETTINGS if name in settings}
    changes |= {name: settings[name] for name in _RUNTIME_SETTINGS if name in settings}
    if "errors" in settings or "error_rate" in settings:
        errors = settings.get("errors") or {}
        rates = parse_pairs(errors, "errors") if isinstance(errors, str) else {k: float(v) for k, v in errors.items()}
        changes["faults"] = {**spread_error_rate(float(settings.get("error_rate") or 0.0)), **rates}
    return replace(config, **changes)


def _build_refusal(fault: str) -> SimulatedRefusal | None:
    """Return the error response of a fault, or None if the fault is not an error."""
    if fault.isdigit():
        return SimulatedRefusal(int(fault), f"Simulated error {fault}.")
    if fault == "content_filter":
        return SimulatedRefusal(400, "The request was rejected by the content management policy.", "content_filter")
    return None


def _read_authorization(key_env: str | None) -> bytes | None:
    if key_env is None:
        return None
    key = os.environ.get(key_env)
    if not key:
        raise ConfigError(f"--require-key: the environment variable {key_env} is not set")
    return f"Bearer {key}".encode()


async def _sleep(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class RunningSimulator:
    """A listening server. `simulator` is its state."""

    simulator: Simulator
    host: str
    port: int
    runner: web.AppRunner

    @property
    def root(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Return the base URL for a client of OpenAI's API."""
        return f"{self.root}/v1"

    async def stop(self) -> None:
        """Stop listening, wait briefly for answers in progress, and close."""
        await self.runner.cleanup()


async def start(config: SimulatorConfig) -> RunningSimulator:
    """Start a server on the running loop. Raise ConfigError for unusable files, OSError if the port is in use."""
    simulator = Simulator(config)
    runner = web.AppRunner(
        simulator.application(), access_log=None, handler_cancellation=True, shutdown_timeout=GRACE_S
    )
    await runner.setup()
    site = web.TCPSite(runner, config.host, config.port, backlog=BACKLOG, reuse_address=True)
    await site.start()
    port = runner.addresses[0][1]
    return RunningSimulator(simulator, config.host, port, runner)


async def _serve(config: SimulatorConfig) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    running = await start(config)
    print(f"listening on {running.url}", flush=True)
    await stopping.wait()
    await running.stop()


def run(config: SimulatorConfig) -> None:
    """Serve until SIGTERM or SIGINT."""
    run_in_fast_loop(_serve(config))
