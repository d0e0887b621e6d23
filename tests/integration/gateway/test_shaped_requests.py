"""Templates yield the URL, headers and bytes that litellm would send, for every provider, sampler and message."""

import asyncio
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs_app.llm import gateway, http_transport
from runs_app.llm.calls import CallFailure, CallRequest
from runs_app.llm.providers import PROVIDERS
from runs_app.llm.request_templates import CHECK_EVERY, RequestTemplates, ShapedRequest, find_places
from tests.integration.gateway.fake_provider import FakeProvider
from tests.integration.gateway.gateway_calls import SCHEMA, make_request
from tests.integration.gateway.test_providers_conform import SAMPLES, VALUES

KEY = "EVALSITE_KEY_LAB"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PHOTO = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
TEXT = st.text(st.characters(), max_size=40) | st.sampled_from(
    ["", " ", "\n", "slot9f2c7e41x0000", "say \"x\"\\", "trailing \n", "<think>", "\ud800", "\0", "é中😀", "{{input}}"]
)  # fmt: skip


@pytest.fixture(autouse=True)
def lab_key(monkeypatch):
    monkeypatch.setenv(KEY, "key-77")


def shape_by_litellm(request: CallRequest) -> ShapedRequest | str:
    """Return litellm's request, or its refusal."""
    try:
        return asyncio.run(gateway._shape(request, "key-77"))
    except CallFailure as failure:
        return str(failure)


def shape_by_template(templates: RequestTemplates, request: CallRequest) -> ShapedRequest | str | None:
    try:
        return asyncio.run(templates.shape(request, "key-77"))
    except CallFailure as failure:
        return str(failure)


@st.composite
def structures(draw) -> list[tuple[str, list[str] | None]]:
    """Yield roles, each with the kinds of its parts, or None for a plain text."""
    parts = st.none() | st.lists(st.sampled_from(["text", "image", "marked"]), min_size=1, max_size=3)
    turns = draw(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), parts), min_size=1, max_size=3))
    return [*draw(st.sampled_from([[], [("system", None)]])), *turns]


def build_messages(structure, texts, picture):
    def build_part(kind):
        if kind == "image":
            return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}
        mark = {"cache_control": {"type": "ephemeral"}} if kind == "marked" else {}
        return {"type": "text", "text": next(texts), **mark}

    return [
        {"role": role, "content": next(texts) if kinds is None else [build_part(kind) for kind in kinds]}
        for role, kinds in structure
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROVIDERS))
@settings(deadline=None)
@given(data=st.data())
def test_a_filled_template_equals_what_litellm_would_send(name: str, data: st.DataObject) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(PROVIDERS[name].parameters)), max_size=4), "parameters")
    fields = {
        "parameters": {parameter: VALUES[parameter] for parameter in sorted(names)},
        "response_format": data.draw(st.sampled_from([None, SCHEMA]), "schema"),
        "max_output_tokens": data.draw(st.sampled_from([None, 50]), "limit"),
    }
    structure = data.draw(structures(), "structure")
    templates = RequestTemplates(gateway._shape)
    for picture in (PIXEL, PHOTO):
        texts = iter(data.draw(st.lists(TEXT, min_size=12, max_size=12), "texts"))
        url = f"http://127.0.0.1:9{SAMPLES[name]['request']['base']}"
        messages = build_messages(structure, texts, picture)
        request = make_request(
            url, provider=name, model=SAMPLES[name]["model"], key_env=KEY, messages=messages, **fields
        )
        filled = shape_by_template(templates, request)
        if filled is not None:
            assert filled == shape_by_litellm(request)


