"""The gateway: addresses of an experiment with the APIs of OpenAI and Anthropic, for harnesses, agents and notebooks.

Every call is admitted, reserved and recorded as a trial of stage external (`runs_app/engine/external_calls.py`). Its
request is passed on to the model's provider (`runs_app/llm/forwarding.py`). The program holds an access token for this
one experiment and no key. Errors have the form of the API that the program used.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.views.decorators.http import require_POST, require_safe

from evalsite.api import reach
from evalsite.lib.ops.web_connections import PageThreads
from evalsite.lib.text.hashing import hash_content
from evalsite.lib.web.problem_responses import make_gateway_error
from runs_app.engine.external_calls import (
    EndedCall,
    ExternalRequest,
    NotAdmitted,
    begin_call,
    find_cached_call,
    finish_call,
)
from runs_app.engine.requests import build_target
from runs_app.engine.response_cache import build_cached_reply
from runs_app.llm.calls import CallFailure, CallRequest
from runs_app.llm.external_requests import (
    RequestRefused,
    check_request,
    clean,
    compute_bounds,
    describe_messages,
    find_session,
)
from runs_app.llm.forwarding import EVENT_STREAM, ForwardedExchange, read_forwarded
from runs_app.llm.gateway import resolve_access
from runs_app.llm.providers import PROVIDERS
from runs_app.models import Experiment, ExternalCall, LanguageModel, Run
from runs_app.planning.external_runs import get_or_create_external_run

OPENAI, ANTHROPIC = ExternalCall.Form.OPENAI, ExternalCall.Form.ANTHROPIC
PATHS: dict[str, str] = {OPENAI: "/chat/completions", ANTHROPIC: "/v1/messages"}
MAX_WAIT_S = 20.0  # How long a call waits for a slot, a rate or the end of other calls before it is refused.
PASSED_HEADERS = ("retry-after", "retry-after-ms", "x-request-id", "request-id")
KEPT_S = 1.0
CACHE_HEADER, SESSION_HEADER = "Evalsite-Cache", "Evalsite-Session"


class Refused(Exception):
    """A call that is not made. `status` and `code` are those of the provider's API."""

    def __init__(self, status: int, message: str, code: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.retry_after_s = status, message, code, retry_after_s


@require_safe
def gateway_models(request: HttpRequest, slug: str) -> HttpResponse:
    """List the models of the experiment that programs may call."""
    try:
        models = _list_models(_get_experiment(request, slug))
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
    try:
        call, payload = _read_call(request, _get_experiment(request, slug), form)
        if request.headers.get(CACHE_HEADER, "").lower() == "reuse":
            cached = _answer_from_cache(call, is_stream=payload.get("stream", False))
            if cached is not None:
                return cached
        return _forward(request, call, payload)
    except Refused as refusal:
        return _refuse(request, refusal)


def _get_experiment(request: HttpRequest, slug: str) -> Experiment:
    """Return the experiment of the request's token. Raise Refused for every other token, and for a session."""
    token = reach.get_token(request)
    if token is None or not token.permits(reach.RUN) or token.experiment_id is None:
        raise Refused(403, "Send an access token for this experiment with the permissions run.", "forbidden")
    if token.experiment.slug != slug or not Experiment.objects.editable_by(request.user).filter(slug=slug).exists():
        raise Refused(404, "There is no such experiment, or your token does not reach it.", "not_found")
    experiment: Experiment = token.experiment
    if experiment.status == Experiment.Status.ARCHIVED or experiment.imported_from:
        raise Refused(409, f"The experiment {experiment} is archived or imported and makes no calls.", "conflict")
    return experiment


def _list_models(experiment: Experiment) -> list[LanguageModel]:
    models = experiment.language_models.filter(is_active=True, endpoint__is_active=True)
    return list(models.select_related("endpoint").order_by("name"))


def _read_call(request: HttpRequest, experiment: Experiment, form: str) -> tuple[ExternalRequest, dict[str, Any]]:
    """Return the call with its bounds, and the request's content. Raise Refused if it cannot be passed on."""
    try:
        content = json.loads(request.body, parse_constant=_refuse_constant)
        name = content.get("model") if isinstance(content, dict) else None
        run = _find_run(experiment, name) if isinstance(name, str) else None
        if isinstance(name, str) and run is None:
            raise Refused(404, f"The experiment {experiment} has no model {clean(name[:80])!r}.", "model_not_found")
        has_price = run is not None and run.condition.model.cache_write_price is not None
        payload = check_request(content, form, has_budget=experiment.max_usd is not None, has_write_price=has_price)
        if run is None:
            raise RequestRefused("model: name a model of the experiment")
        return _build_call(request, run, form, payload), payload
    except (RequestRefused, ValueError, RecursionError) as problem:
        text = str(problem) if isinstance(problem, RequestRefused) else "the body must be JSON in UTF-8, not too deep"
        raise Refused(400, text, "invalid_request_error") from None


def _refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which are no JSON and which the database cannot store."""
    raise ValueError(name)


def _build_call(request: HttpRequest, run: Run, form: str, payload: dict[str, Any]) -> ExternalRequest:
    """Return the call with its bounds. Raise RequestRefused if its model has another API, or it has no bound."""
    model, token = run.condition.model, reach.get_token(request)
    experiment = token.experiment
    provider = PROVIDERS[model.endpoint.provider]
    speaks = OPENAI if provider.speaks_openai else provider.name
    if speaks != form:
        how = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}.get(speaks)
        advice = f"call {how}" if how else "connect its server as an endpoint with OpenAI's API"
        raise RequestRefused(f"The endpoint of {model} has another API; {advice}.")
    n_input, n_output = compute_bounds(payload, model.model, model.max_output_tokens)
    identity = [experiment.pk, form, provider.name, model.model, {**payload, "model": "", "user": ""}]
    call = ExternalRequest(
        run=run,
        form=form,
        session=find_session(payload, request.headers.get(SESSION_HEADER, "")),
        token=str(token),
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


_runs: dict[tuple[int, str], tuple[float, Run]] = {}


def _find_run(experiment: Experiment, name: str) -> Run | None:
    """Return the run of the experiment's model with this name or provider's ID, with its design, or None.

    A process keeps it for a second, because reading these rows takes as long as the rest of a call. Pauses, limits and
    the budget are read at each call; a changed price or address applies after this second.
    """
    now = time.monotonic()
    kept = _runs.get((experiment.pk, name))
    if kept is not None and now - kept[0] < KEPT_S:
        return kept[1]
    model = next((one for one in _list_models(experiment) if name in (one.name, one.model)), None)
    if model is None:
        return None
    run = get_or_create_external_run(experiment, model)
    for key in [key for key, (at, _) in list(_runs.items()) if now - at >= KEPT_S]:
        _runs.pop(key, None)
    _runs[experiment.pk, name] = now, run
    return run


def _answer_from_cache(call: ExternalRequest, *, is_stream: bool) -> HttpResponse | None:
    """Return the recorded reply to an equal request of this experiment, and record the reuse; None without one."""
    trial = find_cached_call(call.cache_key)
    if trial is None:
        return None
    body = trial.external_call.reply.encode()
    claim = begin_call(call, is_cached=True)
    finish_call(EndedCall(claim, body, build_cached_reply(trial), from_cache=True))
    response = HttpResponse(body, content_type=EVENT_STREAM if is_stream else "application/json")
    response[CACHE_HEADER] = "reused"
    return response


def _forward(
    request: HttpRequest, call: ExternalRequest, payload: dict[str, Any]
) -> HttpResponse | StreamingHttpResponse:
    """Make the call, and return its reply: whole, or as it arrives."""
    if not PageThreads.calls.acquire(blocking=False):
        raise Refused(429, "The gateway has as many calls in flight as it can hold. Try again.", "rate_limited", 2)
    is_streamed = False
    try:
        exchange, url, headers, body = _prepare(call, payload)
        claim = _admit(request, call)
        with _lend_thread(request):
            exchange.start(url, body, headers)
        if exchange.is_stream and exchange.status == 200:
            is_streamed = True
            wants_usage = bool((payload.get("stream_options") or {}).get("include_usage")) or call.form == ANTHROPIC
            pieces = _stream(request, call, claim, exchange, wants_usage=wants_usage)
            response = StreamingHttpResponse(pieces, content_type=EVENT_STREAM)
            response["Cache-Control"] = "no-cache"
            response["Content-Encoding"] = "identity"  # No compression, which would hold events back.
            return response
        with _lend_thread(request):
            reply = b"".join(exchange.iterate())
        failure = _record(call, claim, exchange)
        return _pass_on(request, exchange, reply, failure)
    finally:
        if not is_streamed:
            PageThreads.calls.release()


def _prepare(call: ExternalRequest, payload: dict[str, Any]) -> tuple[ForwardedExchange, str, dict[str, str], bytes]:
    """Return the exchange with its address, headers and body. Raise Refused if the endpoint cannot be called."""
    model, experiment = call.run.condition.model, call.run.experiment
    target = build_target(model, experiment.request_timeout_s)
    call_request = CallRequest(
        provider=target.provider,
        model=target.model,
        base_url=target.base_url,
        key_env=target.key_env,
        messages=[],
        timeout_s=target.timeout_s,
        is_free=target.is_free,
        prices=target.prices,
        max_output_tokens=target.max_output_tokens,
        allowed_host=target.allowed_host,
    )
    try:
        url, key = resolve_access(call_request)
    except CallFailure as failure:
        raise Refused(502, f"The endpoint of {model} cannot be called: {failure.message}", "bad_gateway") from None
    sent = {**payload, "model": model.model}
    if call.form == OPENAI and payload.get("stream"):
        sent["stream_options"] = {**(payload.get("stream_options") or {}), "include_usage": True}
    elif call.form == OPENAI:
        sent.pop("stream_options", None)
    limit = call.output_tokens
    if not any(name in sent for name in ("max_tokens", "max_completion_tokens")) and limit is not None:
        needs = PROVIDERS[target.provider].needs_output_limit
        sent |= {"max_tokens": limit} if needs else {}
    headers = {"Content-Type": "application/json", **PROVIDERS[target.provider].models_headers(key)}
    return ForwardedExchange(call_request, key), url + PATHS[call.form], headers, json.dumps(sent).encode()


def _admit(request: HttpRequest, call: ExternalRequest) -> Any:
    """Return the claim of the call. Wait if it may start soon. Raise Refused if it may not."""
    deadline, wait_s = time.monotonic() + MAX_WAIT_S, 0.02
    while True:
        try:
            return begin_call(call)
        except NotAdmitted as reason:
            left_s = deadline - time.monotonic()
            if not reason.may_start_later or (reason.retry_after_s or 0) > left_s or left_s <= 0:
                raise _translate(reason) from None
        with _lend_thread(request):
            time.sleep(min(wait_s * random.uniform(0.5, 1), left_s))  # noqa: S311 - jitter
        wait_s = min(wait_s * 1.6, 0.5)


def _translate(reason: NotAdmitted) -> Refused:
    message = f"{str(reason)[:1].upper()}{str(reason)[1:]}."
    if reason.is_over_budget and not reason.may_start_later:
        return Refused(402, message, "insufficient_quota")
    if reason.may_start_later:
        return Refused(429, message, "rate_limited", reason.retry_after_s or 5)
    return Refused(409, message, "conflict")


def _stream(
    request: HttpRequest, call: ExternalRequest, claim: Any, exchange: ForwardedExchange, *, wants_usage: bool
) -> Iterator[bytes]:
    """Yield the stream as it arrives, and record the call when it ends.

    If the program leaves early, read the stream to its end: the provider bills it, and its tokens come last.
    """
    pieces = exchange.iterate()
    try:
        while True:
            with _lend_thread(request):
                piece = next(pieces, None)
            if piece is None:
                break
            yield piece if wants_usage else _without_usage(piece)
    finally:
        with _lend_thread(request):
            for _ in pieces:
                pass
        try:
            _record(call, claim, exchange)
        finally:
            PageThreads.calls.release()


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


def _record(call: ExternalRequest, claim: Any, exchange: ForwardedExchange) -> CallFailure | None:
    """Record the call, and return its failure or None."""
    try:
        reply = read_forwarded(exchange, call.form)
    except CallFailure as failure:
        finish_call(EndedCall(claim, exchange.body, failure=failure))
        return failure
    finish_call(EndedCall(claim, exchange.body, reply, cache_key=call.cache_key))
    return None


def _pass_on(
    request: HttpRequest, exchange: ForwardedExchange, reply: bytes, failure: CallFailure | None
) -> HttpResponse:
    """Return the provider's reply. An error that concerns the lab's key or address is the gateway's own."""
    status = exchange.status
    if status is None or status in (401, 403) or 300 <= status < 400:
        message = failure.message if failure else "no reply"
        timed_out = failure is not None and failure.error_class == "timeout"
        return _refuse(request, Refused(504 if timed_out else 502, f"The provider failed: {message}", "bad_gateway"))
    if failure is not None and not reply.lstrip().startswith(b"{"):
        return _refuse(request, Refused(status, failure.message, "api_error"))
    response = HttpResponse(reply, status=status, content_type="application/json")
    for name in PASSED_HEADERS:
        if name in exchange.headers:
            response[name] = exchange.headers[name].splitlines()[0]
    return response


def _refuse(request: HttpRequest, refusal: Refused) -> HttpResponse:
    response = make_gateway_error(request, refusal.status, refusal.message, refusal.code)
    if refusal.retry_after_s is not None:
        response["Retry-After"] = str(max(1, round(refusal.retry_after_s)))
    return response


def _lend_thread(request: HttpRequest) -> AbstractContextManager[None]:
    """Return a context in which the thread waits for a model, and its slot serves another page."""
    threads = getattr(request.META.get("gunicorn.socket"), "page_threads", None)
    return threads.lend_to_call() if threads else nullcontext()
