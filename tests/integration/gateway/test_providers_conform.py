"""Every provider conforms: its requests, its replies of each kind, failures, rates, prices, models and batches.

`provider_samples/` has one file a provider: replies and errors in its published form, and how they must be read.
"""

import asyncio
import dataclasses
import json
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.utils.module_loading import import_string
from hypothesis import given
from hypothesis import strategies as st

from runs_app import model_lists
from runs_app.llm import gateway, http_transport, parameters
from runs_app.llm.calls import CallFailure, CallReply, ErrorClass
from runs_app.llm.keys import find_name_problem
from runs_app.llm.providers import PROVIDERS
from runs_app.llm.url_allowlist import find_url_problem
from runs_app.models import Endpoint
from tests.integration.gateway.fake_provider import FakeProvider
from tests.integration.gateway.gateway_calls import SCHEMA, get_failure, make_call, make_request

SAMPLES = {path.stem: json.loads(path.read_text()) for path in Path(__file__).parent.glob("provider_samples/*.json")}
REPLIES = [(name, kind) for name in sorted(SAMPLES) for kind in SAMPLES[name]["replies"]]
FAILURES = [(name, number) for name in sorted(SAMPLES) for number in range(len(SAMPLES[name]["failures"]))]
# One valid value of each parameter.
VALUES = {
    "temperature": 0.5, "top_p": 0.5, "max_tokens": 9, "seed": 3, "reasoning_effort": "low", "top_k": 4, "min_p": 0.1,
    "max_completion_tokens": 9, "frequency_penalty": 0.5, "presence_penalty": 0.5, "logit_bias": {"50256": -100},
    "stop": ["END"], "thinking": {"type": "enabled", "budget_tokens": 1024}, "verbosity": "low", "top_a": 0.1,
    "service_tier": "auto", "repetition_penalty": 1.1, "length_penalty": 1.1, "min_tokens": 1, "ignore_eos": True,
    "skip_special_tokens": True, "include_reasoning": True, "enable_thinking": True, "thinking_budget": 9,
    "thinking_token_budget": 9, "chat_template_kwargs": {"enable_thinking": True}, "reasoning": {"effort": "low"},
    "provider": {"order": ["north"]}, "num_ctx": 100, "repeat_penalty": 1.1, "repeat_last_n": 4, "mirostat": 1,
    "think": True, "keep_alive": 5,
}  # fmt: skip


@pytest.fixture(autouse=True)
def lab_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALSITE_KEY_LAB", "key-77")


def build_call(name: str, fake: FakeProvider, **more: object):
    sample = SAMPLES[name]
    url = fake.url + sample["request"]["base"]
    return make_request(url, provider=name, model=sample["model"], key_env="EVALSITE_KEY_LAB", **more)


def shape(call_request):
    """Return the body that would be sent."""
    return asyncio.run(gateway.build_body(call_request)).body


def test_every_provider_has_samples() -> None:
    assert sorted(SAMPLES) == sorted(PROVIDERS)


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_a_declaration_is_complete(name: str) -> None:
    provider = PROVIDERS[name]
    assert find_name_problem(provider.key_name) is None
    assert provider.parameters <= VALUES.keys() == (parameters.FIELDS | parameters.EXTRA).keys()
    assert provider.native | set(provider.renamed) <= provider.parameters
    assert provider.default_url or provider.hosts or provider.needs_url
    if provider.default_url and not provider.is_self_hosted:
        assert find_url_problem(provider.default_url, ()) is None
        assert find_url_problem(provider.default_url.replace("https", "http"), ())
    assert Endpoint(name="x", provider=name).get_provider_display() == provider.label


def test_no_two_providers_disagree_about_a_status() -> None:
    stated = [(status, error) for provider in PROVIDERS.values() for status, error in provider.statuses.items()]
    assert len(dict(stated)) == len(set(stated))


@pytest.mark.parametrize(("name", "kind"), REPLIES)
def test_a_reply_of_each_kind_is_read(name: str, kind: str, fake: FakeProvider) -> None:
    sample = SAMPLES[name]["replies"][kind]
    fake.reply = sample["reply"]
    reply = make_call(build_call(name, fake))
    expected = sample["read"]
    read = {field: getattr(reply, field) for field in expected}
    if expected["finish_reason"] is None:
        read["finish_reason"] = None  # The adapter maps reasons that only this provider knows.
    if "cost_usd" in expected:
        expected = expected | {"cost_usd": Decimal(expected["cost_usd"])}
    assert read == expected
    assert len(fake.requests) == 1, "one call is one request"


