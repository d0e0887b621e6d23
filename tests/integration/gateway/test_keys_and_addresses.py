"""A key is sent only to the endpoint that names it, and no request is sent to an address that is not allowed."""

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from runs_app.llm import http_transport
from runs_app.llm.calls import CallFailure, ErrorClass, Kind
from runs_app.models import Endpoint
from tests.factories.designs import make_endpoint
from tests.integration.gateway.fake_provider import FakeProvider
from tests.integration.gateway.gateway_calls import get_failure, make_call, make_request

REPOSITORY = Path(__file__).resolve().parents[3]
OTHERS_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY")
OTHERS_URLS = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL", "OPENROUTER_API_BASE")


@pytest.fixture(autouse=True)
def set_keys_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OTHERS_KEYS:
        monkeypatch.setenv(name, "sk-key-of-another-provider")


@pytest.mark.parametrize("provider", ["openai", "openrouter", "hosted_vllm", "anthropic", "gemini", "ollama_chat"])
def test_an_endpoint_without_a_key_gets_no_key_from_the_environment(fake: FakeProvider, provider: str) -> None:
    with contextlib.suppress(CallFailure):  # The reply has OpenAI's format, which not all of them can read.
        make_call(make_request(fake.url, provider=provider))
    assert len(fake.requests) == 1
    assert "sk-key-of-another-provider" not in str(fake.requests)


