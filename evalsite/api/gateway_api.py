"""The gateway: addresses of an experiment with the APIs of OpenAI and Anthropic, for harnesses, agents and notebooks.

Every call is admitted, reserved and recorded as a trial of stage external (`runs_app/engine/external_calls.py`). Its
request is passed on to the model's provider (`runs_app/llm/forwarded_exchange.py`). The program holds an access token
for this one experiment and no key. Errors have the form of the API that the program used.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.views.decorators.http import require_POST, require_safe

from evalsite.api import reach
from evalsite.api.kept_values import KeptValues
from evalsite.api.model_routes import Route, find_route, list_models
from evalsite.lib.text.hashing import hash_content
from evalsite.lib.web.problem_responses import build_gateway_error, make_gateway_error
from runs_app.engine.admission import Claim
from runs_app.engine.external_calls import EndedCall, ExternalRequest, NotAdmitted, find_cached_call
from runs_app.engine.external_queue import Executors, ExternalQueue
from runs_app.engine.recovery import OUTAGES
from runs_app.engine.response_cache import build_cached_reply
from runs_app.llm.calls import CallFailure
from runs_app.llm.external_requests import (
    RequestRefused,
    check_request,
    clean,
    compute_bounds,
    describe_messages,
    find_session,
)
from runs_app.llm.forwarded_exchange import EVENT_STREAM, ForwardedExchange, read_forwarded
from runs_app.llm.http_transport import close_session
from runs_app.llm.providers import PROVIDERS
from runs_app.models import ApiToken, Experiment, ExternalCall

logger = logging.getLogger("evalsite.gateway")

OPENAI, ANTHROPIC = ExternalCall.Form.OPENAI, ExternalCall.Form.ANTHROPIC
MAX_WAIT_S = 20.0  # How long a call waits for a slot, a rate or the end of other calls before it is refused.
PASSED_HEADERS = ("retry-after", "retry-after-ms", "x-request-id", "request-id")
CACHE_HEADER, SESSION_HEADER = "evalsite-cache", "evalsite-session"
JSON = "application/json"
ACCESS_ONLY = "evalsite.access_only"
"""The key of the WSGI environment by which the process of the gateway asks only for access."""


@dataclass(frozen=True, slots=True)
class Access:
    """The access of a program: its token, by key and public part, and the experiment that it reaches."""

    token_id: int
    token: str
    experiment: Experiment


@dataclass(slots=True)
class ProgramReply:
    """A reply to a program: a whole body, or pieces as they arrive."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    pieces: AsyncIterator[bytes] | None = None


class Refused(Exception):
    """A call that is not made. `status` and `code` are those of the provider's API."""

    def __init__(self, status: int, message: str, code: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.retry_after_s = status, message, code, retry_after_s

    def build_reply(self, form: str) -> ProgramReply:
        """Return the error in the form of the API that the program called."""
        headers = {"Content-Type": JSON}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, round(self.retry_after_s)))
        content = build_gateway_error(form == ANTHROPIC, self.status, self.message, self.code)
        return ProgramReply(self.status, headers, json.dumps(content).encode())


@require_safe
def gateway_models(request: HttpRequest, slug: str) -> HttpResponse:
    """List the models of the experiment that programs may call."""
    try:
        models = list_models(_get_access(request, slug).experiment)
    except Refused as refusal:
        return _refuse(request, refusal)
    rows = [
        {"id": model.name, "object": "model", "created": 0, "owned_by": model.endpoint.provider, "type": "model",
         "display_name": model.model}
        for model in models
    ]  # fmt: skip
    return JsonResponse({"object": "list", "data": rows, "has_more": False})


@require_POST
def gateway_chat(request: HttpRequest, slug: str) -> HttpResponse | StreamingHttpResponse:
    """Pass a chat completion of OpenAI's API on to a model of the experiment."""
    return _answer(request, slug, OPENAI)


@require_POST
def gateway_messages(request: HttpRequest, slug: str) -> HttpResponse | StreamingHttpResponse:
    """Pass a message of Anthropic's API on to a model of the experiment."""
    return _answer(request, slug, ANTHROPIC)


def _answer(request: HttpRequest, slug: str, form: str) -> HttpResponse | StreamingHttpResponse:
    """Answer the request within this thread, for web servers without the process of the gateway and for tests.

    The process of the gateway asks the same address for access, with all middleware, and then answers by itself.
    """
    try:
        access = _get_access(request, slug)
    except Refused as refusal:
        return _refuse(request, refusal)
    if request.META.get(ACCESS_ONLY):
        response = HttpResponse(status=204)
        response.access = access  # type: ignore[attr-defined]
        return response
    headers = {name.lower(): value for name, value in request.headers.items()}
    return answer_in_thread(lambda queue: answer_call(queue, access, form, headers, request.body))


