"""Each provider gets requests in its own format, and its replies are read in that format."""

import pytest

from runs_app.llm.calls import CallRequest, ErrorClass
from tests.integration.gateway.fake_provider import FakeProvider, make_completion
from tests.integration.gateway.gateway_calls import SCHEMA, get_failure, make_call, make_request

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Rate this."},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ],
    },
]


def make_image_request(fake: FakeProvider, provider: str, model: str, path: str = "", **more: object) -> CallRequest:
    return make_request(
        fake.url + path, provider=provider, model=model, messages=MESSAGES, key_env="EVALSITE_KEY_LAB", **more
    )


@pytest.fixture(autouse=True)
def lab_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALSITE_KEY_LAB", "key-77")


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "openrouter"])
def test_a_request_has_openais_format(fake: FakeProvider, provider: str) -> None:
    parameters = {"temperature": 0.5, "max_tokens": 9, "seed": 3, "reasoning_effort": "low", "top_k": 4}
    make_call(make_image_request(fake, provider, "qwen/qwen3-vl", "/v1", parameters=parameters, response_format=SCHEMA))
    body = fake.last.body
    assert fake.last.path == "/v1/chat/completions"
    assert fake.last.headers["authorization"] == "Bearer key-77"
    assert body["model"] == "qwen/qwen3-vl"
    assert body["messages"] == MESSAGES
    assert {name: body[name] for name in parameters} == parameters
    assert body["response_format"] == SCHEMA
    assert "stream" not in body


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_a_model_name_keeps_a_prefix_that_equals_a_provider_name(fake: FakeProvider, provider: str) -> None:
    make_call(make_request(fake.url, provider=provider, model="openai/gpt-oss-20b"))
    assert fake.last.body["model"] == "openai/gpt-oss-20b"


def test_openai_reasoning_models_get_max_completion_tokens(fake: FakeProvider) -> None:
    make_call(make_request(fake.url, model="gpt-5-mini", parameters={"max_tokens": 9}))
    assert fake.last.body["max_completion_tokens"] == 9
    assert "max_tokens" not in fake.last.body


def test_openrouter_is_asked_to_report_the_cost(fake: FakeProvider) -> None:
    make_call(make_request(fake.url, provider="openrouter"))
    assert fake.last.body["usage"] == {"include": True}


def test_a_request_and_its_reply_have_anthropics_format(fake: FakeProvider) -> None:
    fake.reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": [{"type": "thinking", "thinking": "hmm", "signature": "s"}, {"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_read_input_tokens": 7,
            "cache_creation_input_tokens": 3,
        },
    }
    reply = make_call(
        make_image_request(fake, "anthropic", "claude-sonnet-4-5", parameters={"max_tokens": 9, "top_k": 4})
    )
    body = fake.last.body
    assert fake.last.path == "/v1/messages"
    assert fake.last.headers["x-api-key"] == "key-77"
    assert (body["model"], body["max_tokens"], body["top_k"]) == ("claude-sonnet-4-5", 9, 4)
    assert body["system"] == [{"type": "text", "text": "Be brief."}]
    assert body["messages"][0]["content"][1]["source"]["data"] == PIXEL
    assert (reply.text, reply.reasoning, reply.response_id) == ("hello", "hmm", "msg_1")
    assert (reply.input_tokens, reply.cache_read_tokens, reply.cache_write_tokens) == (20, 7, 3)
    assert reply.served_model == "claude-sonnet-4-5-20250929"
    assert f"{reply.cost_usd}" == "0.00011835", "3 and 15 dollars a million, 0.30 for reading a cache, 3.75 for writing"