def test_the_key_comes_from_the_variable_that_the_endpoint_names(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALSITE_KEY_LAB", "sk-of-the-lab")
    make_call(make_request(fake.url, key_env="EVALSITE_KEY_LAB"))
    assert fake.last.headers["authorization"] == "Bearer sk-of-the-lab"


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_is_a_permanent_failure_before_the_request(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("EVALSITE_KEY_LAB", raising=False)
    if value is not None:
        monkeypatch.setenv("EVALSITE_KEY_LAB", value)
    failure = get_failure(make_request(fake.url, key_env="EVALSITE_KEY_LAB"))
    assert failure.error_class == ErrorClass.MISSING_KEY
    assert failure.kind == Kind.PERMANENT
    assert "EVALSITE_KEY_LAB" in failure.message
    assert fake.requests == []


def test_a_key_that_the_provider_repeats_is_not_stored(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALSITE_KEY_LAB", "a-very-odd-key-77")
    fake.status = 401
    fake.reply = {"error": {"message": "Incorrect API key: a-very-odd-key-77. See http://u:p@x.org/y?key=abc"}}
    failure = get_failure(make_request(fake.url, key_env="EVALSITE_KEY_LAB"))
    assert "a-very-odd-key-77" not in f"{failure} {failure.message} {failure.args}"
    assert "abc" not in failure.message
    assert failure.message.startswith("Incorrect API key")


@pytest.mark.parametrize(
    "url",
    [
        "http://models.example.org/v1",
        "https://api.openai.com.example.org/v1",
        "http://169.254.169.254/latest",
        "http://metadata.google.internal/v1",
        "ftp://127.0.0.1/v1",
        "file:///etc/passwd",
        "http://user:secret@127.0.0.1/v1",
        "http://api.openai.com/v1",
    ],
)
def test_an_address_outside_the_allowlist_is_never_called(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(*_args: Any) -> None:
        raise AssertionError("it was sent")

    monkeypatch.setattr(http_transport.Exchange, "_send", send)
    failure = get_failure(make_request(url))
    assert failure.error_class == ErrorClass.NOT_ALLOWED
    assert failure.kind == Kind.PERMANENT
    assert "secret" not in failure.message


def test_an_address_on_the_allowlist_is_called(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.LLM_ALLOWED_HOSTS = ["models.example.org"]
    assert (
        capture_url(make_request("http://models.example.org/v1"), monkeypatch)
        == "http://models.example.org/v1/chat/completions"
    )


@pytest.mark.parametrize(
    ("provider", "start"),
    [
        ("openai", "https://api.openai.com/v1/chat/completions"),
        ("openrouter", "https://openrouter.ai/api/v1/chat/completions"),
        ("anthropic", "https://api.anthropic.com/v1/messages"),
        ("gemini", "https://generativelanguage.googleapis.com/"),
        ("ollama_chat", "http://localhost:11434/api/chat"),
    ],
)
def test_environment_variables_do_not_change_the_address_of_a_provider(
    provider: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OTHERS_URLS:
        monkeypatch.setenv(name, "http://127.0.0.1:9/elsewhere")
    assert capture_url(make_request(None, provider=provider), monkeypatch).startswith(start)


def capture_url(call_request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address to which a call would be sent."""
    urls: list[str] = []

    async def send(_self: http_transport.Exchange, url: str, *_args: Any) -> None:
        urls.append(url)
        raise TimeoutError

    monkeypatch.setattr(http_transport.Exchange, "_send", send)
    get_failure(call_request)
    return urls[0]


def test_a_self_hosted_server_needs_an_address() -> None:
    assert get_failure(make_request(None, provider="hosted_vllm")).error_class == ErrorClass.NOT_ALLOWED


def test_an_unknown_provider_is_not_called() -> None:
    assert get_failure(make_request("http://127.0.0.1:9/v1", provider="palm")).error_class == ErrorClass.NOT_ALLOWED


def test_a_redirect_is_not_followed(fake: FakeProvider) -> None:
    fake.status, fake.headers = 307, {"Location": f"{fake.url}/elsewhere"}
    failure = get_failure(make_request(fake.url))
    assert failure.error_class == ErrorClass.NOT_ALLOWED
    assert len(fake.requests) == 1


@pytest.mark.parametrize("name", ["model", "messages", "stream", "n", "api_base", "api_key", "base_url", "extra_body"])
def test_parameters_cannot_change_the_address_key_model_or_messages(fake: FakeProvider, name: str) -> None:
    failure = get_failure(make_request(fake.url, parameters={name: "http://127.0.0.1:9"}))
    assert failure.error_class == ErrorClass.NOT_ALLOWED
    assert fake.requests == []


CONTROLS = ["mock_response", "fallbacks", "client", "litellm_params", "custom_llm_provider", "headers2"]
DEARER = ["models", "plugins", "best_of", "max_output_tokens", "num_predict", "web_search_options", "tools"]


@pytest.mark.parametrize("provider", ["openai", "openrouter", "anthropic", "gemini", "ollama_chat", "hosted_vllm"])
@pytest.mark.parametrize("name", CONTROLS + DEARER)
def test_only_allowed_parameters_are_sent(fake: FakeProvider, provider: str, name: str) -> None:
    failure = get_failure(make_request(fake.url, provider=provider, parameters={name: "steered"}))
    assert failure.error_class == ErrorClass.NOT_ALLOWED
    assert name in failure.message
    assert "max_completion_tokens" in failure.message, "it lists those that are allowed"
    assert fake.requests == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("service_tier", "priority"), ("max_tokens", "9"), ("top_k", {"a": 1}), ("provider", {"max_price": {}})],
)
def test_a_parameter_of_the_wrong_type_is_not_sent(fake: FakeProvider, name: str, value: Any) -> None:
    failure = get_failure(make_request(fake.url, parameters={name: value}))
    assert failure.error_class == ErrorClass.NOT_ALLOWED
    assert f"{name!r} must be" in failure.message
    assert fake.requests == []


OTHER_SERVICES = [
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VAULT_TOKEN", "NPM_TOKEN", "PYPI_TOKEN", "STRIPE_SECRET_KEY",
    "AZURE_STORAGE_KEY", "CF_API_TOKEN", "GITHUB_TOKEN", "AWS_SECRET_KEY",
]  # fmt: skip
OWN_NAMES = ["EVALSITE_SECRET_KEY", "EVALSITE_LLM_KEY_NAMES", "DATABASE_URL", "DJANGO_SECRET_KEY", "SECRET_KEY"]


@pytest.mark.parametrize("name", [*OTHER_SERVICES, *OWN_NAMES, "PATH", "HOME", "OPENAI_API_KEY\n", "LABKEYS"])
@pytest.mark.parametrize("is_listed", [False, True])
def test_an_environment_variable_that_is_not_a_provider_key_is_never_sent(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, settings: Any, name: str, is_listed: bool
) -> None:
    settings.LLM_KEY_NAMES = [name] if is_listed else []
    monkeypatch.setenv(name, "a-secret-of-the-site")
    failure = get_failure(make_request(fake.url, key_env=name))
    assert failure.error_class == ErrorClass.NOT_ALLOWED
    assert "a-secret-of-the-site" not in failure.message
    assert fake.requests == []


@pytest.mark.django_db
@pytest.mark.parametrize("name", [*OTHER_SERVICES, *OWN_NAMES, "EVALSITE_KEY_", "EVALSITE_KEYS_LAB"])
def test_no_form_and_no_row_takes_the_variable_of_another_service(name: str) -> None:
    endpoint = make_endpoint("lab")
    endpoint.key_env = name
    with pytest.raises(ValidationError) as refusal:
        endpoint.full_clean()
    assert "key_env" in refusal.value.message_dict
    with pytest.raises(IntegrityError, match="endpoint_key_env_is_a_key"), transaction.atomic():
        Endpoint.objects.update(key_env=name)


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "OPENROUTER_API_KEY", "EVALSITE_KEY_LAB", "EVALSITE_KEY_GPU_2"])
def test_a_providers_own_name_and_the_site_s_prefix_name_keys(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    endpoint = make_endpoint("lab", key_env=name)
    endpoint.full_clean()
    monkeypatch.setenv(name, "sk-of-the-lab")
    assert make_call(make_request(fake.url, key_env=name)).text == "hello"
    assert fake.last.headers["authorization"] == "Bearer sk-of-the-lab"


@pytest.mark.django_db
def test_the_setting_adds_a_key_variable(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    endpoint = make_endpoint("lab", key_env="CLUSTER_TOKEN")
    monkeypatch.setenv("CLUSTER_TOKEN", "sk-of-the-cluster")
    failure = get_failure(make_request(fake.url, key_env="CLUSTER_TOKEN"))
    assert failure.error_class == ErrorClass.NOT_ALLOWED
    assert "EVALSITE_LLM_KEY_NAMES" in failure.message
    with pytest.raises(ValidationError, match="EVALSITE_LLM_KEY_NAMES"):
        endpoint.full_clean()
    settings.LLM_KEY_NAMES = ["CLUSTER_TOKEN"]
    endpoint.full_clean()
    assert make_call(make_request(fake.url, key_env="CLUSTER_TOKEN")).text == "hello"
    assert len(fake.requests) == 1


SECRET, ANOTHER = "a-very/odd-key-77", "sk-key-of-another-provider"


def _escape(text: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in text)


@pytest.mark.parametrize("written", [SECRET, ANOTHER, SECRET.replace("/", "\\/"), _escape(SECRET)])
def test_a_key_in_an_answer_is_not_stored(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("EVALSITE_KEY_LAB", SECRET)
    body = """{"id": "c-KEY", "model": "m-KEY", "provider": "p-KEY", "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "It is KEY, \\"that\\".", "reasoning_content": "I see KEY"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}"""
    fake.reply = body.replace("KEY", written).encode()
    fake.headers = {"x-request-id": f"trace-{SECRET}"}
    reply = make_call(make_request(fake.url, key_env="EVALSITE_KEY_LAB"))
    assert (reply.text, reply.raw_text) == ('It is [key], "that".',) * 2
    assert (reply.reasoning, reply.response_id, reply.trace_id) == ("I see [key]", "c-[key]", "trace-[key]")
    assert not {SECRET, ANOTHER} & set(str(reply).split("'"))
    assert SECRET not in str(reply)
    assert ANOTHER not in str(reply)


def test_a_dummy_key_that_is_a_common_word_is_not_masked_in_answers(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALSITE_KEY_LAB", "hello")
    assert make_call(make_request(fake.url, key_env="EVALSITE_KEY_LAB")).text == "hello"


@pytest.mark.slow
@pytest.mark.processes
def test_importing_the_gateway_does_not_import_litellm() -> None:
    """Web processes import the gateway; litellm is large and is imported by the first call."""
    code = "import sys; from runs_app.llm import gateway; print([name for name in sys.modules if 'litellm' in name])"
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60
    )
    assert completed.stdout.strip() == "[]"


def test_each_event_loop_has_its_own_connections_and_closes_them(fake: FakeProvider) -> None:
    from runs_app.llm import gateway

    async def run_one() -> bool:
        await gateway.call(make_request(fake.url))
        session = http_transport.get_session()
        await gateway.close_session()
        return session.closed

    assert asyncio.run(run_one())
    assert asyncio.run(run_one())
