"""Requests to Bedrock are signed by Signature Version 4. The server of these tests computes the signature itself.

Its computation follows the published description of the algorithm, and reproduces a published example.
"""

import hashlib
import hmac
import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runs_app.llm.calls import ErrorClass
from runs_app.llm.providers.bedrock import sign
from tests.integration.gateway.fake_provider import FakeProvider
from tests.integration.gateway.gateway_calls import get_failure, make_call, make_request
from tests.integration.gateway.test_providers_conform import SAMPLES

ACCESS_KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
MODEL = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-lite-v1:0"


def compute_signature(method, path, headers, body, authorization, secret):
    """Return the signature of a request as received. `authorization` is its header, which says what was signed."""
    fields = dict(part.strip().split("=", 1) for part in authorization.removeprefix("AWS4-HMAC-SHA256").split(","))
    _, day, region, service, end = fields["Credential"].split("/")
    names = fields["SignedHeaders"].split(";")
    path, _, query = path.partition("?")
    signed_headers = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
    payload = hashlib.sha256(body).hexdigest()
    canonical = "\n".join((method, quote(path, safe="/-_.~"), query, signed_headers, ";".join(names), payload))
    scope = f"{day}/{region}/{service}/{end}"
    text = "\n".join(("AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, end, text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex(), fields["Signature"]


def test_the_servers_own_computation_reproduces_the_published_example():
    headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
    scope = "20150830/us-east-1/service/aws4_request"
    stated = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders=host;x-amz-date, Signature={stated}"
    )
    assert compute_signature("GET", "/", headers, b"", authorization, SECRET) == (stated, stated)


@pytest.fixture(autouse=True)
def pair(monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_LAB", f"{ACCESS_KEY}:{SECRET}")


def ask(fake, text="What is 2 + 2?", **more):
    return make_request(
        fake.url, text, provider="bedrock", model=SAMPLES["bedrock"]["model"], key_env="EVALSITE_KEY_LAB", **more
    )


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(min_size=1).filter(lambda text: not text.isspace() and "\x00" not in text))
def test_a_request_with_any_text_carries_the_signature_of_its_bytes(fake: FakeProvider, text):
    fake.reply = SAMPLES["bedrock"]["replies"]["answer"]["reply"]
    assert make_call(ask(fake, text)).text == "hello"
    sent = fake.last
    own, stated = compute_signature("POST", sent.path, sent.headers, sent.raw, sent.headers["authorization"], SECRET)
    assert own == stated
    assert SECRET not in json.dumps([sent.headers, sent.body])
    changed = compute_signature("POST", sent.path, sent.headers, sent.raw + b" ", sent.headers["authorization"], SECRET)
    assert changed[0] != stated


def test_a_path_with_colons_and_slashes_is_signed_as_it_is_sent(fake: FakeProvider):
    fake.reply = SAMPLES["bedrock"]["replies"]["answer"]["reply"]
    make_call(make_request(fake.url, provider="bedrock", model=MODEL, key_env="EVALSITE_KEY_LAB"))
    sent = fake.last
    assert sent.path == f"/model/{quote(MODEL, safe='')}/converse"
    own, stated = compute_signature("POST", sent.path, sent.headers, sent.raw, sent.headers["authorization"], SECRET)
    assert own == stated


def test_a_session_token_is_sent_and_signed(fake: FakeProvider, monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_LAB", f"{ACCESS_KEY}:{SECRET}:session-12345678")
    fake.reply = SAMPLES["bedrock"]["replies"]["answer"]["reply"]
    make_call(ask(fake))
    sent = fake.last
    assert sent.headers["x-amz-security-token"] == "session-12345678"
    assert "x-amz-security-token" in sent.headers["authorization"]
    own, stated = compute_signature("POST", sent.path, sent.headers, sent.raw, sent.headers["authorization"], SECRET)
    assert own == stated


@pytest.mark.parametrize("key", [f"{ACCESS_KEY}:", ":secret-1234", "a:b:c:d"])
def test_a_key_of_another_form_is_refused_before_anything_is_sent(fake: FakeProvider, monkeypatch, key):
    monkeypatch.setenv("EVALSITE_KEY_LAB", key)
    failure = get_failure(ask(fake))
    assert failure.error_class == ErrorClass.UNAUTHORIZED
    assert "ACCESS_KEY_ID:SECRET_ACCESS_KEY" in failure.message
    assert not failure.was_sent
    assert fake.requests == []


def test_no_part_of_a_pair_is_stored_with_a_reply(fake: FakeProvider):
    fake.status = 403
    fake.reply = {"message": f"The key {ACCESS_KEY} with {SECRET} is invalid."}
    failure = get_failure(ask(fake))
    assert ACCESS_KEY not in failure.message
    assert SECRET not in failure.message


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("bedrock-runtime.eu-central-1.amazonaws.com", "eu-central-1"),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("vpce-0a1b.bedrock-runtime.ap-southeast-2.vpce.amazonaws.com", "ap-southeast-2"),
        ("127.0.0.1:9", "us-east-1"),
    ],
)
def test_the_region_is_that_of_the_address(host, region):
    headers = sign(f"https://{host}/model/m/converse", b"{}", {"Content-Type": "application/json"}, "a-key:secret")
    assert f"/{region}/bedrock/aws4_request" in headers["Authorization"]