@pytest.mark.parametrize(("name", "number"), FAILURES)
def test_each_failure_has_its_class(name: str, number: int, fake: FakeProvider) -> None:
    sample = SAMPLES[name]["failures"][number]
    fake.status, fake.reply, fake.headers = sample["status"], sample["body"], sample["headers"]
    failure = get_failure(build_call(name, fake))
    assert (failure.error_class, failure.retry_after_s) == (sample["error_class"], sample["retry_after_s"])
    assert failure.http_status == sample["status"]
    assert failure.message
    assert not failure.message.startswith("{"), "the provider's own words, not its JSON"


@pytest.mark.parametrize("name", [name for name in sorted(SAMPLES) if SAMPLES[name]["rates"]])
def test_the_remaining_rates_are_read_from_its_headers(name: str, fake: FakeProvider) -> None:
    sample = SAMPLES[name]
    fake.reply, fake.headers = sample["replies"]["answer"]["reply"], sample["rates"]["headers"]
    allowance = make_call(build_call(name, fake)).allowance
    assert allowance
    for stated, read in (("requests", allowance.requests), ("tokens", allowance.tokens)):
        expected = sample["rates"][stated]
        assert (read and [read.n, pytest.approx(read.resets_in_s)]) == expected


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_request_has_the_providers_form(name: str, fake: FakeProvider) -> None:
    sample = SAMPLES[name]
    expected = sample["request"]
    fake.reply = sample["replies"]["answer"]["reply"]
    make_call(build_call(name, fake, parameters=expected["parameters"]))
    key_header, value = expected["key"]
    assert fake.last.path == expected["path"]
    assert fake.last.headers[key_header] == value
    assert {field: fake.last.body.get(field) for field in expected["body"]} == expected["body"]
    assert json.dumps(fake.last.body).count("What is 2 + 2?") == 1
    assert not fake.last.body.get("stream")
    assert "key-77" not in json.dumps(fake.last.body)


@pytest.mark.parametrize("name", [name for name in sorted(PROVIDERS) if not PROVIDERS[name].needs_url])
def test_without_a_base_url_the_call_goes_to_the_providers_own_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    async def record(_exchange: object, url: str, *_arguments: object) -> None:
        called.append(url)
        raise OSError("not sent")

    monkeypatch.setattr(http_transport.Exchange, "_send", record)
    provider = PROVIDERS[name]
    call_request = make_request(None, provider=name, model=SAMPLES[name]["model"], key_env="EVALSITE_KEY_LAB")
    assert get_failure(call_request).error_class == ErrorClass.CONNECTION
    assert [urlsplit(url).hostname for url in called] == [*(provider.all_hosts or {"localhost"})]
    assert called[0].startswith(provider.default_url or "https://")


@pytest.mark.parametrize("name", [name for name in sorted(PROVIDERS) if PROVIDERS[name].speaks_openai])
def test_every_allowed_parameter_and_the_schema_reach_a_server_of_openais_form(name: str, fake: FakeProvider) -> None:
    provider = PROVIDERS[name]
    for parameter in sorted(provider.parameters):
        body = shape(build_call(name, fake, parameters={parameter: VALUES[parameter]}))
        if (name, parameter) == ("hosted_vllm", "thinking"):  # vLLM knows it as an effort.
            assert body["reasoning_effort"]
            continue
        assert body[provider.renamed.get(parameter, parameter)] == VALUES[parameter], parameter
    body = shape(build_call(name, fake, response_format=SCHEMA))
    assert body["response_format"] == SCHEMA
    assert "tools" not in body
    assert body["model"] == SAMPLES[name]["model"]