def _get_access(request: HttpRequest, slug: str) -> Access:
    """Return the access of the request's token to this experiment. Raise Refused for other tokens and for a session."""
    token: ApiToken | None = reach.get_token(request)
    if token is None or not token.permits(reach.RUN) or token.experiment is None:
        raise Refused(403, "Send an access token for this experiment with the permissions run.", "forbidden")
    if token.experiment.slug != slug or not Experiment.objects.editable_by(request.user).filter(slug=slug).exists():
        raise Refused(404, "There is no such experiment, or your token does not reach it.", "not_found")
    experiment: Experiment = token.experiment
    if experiment.is_archived or experiment.imported_from:
        raise Refused(409, f"The experiment {experiment} is archived or imported and makes no calls.", "conflict")
    return Access(token.pk, str(token), experiment)


async def answer_call(
    queue: ExternalQueue, access: Access, form: str, headers: Mapping[str, str], body: bytes
) -> ProgramReply:
    """Make the call that a program asks for, and return the reply: whole, or as it arrives.

    `headers` are read by names in lower case.
    """
    try:
        route, call, payload = await _read_call(queue, access, form, headers, body)
        if headers.get(CACHE_HEADER, "").lower() == "reuse":
            while (trial := await queue.read(find_cached_call, call.cache_key)) is None:
                if (equal := queue.in_flight.get(call.cache_key)) is None:
                    break
                await asyncio.wait([equal])
                await queue.write()
            if trial is not None:
                claim = await queue.admit(replace(call, from_cache=True))
                reply = trial.external_call.reply.encode()
                queue.record(EndedCall(claim, reply, build_cached_reply(trial), from_cache=True).build_result())
                kind = EVENT_STREAM if payload.get("stream") else JSON
                return ProgramReply(200, {"Content-Type": kind, CACHE_HEADER: "reused"}, reply)
        return await _forward(queue, route, call, payload)
    except Refused as refusal:
        return refusal.build_reply(form)
    except OUTAGES:
        logger.exception("a call cannot be admitted")
        return Refused(503, "The site's database does not answer. Try again later.", "api_error", 5).build_reply(form)


# A process keeps the routes for some seconds, because reading their rows takes as long as the rest of a call. Pauses,
# limits and the budget are read at each call. A changed price, address or key applies after this time.
_kept_routes: KeptValues[Route | None] = KeptValues(lambda route: route is not None and not route.problem)


async def _read_call(
    queue: ExternalQueue, access: Access, form: str, headers: Mapping[str, str], body: bytes
) -> tuple[Route, ExternalRequest, dict[str, Any]]:
    """Return the route, the call with its bounds, and the request's content. Raise Refused if it is not passed on."""
    experiment = access.experiment
    try:
        content = json.loads(body, parse_constant=_refuse_constant)
        name = content.get("model") if isinstance(content, dict) else None
        route = None
        if isinstance(name, str):
            key = experiment.pk, name
            route = await _kept_routes.get(queue, key, lambda: queue.read(find_route, experiment, name))
            if route is None:
                raise Refused(404, f"The experiment {experiment} has no model {clean(name[:80])!r}.", "model_not_found")
        has_price = route is not None and route.model.cache_write_price is not None
        payload = check_request(content, form, has_budget=experiment.max_usd is not None, has_write_price=has_price)
        if route is None:
            raise RequestRefused("model: name a model of the experiment")
        return route, _build_call(access, route, form, headers, payload), payload
    except (RequestRefused, ValueError, RecursionError) as problem:
        text = str(problem) if isinstance(problem, RequestRefused) else "the body must be JSON in UTF-8, not too deep"
        raise Refused(400, text, "invalid_request_error") from None


