"""The shipped call observers: spans for a collector, and lines of the log, both with the trace id of the attempt."""

import gzip
import json
import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.test import override_settings
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evalsite.lib.ops import environment
from evalsite.lib.ops.json_log import JsonFormatter
from runs_app.llm import call_observer, shipped_observers
from tests.factories.http_servers import serve
from tests.integration.gateway.gateway_calls import get_failure, make_call, make_request


@pytest.fixture
def collector(monkeypatch):
    """Return the spans that a collector on loopback receives over OTLP."""
    spans = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with serve(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        shipped_observers.get_tracer.cache_clear()
        yield spans
        shipped_observers.get_tracer.cache_clear()


@pytest.fixture
def observe():
    """Return a function that makes calls with a shipped observer and waits for it."""

    def run(name, *calls):
        path = f"runs_app.llm.shipped_observers.{name}"
        with override_settings(CALL_OBSERVER=path):
            outcomes = [call() for call in calls]
            call_observer.get_observer_queue(path).wait()
        call_observer.get_observer_queue.cache_clear()
        return outcomes

    return run


def read_attributes(span):
    kinds = {entry.key: entry.value for entry in span.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in kinds.items()}


def test_each_call_becomes_a_span_with_the_trace_id_of_its_attempt(simulator, collector, observe):
    def fail():
        simulator.set_faults(errors="500=1")
        return get_failure(make_request(simulator.url))

    reply, failure = observe("record_span", lambda: make_call(make_request(simulator.url, "What is 3 + 4?")), fail)
    shipped_observers.get_tracer().span_processor.force_flush()
    answered, failed = collector
    attributes = read_attributes(answered)
    assert attributes["evalsite.trace_id"] == reply.trace_id
    assert attributes["gen_ai.usage.input_tokens"] == reply.input_tokens
    assert attributes["gen_ai.usage.output_tokens"] == reply.output_tokens
    assert round((answered.end_time_unix_nano - answered.start_time_unix_nano) / 1e6) == reply.latency_ms
    assert read_attributes(failed)["evalsite.trace_id"] == failure.trace_id
    assert read_attributes(failed)["error.type"] == "server_error"
    assert failed.status.code == failed.status.STATUS_CODE_ERROR
    assert "3 + 4" not in str(answered), "the texts of a study stay on the site"


def test_a_logged_call_is_one_line_of_json_with_its_facts(simulator, observe, caplog):
    with caplog.at_level(logging.INFO, "evalsite.calls"):
        (reply,) = observe("log_call", lambda: make_call(make_request(simulator.url, "What is 3 + 4?")))
    (record,) = [record for record in caplog.records if record.name == "evalsite.calls"]
    line = JsonFormatter().format(record)
    assert "\n" not in line
    fields = json.loads(line)
    assert fields["evalsite.trace_id"] == reply.trace_id
    assert (fields["level"], fields["logger"]) == ("INFO", "evalsite.calls")
    assert "3 + 4" not in line


def test_an_error_in_the_log_has_its_traceback_in_the_same_line():
    try:
        raise ValueError("of no use")
    except ValueError as error:
        reason = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("evalsite", logging.ERROR, "", 1, "broken: %s", ("x",), reason)
    fields = json.loads(JsonFormatter().format(record))
    assert fields["message"] == "broken: x"
    assert "ValueError: of no use" in fields["exception"]


def test_another_format_of_logs_is_refused():
    assert environment.read_choice("X", ("text", "json"), {}) == "text"
    with pytest.raises(environment.SettingError, match="X must be one of text, json, not 'xml'"):
        environment.read_choice("X", ("text", "json"), {"X": "xml"})