def test_an_anthropic_refusal_is_recognized(fake: FakeProvider) -> None:
    fake.reply = {
        "id": "msg_2",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [],
        "stop_reason": "refusal",
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    assert make_call(make_request(fake.url, provider="anthropic", model="claude-sonnet-4-5")).refused


def test_a_parameter_that_the_provider_does_not_support_is_named_in_the_error(fake: FakeProvider) -> None:
    failure = get_failure(
        make_request(fake.url, provider="anthropic", model="claude-sonnet-4-5", parameters={"seed": 1})
    )
    assert failure.error_class == ErrorClass.BAD_REQUEST
    assert "seed" in failure.message
    assert "litellm" not in failure.message
    assert fake.requests == []


def test_a_request_and_its_reply_have_geminis_format(fake: FakeProvider) -> None:
    fake.reply = {
        "candidates": [{"content": {"parts": [{"text": "hello"}], "role": "model"}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 2,
            "totalTokenCount": 17,
        },
        "modelVersion": "gemini-2.5-flash-001",
        "responseId": "r1",
    }
    reply = make_call(
        make_image_request(fake, "gemini", "gemini-2.5-flash", "/v1beta", parameters={"max_tokens": 9, "seed": 3})
    )
    assert fake.last.path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert fake.last.headers["x-goog-api-key"] == "key-77"
    assert fake.last.body["generationConfig"] == {"max_output_tokens": 9, "seed": 3}
    assert fake.last.body["contents"][0]["parts"][1]["inline_data"] == {"data": PIXEL, "mime_type": "image/png"}
    assert (reply.text, reply.response_id, reply.served_model) == ("hello", "r1", "gemini-2.5-flash-001")
    assert (reply.input_tokens, reply.output_tokens, reply.reasoning_tokens) == (10, 7, 2)


def test_the_retry_delay_is_read_from_gemini_errors(fake: FakeProvider) -> None:
    fake.status = 429
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}]
    fake.reply = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": details}}
    failure = get_failure(make_request(fake.url, provider="gemini", model="gemini-2.5-flash"))
    assert (failure.error_class, failure.retry_after_s) == (ErrorClass.RATE_LIMITED, 17.0)


@pytest.mark.parametrize(("parameters", "think"), [({}, False), ({"reasoning_effort": "low"}, True)])
def test_a_request_has_ollamas_format_and_thinking_is_off_by_default(
    fake: FakeProvider, parameters: dict[str, object], think: bool
) -> None:
    fake.reply = {
        "model": "qwen3",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": "hello", "thinking": "hmm"},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 10,
        "eval_count": 5,
    }
    call_request = make_image_request(
        fake, "ollama_chat", "qwen3", parameters={"max_tokens": 9, "num_ctx": 100, **parameters}
    )
    reply = make_call(call_request)
    assert [received.path for received in fake.requests] == ["/api/chat"], "one call is one request"
    assert fake.last.body["think"] is think
    assert fake.last.body["stream"] is False
    assert fake.last.body["options"] == {"num_predict": 9, "num_ctx": 100}
    assert fake.last.body["messages"][1]["images"] == [PIXEL]
    assert (reply.text, reply.reasoning, reply.input_tokens, reply.output_tokens) == ("hello", "hmm", 10, 5)


def test_the_cost_of_ollama_is_unknown_unless_its_endpoint_is_free(fake: FakeProvider) -> None:
    fake.reply = {
        "model": "q",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": "hello"},
        "done": True,
        "prompt_eval_count": 1,
        "eval_count": 1,
    }
    assert make_call(make_request(fake.url, provider="ollama_chat", model="q")).cost_usd is None
    assert make_call(make_request(fake.url, provider="ollama_chat", model="q", is_free=True)).cost_usd == 0


def test_openrouters_upstream_error_is_reported(fake: FakeProvider) -> None:
    fake.status = 400
    metadata = {"raw": "DataInspectionFailed: Input image data may contain inappropriate content", "provider_name": "A"}
    fake.reply = {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}}
    failure = get_failure(make_request(fake.url, provider="openrouter"))
    assert failure.error_class == ErrorClass.CONTENT_REFUSED
    assert failure.message.startswith("Provider returned error: DataInspectionFailed")


def test_a_reply_of_a_router_without_a_model_name_is_accepted(fake: FakeProvider) -> None:
    fake.reply = make_completion(model=None)
    assert make_call(make_request(fake.url, provider="openrouter", model="a/b")).text == "hello"