def _refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which are no JSON and which the database cannot store."""
    raise ValueError(name)


def _build_call(
    access: Access, route: Route, form: str, headers: Mapping[str, str], payload: dict[str, Any]
) -> ExternalRequest:
    """Return the call with its bounds. Raise RequestRefused if its model has another API, or it has no bound."""
    model, experiment = route.model, access.experiment
    if route.form != form:
        how = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}.get(route.form)
        advice = f"call {how}" if how else "connect its server as an endpoint with OpenAI's API"
        raise RequestRefused(f"The endpoint of {model} has another API; {advice}.")
    n_input, n_output = compute_bounds(payload, model.model, model.max_output_tokens)
    identity = [experiment.pk, form, route.request.provider, model.model, {**payload, "model": "", "user": ""}]
    call = ExternalRequest(
        run=route.run,
        form=form,
        session=find_session(payload, headers.get(SESSION_HEADER, "")),
        token_id=access.token_id,
        token=access.token,
        messages=describe_messages(payload),
        parameters=clean({name: value for name, value in payload.items() if name not in ("model", "messages")}),
        input_tokens=n_input,
        output_tokens=n_output,
        cache_key=hash_content(["external", json.dumps(identity, sort_keys=True)]),
    )
    if experiment.max_usd is not None and call.ceiling_usd is None:
        missing = "max_tokens" if model.prices.is_known else "a price of the model"
        raise RequestRefused(f"The experiment has a budget, so the call needs {missing}.")
    return call


async def _forward(queue: ExternalQueue, route: Route, call: ExternalRequest, payload: dict[str, Any]) -> ProgramReply:
    """Make the call. It goes on to its end and is recorded, also when its program leaves: the provider bills it."""
    if route.problem:
        raise Refused(502, f"The endpoint of {route.model} cannot be called: {route.problem}", "bad_gateway")
    exchange, body = ForwardedExchange(route.request, route.key), _build_body(route, call, payload)
    ended = queue.in_flight[call.cache_key] = asyncio.get_running_loop().create_future()

    def end() -> None:
        ended.set_result(None)
        if queue.in_flight.get(call.cache_key) is ended:
            del queue.in_flight[call.cache_key]

    try:
        claim = await _admit(queue, call)
    except BaseException:
        end()
        raise

    async def make() -> CallFailure | None:
        try:
            await exchange.make(route.url, body, dict(route.headers))
            try:
                reply = read_forwarded(exchange, call.form)
            except CallFailure as failure:
                queue.record(EndedCall(claim, exchange.body, failure=failure).build_result())
                return failure
            queue.record(EndedCall(claim, exchange.body, reply, cache_key=call.cache_key).build_result())
            return None
        finally:
            exchange.pieces.put_nowait(None)
            end()

    made = queue.start(make())
    await exchange.head_arrived.wait()
    if not (exchange.is_stream and exchange.status == 200):
        return _build_reply(exchange, call.form, await asyncio.shield(made))

    async def list_pieces() -> AsyncIterator[bytes]:
        wants_usage = bool((payload.get("stream_options") or {}).get("include_usage")) or call.form == ANTHROPIC
        while (piece := await exchange.pieces.get()) is not None:
            yield piece if wants_usage else _without_usage(piece)

    # Without compression, which would hold events back.
    return ProgramReply(200, {"Content-Type": EVENT_STREAM, "Content-Encoding": "identity"}, pieces=list_pieces())


def _build_body(route: Route, call: ExternalRequest, payload: dict[str, Any]) -> bytes:
    """Return the body for the provider."""
    sent = {**payload, "model": route.model.model}
    if call.form == OPENAI and payload.get("stream"):
        sent["stream_options"] = {**(payload.get("stream_options") or {}), "include_usage": True}
    elif call.form == OPENAI:
        sent.pop("stream_options", None)
    limit = call.output_tokens
    if not any(name in sent for name in ("max_tokens", "max_completion_tokens")) and limit is not None:
        needs = PROVIDERS[route.request.provider].needs_output_limit
        sent |= {"max_tokens": limit} if needs else {}
    return json.dumps(sent).encode()


async def _admit(queue: ExternalQueue, call: ExternalRequest) -> Claim:
    """Return the claim of the call. Wait if it may start soon. Raise Refused if it may not."""
    deadline, wait_s = time.monotonic() + MAX_WAIT_S, 0.02
    while True:
        try:
            return await queue.admit(call)
        except NotAdmitted as reason:
            left_s = deadline - time.monotonic()
            if not reason.may_start_later or (reason.retry_after_s or 0) > left_s or left_s <= 0:
                raise _translate(reason) from None
        if await queue.flush(call):
            continue
        await asyncio.sleep(min(wait_s * random.uniform(0.5, 1), left_s))  # noqa: S311 - jitter
        wait_s = min(wait_s * 1.6, 0.5)


def _translate(reason: NotAdmitted) -> Refused:
    message = f"{str(reason)[:1].upper()}{str(reason)[1:]}."
    if reason.was_revoked:
        return Refused(401, message, "invalid_api_key")
    if reason.is_over_budget and not reason.may_start_later:
        return Refused(402, message, "insufficient_quota")
    if reason.may_start_later:
        return Refused(429, message, "rate_limited", reason.retry_after_s or 5)
    return Refused(409, message, "conflict")


def _without_usage(piece: bytes) -> bytes:
    """Return the lines of a stream without the event of the tokens, which the gateway asked for and not the program."""
    if b'"usage"' not in piece:
        return piece
    lines = piece.split(b"\n")
    return b"\n".join(line for line in lines if not (line.startswith(b"data:") and _is_usage_event(line[5:])))


def _is_usage_event(data: bytes) -> bool:
    try:
        event = json.loads(data)
    except ValueError:
        return False
    return isinstance(event, dict) and event.get("choices") == [] and event.get("usage") is not None


def _build_reply(exchange: ForwardedExchange, form: str, failure: CallFailure | None) -> ProgramReply:
    """Return the provider's reply. An error that concerns the lab's key or address is the gateway's own."""
    status = exchange.status
    if status is None or status in (401, 403) or 300 <= status < 400:
        message = failure.message if failure else "no reply"
        timed_out = failure is not None and failure.error_class == "timeout"
        refusal = Refused(504 if timed_out else 502, f"The provider failed: {message}", "bad_gateway")
        return refusal.build_reply(form)
    if failure is not None and not exchange.body.lstrip().startswith(b"{"):
        return Refused(status, failure.message, "api_error").build_reply(form)
    passed = {name: exchange.headers[name].splitlines()[0] for name in PASSED_HEADERS if name in exchange.headers}
    return ProgramReply(status, {"Content-Type": JSON, **passed}, exchange.body)


def _refuse(request: HttpRequest, refusal: Refused) -> HttpResponse:
    return make_gateway_error(request, refusal.status, refusal.message, refusal.code)


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
