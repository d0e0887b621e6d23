"""The service account of Vertex AI is exchanged for an access token. The server verifies the assertion's signature."""

import asyncio
import base64
import json
import time

import jwt
import pytest

from runs_app.llm import access_tokens, gateway, keys
from runs_app.llm.calls import ErrorClass
from runs_app.llm.providers.vertex import JWT_BEARER, SCOPE
from tests.integration.gateway.fake_provider import PRIVATE_KEY, FakeProvider, make_service_account
from tests.integration.gateway.gateway_calls import get_failure, make_call, make_request
from tests.integration.gateway.test_providers_conform import SAMPLES

SAMPLE = SAMPLES["vertex_ai"]
EMAIL = "lab@project.iam.gserviceaccount.com"


@pytest.fixture
def account(fake: FakeProvider, monkeypatch, tmp_path, settings):
    """A service account whose token address is the fake provider, as the endpoint's key."""
    settings.DATA_DIR = tmp_path
    access_tokens._tokens.clear()
    fake.reply = SAMPLE["replies"]["answer"]["reply"]
    fake.replies["/token"] = 200, {"access_token": "ya29.token-one", "expires_in": 3599, "token_type": "Bearer"}
    account = make_service_account(f"{fake.url}/token")
    monkeypatch.setenv("EVALSITE_KEY_LAB", json.dumps(account))
    return account


def ask(fake, **more):
    base = fake.url + SAMPLE["request"]["base"]
    return make_request(base, provider="vertex_ai", model=SAMPLE["model"], key_env="EVALSITE_KEY_LAB", **more)


def list_paths(fake):
    return [request.path for request in fake.requests]


def test_the_assertion_is_signed_by_the_account_and_its_token_is_sent(fake: FakeProvider, account):
    began = int(time.time())
    assert make_call(ask(fake)).text == "hello"
    grant, call = fake.requests
    assert (grant.path, grant.body["grant_type"]) == ("/token", JWT_BEARER)
    claims = jwt.decode(grant.body["assertion"], PRIVATE_KEY.public_key(), ["RS256"], audience=account["token_uri"])
    assert (claims["iss"], claims["scope"]) == (EMAIL, SCOPE)
    assert claims["exp"] - claims["iat"] == 3600
    assert began <= claims["iat"] <= time.time()
    assert jwt.get_unverified_header(grant.body["assertion"])["kid"] == "k1"
    assert call.path == SAMPLE["request"]["path"]
    assert call.headers["authorization"] == "Bearer ya29.token-one"
    assert "PRIVATE KEY" not in json.dumps([request.body for request in fake.requests])


def test_calls_at_once_share_one_token(fake: FakeProvider, account):
    async def make_calls():
        try:
            return await asyncio.gather(*(gateway.call(ask(fake)) for _ in range(20)))
        finally:
            await gateway.close_session()

    assert len(asyncio.run(make_calls())) == 20
    assert list_paths(fake).count("/token") == 1


def test_a_token_is_renewed_five_minutes_before_its_end(fake: FakeProvider, account, monkeypatch):
    make_call(ask(fake))
    fake.replies["/token"] = 200, {"access_token": "ya29.token-two", "expires_in": 3599}
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3599 - 310)
    make_call(ask(fake))
    assert fake.last.headers["authorization"] == "Bearer ya29.token-one"
    monkeypatch.setattr(time, "time", lambda: now + 3599 - 290)
    make_call(ask(fake))
    assert fake.last.headers["authorization"] == "Bearer ya29.token-two"


@pytest.mark.parametrize(
    ("status", "reply", "error_class", "words"),
    [
        (400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, "unauthorized", "Invalid JWT"),
        (503, {"error": "backend"}, "overloaded", "backend"),
        (200, {"token_type": "Bearer"}, "unauthorized", "no access token"),
    ],
)
def test_a_refused_account_fails_before_the_call_in_the_providers_words(
    fake: FakeProvider, account, status, reply, error_class, words
):
    fake.replies["/token"] = status, reply
    failure = get_failure(ask(fake))
    assert (failure.error_class, failure.was_sent) == (error_class, False)
    assert words in failure.message
    assert list_paths(fake) == ["/token"]


def test_an_unreachable_token_address_is_no_failed_call(fake: FakeProvider, account, monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_LAB", json.dumps(account | {"token_uri": "http://127.0.0.1:9/token"}))
    failure = get_failure(ask(fake))
    assert (failure.error_class, failure.was_sent) == (ErrorClass.UNREACHABLE, False)


def test_the_assertion_goes_to_no_other_host(fake: FakeProvider, account, monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_LAB", json.dumps(account | {"token_uri": "https://tokens.example.com/"}))
    failure = get_failure(ask(fake))
    assert (failure.error_class, failure.was_sent) == (ErrorClass.NOT_ALLOWED, False)
    assert "tokens.example.com" in failure.message


@pytest.mark.parametrize(
    ("changes", "words"), [({"private_key": "none"}, "private key"), ({"client_email": None}, "no client_email")]
)
def test_an_incomplete_account_is_named(fake: FakeProvider, account, monkeypatch, changes, words):
    changed = {name: value for name, value in (account | changes).items() if value is not None}
    monkeypatch.setenv("EVALSITE_KEY_LAB", json.dumps(changed))
    failure = get_failure(ask(fake))
    assert (failure.error_class, words in failure.message) == (ErrorClass.UNAUTHORIZED, True)
    assert fake.requests == []


def test_a_pasted_file_of_an_account_is_stored_and_used(fake: FakeProvider, account, monkeypatch):
    monkeypatch.delenv("EVALSITE_KEY_LAB")
    keys.store_key("EVALSITE_KEY_LAB", json.dumps(account, indent=2) + "\n")
    stored = keys.load_stored_keys()["EVALSITE_KEY_LAB"]
    assert json.loads(base64.b64decode(stored)) == account
    assert make_call(ask(fake)).text == "hello"
    assert list_paths(fake) == ["/token", SAMPLE["request"]["path"]]


def test_an_access_token_as_the_key_is_sent_as_it_is(fake: FakeProvider, account, monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_LAB", "ya29.from-a-person")
    make_call(ask(fake))
    assert fake.last.headers["authorization"] == "Bearer ya29.from-a-person"
    assert list_paths(fake) == [SAMPLE["request"]["path"]]