@pytest.mark.parametrize("name", sorted(PROVIDERS))
@pytest.mark.parametrize("kinds", [None, ["text", "image"]])
def test_usual_requests_are_shaped_once(name: str, kinds: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    shaped = []

    async def count(request, key):
        shaped.append(request)
        return await gateway._shape(request, key)

    templates = RequestTemplates(count)
    url = f"http://127.0.0.1:9{SAMPLES[name]['request']['base']}"
    for number in range(5):
        texts = iter(["Be brief.", f"Rate this. [{number:04x}]\n"])
        messages = build_messages([("system", None), ("user", kinds)], texts, PIXEL)
        parameters = SAMPLES[name]["request"]["parameters"]
        request = make_request(
            url, provider=name, model=SAMPLES[name]["model"], key_env=KEY, messages=messages, parameters=parameters
        )
        filled = shape_by_template(templates, request)
        assert filled == shape_by_litellm(request)
        assert f"[{number:04x}]".encode() in filled.body
    assert len(shaped) == 2, "the first request, and the same with markers"


def test_what_differs_between_conditions_has_its_own_template() -> None:
    templates = RequestTemplates(gateway._shape)
    for fields in (
        {"parameters": {"temperature": 0.5}},
        {"parameters": {"temperature": 0.25}},
        {"parameters": {"seed": 1}},
        {"response_format": SCHEMA},
        {"model": "other"},
        {"messages": [{"role": "system", "content": "Rate."}]},
    ):
        request = make_request("http://127.0.0.1:9/v1", key_env=KEY, **fields)
        assert shape_by_template(templates, request) == shape_by_litellm(request)
    request = make_request("http://127.0.0.1:9/v1", key_env=KEY)
    with_other_key = asyncio.run(templates.shape(request, "key-78"))
    assert with_other_key.headers["Authorization"] == "Bearer key-78"


async def shape_with_a_change(request: CallRequest, key: str) -> ShapedRequest:
    """Shape a request as an adapter would that treats some texts in its own way."""
    shaped = await gateway._shape(request, key)
    return ShapedRequest(shaped.url, shaped.headers, shaped.body.replace(b"odd", b"even"))


def test_a_condition_that_litellm_changes_is_left_to_litellm() -> None:
    templates = RequestTemplates(shape_with_a_change)
    odd, plain = (make_request("http://127.0.0.1:9/v1", text, key_env=KEY) for text in ("an odd text", "a text"))
    assert shape_by_template(templates, odd) is None
    assert shape_by_template(templates, plain) is None, "the whole condition"


def test_a_template_that_stops_to_hold_is_found_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    templates = RequestTemplates(shape_with_a_change)
    request = make_request("http://127.0.0.1:9/v1", "a text", key_env=KEY)
    odd = make_request("http://127.0.0.1:9/v1", "an odd text", key_env=KEY)
    for _ in range(CHECK_EVERY - 1):
        assert shape_by_template(templates, request) is not None
    with caplog.at_level(logging.ERROR, "evalsite.drain"):
        assert shape_by_template(templates, odd) is None
    assert "shaped by litellm again" in caplog.text
    assert "key-77" not in caplog.text
    assert shape_by_template(templates, request) is None


def test_a_marker_outside_the_body_makes_no_template() -> None:
    marker = "slot9f2c7e41x0000"
    assert find_places(ShapedRequest("http://x", {}, f'"{marker}"'.encode()), 1)
    assert find_places(ShapedRequest(f"http://x/{marker}", {}, f'"{marker}"'.encode()), 1) is None
    assert find_places(ShapedRequest("http://x", {"a": marker}, f'"{marker}"'.encode()), 1) is None
    assert find_places(ShapedRequest("http://x", {}, b"{}"), 1) is None


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_the_request_that_arrives_is_the_one_that_litellm_sends(
    name: str, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.reply = SAMPLES[name]["replies"]["answer"]["reply"]
    sample = SAMPLES[name]["request"]
    request = make_request(
        fake.url + sample["base"],
        'Rate "this": é中😀\n',
        provider=name,
        model=SAMPLES[name]["model"],
        key_env=KEY,
        parameters=sample["parameters"],
    )

    async def call_twice() -> None:
        await gateway.call(request)
        with monkeypatch.context() as old_way:
            old_way.setattr(gateway, "_templates", RequestTemplates(refuse_to_shape))
            await gateway.call(request)
        await http_transport.close_session()

    async def refuse_to_shape(_request: CallRequest, _key: str) -> None:
        return None

    asyncio.run(call_twice())
    first, second = fake.requests
    assert first == second, "path, headers and body"
