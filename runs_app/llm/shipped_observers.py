"""The call observers that the site ships: a span of OpenTelemetry or a line in the log for every call.

Set `EVALSITE_CALL_OBSERVER` to `runs_app.llm.shipped_observers.record_span` or
`runs_app.llm.shipped_observers.log_call`. Both state the trace id of the call, which its attempt has too. Neither
states any text of a request or an answer.
"""

from __future__ import annotations

import functools
import logging
import time
from multiprocessing.util import Finalize
from typing import Any

from runs_app.llm.call_observer import Outcome
from runs_app.llm.calls import CallFailure, CallRequest

logger = logging.getLogger("evalsite.calls")


def describe_call(request: CallRequest, outcome: Outcome) -> dict[str, Any]:
    """Return the known facts of a call, by the names of OpenTelemetry's conventions for generative AI."""
    facts: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": request.provider,
        "gen_ai.request.model": request.model,
        "evalsite.trace_id": outcome.trace_id,
        "evalsite.latency_ms": outcome.latency_ms,
        "evalsite.cost_usd": None if outcome.cost_usd is None else float(outcome.cost_usd),
        "evalsite.served_provider": outcome.served_provider or None,
    }
    if isinstance(outcome, CallFailure):
        facts |= {"error.type": str(outcome.error_class), "http.response.status_code": outcome.http_status}
    else:
        facts |= {
            "gen_ai.response.id": outcome.response_id or None,
            "gen_ai.response.model": outcome.served_model or None,
            "gen_ai.response.finish_reasons": [outcome.finish_reason] if outcome.finish_reason else None,
            "gen_ai.usage.input_tokens": outcome.input_tokens,
            "gen_ai.usage.output_tokens": outcome.output_tokens,
        }
    return {name: value for name, value in facts.items() if value is not None}


def log_call(request: CallRequest, outcome: Outcome) -> None:
    """Log a call. With `EVALSITE_LOG_FORMAT=json`, its facts are fields of the line."""
    facts = describe_call(request, outcome)
    ending = facts.get("error.type", "answered")
    logger.info(
        "%s at %s: %s, trace %s", request.model, request.provider, ending, outcome.trace_id, extra={"facts": facts}
    )


def record_span(request: CallRequest, outcome: Outcome) -> None:
    """Record a call as a span, and send it to the collector of the OTEL_EXPORTER_OTLP_... variables."""
    from opentelemetry.trace import SpanKind, Status, StatusCode

    ended_at = time.time_ns()
    span = get_tracer().start_span(
        f"chat {request.model}",
        kind=SpanKind.CLIENT,
        attributes=describe_call(request, outcome),
        start_time=ended_at - (outcome.latency_ms or 0) * 1_000_000,
    )
    if isinstance(outcome, CallFailure):
        span.set_status(Status(StatusCode.ERROR, outcome.message))
    span.end(ended_at)


@functools.cache
def get_tracer() -> Any:
    """Return the tracer of this process. It sends spans in batches, and the last ones when the process ends."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # The name of OTEL_SERVICE_NAME, if it is set, is preferred.
    provider = TracerProvider(resource=Resource({SERVICE_NAME: "evalsite"}).merge(Resource.create()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    # Not atexit, as in `call_observer`, and after the calls that wait there.
    Finalize(None, provider.shutdown, exitpriority=-1)
    return provider.get_tracer("evalsite")