@pytest.mark.parametrize("name", [name for name in sorted(PROVIDERS) if not PROVIDERS[name].speaks_openai])
def test_a_parameter_changes_the_request_or_is_refused_by_name(name: str, fake: FakeProvider) -> None:
    plain = shape(build_call(name, fake))
    for parameter in sorted(PROVIDERS[name].parameters):
        call_request = build_call(name, fake, parameters={parameter: VALUES[parameter]})
        try:
            body = shape(call_request)
        except CallFailure:
            failure = get_failure(call_request)
            assert (failure.error_class, parameter in failure.message) == (ErrorClass.BAD_REQUEST, True)
        else:
            assert body != plain, parameter


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_cost_has_the_stated_source(name: str, fake: FakeProvider) -> None:
    sample = SAMPLES[name]
    fake.reply = sample["replies"]["answer"]["reply"]
    reply = make_call(build_call(name, fake))
    assert reply.cost_source == sample["cost_source"]
    assert (reply.cost_usd is None) == (sample["cost_source"] == "unknown")
    assert make_call(build_call(name, fake, is_free=True)).cost_source in ("free", "provider")


def test_reasoning_that_xai_counts_beside_the_answer_is_paid(fake: FakeProvider) -> None:
    fake.reply = SAMPLES["xai"]["replies"]["answer"]["reply"]
    with_reasoning = make_call(build_call("xai", fake)).cost_usd
    fake.reply = SAMPLES["xai"]["replies"]["answer"]["reply"] | {"usage": {"prompt_tokens": 10, "completion_tokens": 5}}
    assert with_reasoning - make_call(build_call("xai", fake)).cost_usd > Decimal("0.00024")


@pytest.mark.parametrize("name", [name for name in sorted(SAMPLES) if PROVIDERS[name].models_path])
def test_the_list_of_models_is_fetched_with_its_key(name: str, fake: FakeProvider) -> None:
    sample = SAMPLES[name]
    fake.listing = {"object": "list", "data": [{"id": sample["model"], "object": "model"}]}
    endpoint = Endpoint(
        name="lab", provider=name, base_url=fake.url + sample["request"]["base"], key_env="EVALSITE_KEY_LAB"
    )
    assert [model.model for model in model_lists.fetch_models(endpoint)] == [sample["model"]]
    assert fake.last.path == f"GET {sample['models_path']}"
    assert "key-77" in "".join(fake.last.headers.values())


@pytest.mark.parametrize("name", [name for name in sorted(SAMPLES) if not PROVIDERS[name].models_path])
def test_a_provider_without_a_list_of_models_asks_for_an_id(name: str, fake: FakeProvider) -> None:
    endpoint = Endpoint(name="lab", provider=name, base_url=fake.url, key_env="EVALSITE_KEY_LAB")
    with pytest.raises(CallFailure, match="enter a model ID"):
        model_lists.fetch_models(endpoint)
    assert fake.requests == []


@pytest.mark.parametrize("name", [name for name in sorted(PROVIDERS) if PROVIDERS[name].batch_api])
def test_a_batch_has_the_same_body_and_reads_the_same_reply(name: str, fake: FakeProvider) -> None:
    fake.reply = SAMPLES[name]["replies"]["answer"]["reply"]
    call_request = build_call(name, fake, parameters={"temperature": 0.5, "max_tokens": 9})

    async def run() -> tuple[CallReply, CallReply]:
        try:
            body = await gateway.build_body(call_request)
            api = import_string(PROVIDERS[name].batch_api)(*gateway.resolve_access(call_request))
            single = await gateway.call(call_request)
            entry = api.build_entry("k-1", body)
            assert fake.last.body in entry.values()
            reply = json.dumps(fake.reply).encode()
            return single, await gateway.read_batch_reply(call_request, 200, reply, Decimal(0))
        finally:
            await gateway.close_session()

    single, batched = asyncio.run(run())
    own = {"latency_ms": 0, "trace_id": "", "cost_usd": None}
    assert dataclasses.replace(batched, **own) == dataclasses.replace(single, **own)
    assert PROVIDERS[name].batch_label in dict(Endpoint.BatchApi.choices).values()


FIELDS = [
    "choices", "message", "content", "type", "text", "thinking", "usage", "prompt_tokens", "completion_tokens",
    "total_tokens", "completion_tokens_details", "reasoning_tokens",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["choices", "usage", "id"]), JSON))
def test_the_repair_of_a_reply_never_raises_and_keeps_a_repaired_one(payload: dict[str, object]) -> None:
    for provider in PROVIDERS.values():
        if provider.repair_reply is not None:
            before = json.dumps(payload)
            repaired = provider.repair_reply(payload)
            assert provider.repair_reply(repaired) == repaired
            assert json.dumps(payload) == before
