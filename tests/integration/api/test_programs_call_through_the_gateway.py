"""Programs call the models of an experiment through the gateway: each call is admitted, recorded and priced."""

import json
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets_app.models import Dataset
from grading_app.grading.consistency_check import compare_counters
from grading_app.models import BlindReading
from grading_app.publish.export.snapshot_check import verify
from grading_app.publish.export.snapshots import SnapshotError, make_snapshot
from runs_app.engine.leases import sweep_expired
from runs_app.llm import access_tokens
from runs_app.models import Attempt, Endpoint, Experiment, ExternalCall, LedgerEntry, Run, Trial
from tests import factories
from tests.factories.engine import expire_leases
from tests.factories.imports import import_snapshot
from tests.factories.model_server import model_server
from tests.factories.tampering import disable_triggers
from tests.factories.tokens import make_api_client, make_bearer, make_token
from tests.integration.gateway.fake_provider import make_service_account, run_fake_provider

pytestmark = pytest.mark.django_db

CHAT, MESSAGES = "/gateway/agents/v1/chat/completions", "/gateway/agents/v1/messages"
COST = Decimal("0.00002")  # 12 tokens in and 4 out, at 1 and 2 dollars per million.


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.KEPT_S", 0)
    monkeypatch.setenv("EVALSITE_KEY_TESTS", "sk-the-labs-own-key")
    with model_server() as (url, server):
        server.url = url
        yield server


@pytest.fixture
def agents(team, provider):
    """Return an experiment with a budget and two models, one at each API."""
    prices = {"input_price": Decimal(1), "output_price": Decimal(2), "max_output_tokens": 100}
    openai = factories.make_endpoint("shop", base_url=f"{provider.url}/v1", key_env="EVALSITE_KEY_TESTS")
    anthropic = factories.make_endpoint(
        "claude-shop", provider="anthropic", base_url=provider.url, key_env="EVALSITE_KEY_TESTS"
    )
    models = [
        factories.make_model("small", endpoint=openai, **prices),
        factories.make_model("claude-small", endpoint=anthropic, **prices),
    ]
    return factories.make_experiment("agents", owner=team.owner, models=models, max_usd=Decimal(1))


@pytest.fixture
def program(agents):
    return make_api_client(agents.owner, "run", experiment=agents)


def ask(program, text="hello", *, address=CHAT, headers=None, **fields):
    model = "small" if address == CHAT else "claude-small"
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 50, **fields}
    return program.post(address, json.dumps(body), content_type="application/json", headers=headers or {})


def check_counters(agents):
    assert compare_counters() == []
    agents.refresh_from_db()
    return agents.spent_usd, agents.reserved_usd


def test_a_call_is_answered_and_recorded_as_a_trial(program, provider, agents):
    answer = ask(program, headers={"Evalsite-Session": "night run"}, temperature=0.5)
    assert answer.json()["choices"][0]["message"]["content"] == "echo: hello"
    ((path, headers, body),) = provider.requests
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer sk-the-labs-own-key"
    assert body["temperature"] == 0.5
    trial = Trial.objects.get(run__condition__stage="external")
    assert (trial.status, trial.answer, trial.item, trial.cost_usd) == ("done", "echo: hello", None, COST)
    assert trial.messages == [{"role": "user", "content": "hello"}]
    assert trial.external_call.session == "night run"
    assert trial.external_call.parameters == {"max_tokens": 50, "temperature": 0.5}
    assert json.loads(trial.external_call.reply) == answer.json()
    attempt = Attempt.objects.get(trial=trial)
    assert (attempt.outcome, attempt.input_tokens, attempt.output_tokens) == ("ok", 12, 4)
    assert LedgerEntry.objects.get(run=trial.run).paid_usd == COST
    assert check_counters(agents) == (COST, 0)


def test_anthropics_api_is_called_with_its_own_headers(agents, provider):
    text = make_token(agents.owner, "run", experiment=agents)[1]
    program = make_bearer("")
    program.defaults.pop("HTTP_AUTHORIZATION", None)
    fields = {"address": MESSAGES, "system": "Be brief.", "headers": {"x-api-key": text}}
    answer = ask(program, metadata={"user_id": "claude-code"}, **fields)
    assert answer.json()["content"] == [{"type": "text", "text": "echo: hello"}]
    ((path, headers, _),) = provider.requests
    sent = {name.lower(): value for name, value in headers.items()}
    assert (path, sent["x-api-key"], sent["anthropic-version"]) == ("/v1/messages", "sk-the-labs-own-key", "2023-06-01")
    trial = Trial.objects.get(run__condition__stage="external")
    assert [message["role"] for message in trial.messages] == ["system", "user"]
    assert (trial.cost_usd, trial.external_call.session) == (COST, "claude-code")
    assert check_counters(agents) == (COST, 0)


def test_a_service_account_calls_with_its_access_token(agents, program, provider, monkeypatch):
    access_tokens._tokens.clear()
    with run_fake_provider() as tokens:
        tokens.replies["/token"] = 200, {"access_token": "ya29.token-one", "expires_in": 3599}
        account = make_service_account(f"{tokens.url}/token")
        monkeypatch.setenv("EVALSITE_KEY_CLOUD", json.dumps(account))
        url = f"{provider.url}/v1"
        endpoint = factories.make_endpoint("cloud", provider="vertex_ai", base_url=url, key_env="EVALSITE_KEY_CLOUD")
        agents.language_models.add(factories.make_model("gemini", endpoint=endpoint, max_output_tokens=100))
        for text in ("hello", "again"):
            assert ask(program, text, model="gemini").json()["choices"][0]["message"]["content"] == f"echo: {text}"
    assert [headers["Authorization"] for _, headers, _ in provider.requests] == ["Bearer ya29.token-one"] * 2
    assert len(tokens.requests) == 1


def test_a_model_of_another_api_is_named_as_such(agents, program, provider):
    endpoint = factories.make_endpoint("aws", provider="bedrock", base_url=provider.url, key_env="EVALSITE_KEY_TESTS")
    agents.language_models.add(factories.make_model("nova", endpoint=endpoint, max_output_tokens=100))
    answer = ask(program, model="nova")
    assert answer.status_code == 400
    assert "nova" in answer.json()["error"]["message"]
    assert provider.requests == []


@pytest.mark.parametrize("address", [CHAT, MESSAGES])
def test_a_stream_passes_through_and_its_tokens_are_recorded(address, program, agents):
    answer = ask(program, address=address, stream=True)
    assert answer["Content-Type"] == "text/event-stream"
    pieces = list(answer)
    assert len(pieces) > 2, "the stream arrives in pieces"
    text = b"".join(pieces).decode()
    assert "echo" in text
    assert text.rstrip().endswith(("[DONE]", '{"type": "message_stop"}'))
    assert '"prompt_tokens"' not in text, "the program did not ask for the tokens"
    trial = Trial.objects.get(run__condition__stage="external")
    assert (trial.status, trial.answer, trial.cost_usd) == ("done", "echo: hello", COST)
    assert check_counters(agents) == (COST, 0)


def test_a_program_that_asks_for_the_tokens_of_a_stream_gets_them(program):
    text = b"".join(ask(program, stream=True, stream_options={"include_usage": True})).decode()
    assert '"prompt_tokens": 12' in text


@pytest.mark.parametrize("address", [CHAT, MESSAGES])
def test_a_broken_stream_is_an_attempt_whose_reservation_stays(address, program, agents):
    assert b"echo" in b"".join(ask(program, "break", address=address, stream=True)) or address == MESSAGES
    trial = Trial.objects.get(run__condition__stage="external")
    attempt = Attempt.objects.get(trial=trial)
    assert (trial.status, attempt.error_class, attempt.cost_usd) == ("failed", "connection", None)
    spent, reserved = check_counters(agents)
    assert (spent, reserved) == (0, attempt.kept_usd)
    assert reserved > 0


def test_calls_of_tools_reach_the_program_and_the_page(program, agents, client):
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    history = [
        {"role": "user", "content": "find it"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c0", "type": "function", "function": {"name": "walk", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c0", "content": "arrived"},
    ]  # fmt: skip
    answer = ask(program, tools=[tool], messages=history)
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look"
    trial = Trial.objects.get(run__condition__stage="external")
    client.force_login(agents.owner)
    page = client.get(trial.get_absolute_url()).content.decode()
    assert "calls walk" in page
    assert "arrived" in page
    assert "another program" in page


def test_calls_are_listed_by_run_and_are_no_results(program, agents, client):
    ask(program)
    run = Run.objects.get(condition__stage="external")
    client.force_login(agents.owner)
    assert "echo: hello" in client.get("/trials/", {"run": run.pk, "experiment": "agents"}).content.decode()
    assert client.get(run.get_absolute_url()).status_code == 200
    assert client.get("/experiments/agents/progress/").status_code == 200
    assert "Calls of other programs" in client.get("/experiments/agents/ledger/").content.decode()
    reader = make_api_client(agents.owner)
    assert reader.get("/api/v1/experiments/agents/trials").json()["items"] == []
    assert reader.get("/api/v1/experiments/agents").json()["trials"] == 0
    attempts = b"".join(reader.get("/api/v1/experiments/agents/export/attempts.jsonl")).decode()
    assert json.loads(attempts)["stage"] == "external"
    assert json.loads(attempts)["item_key"] is None


def test_a_call_that_may_cost_more_than_is_left_is_refused(program, provider, agents):
    Experiment.objects.filter(pk=agents.pk).update(max_usd=Decimal("0.0001"))
    answer = ask(program)
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "insufficient_quota")
    assert "$0.0001 left" in answer.json()["error"]["message"]
    refused = ask(program, address=MESSAGES)
    assert (refused.status_code, refused.json()["type"]) == (402, "error")
    assert provider.requests == []
    assert not Trial.objects.exists()


def test_a_budget_needs_a_bound_of_each_call(program, agents):
    model = agents.language_models.get(name="small")
    model.max_output_tokens = None
    model.save()
    answer = ask(program, max_tokens=None)
    assert (answer.status_code, "max_tokens" in answer.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"web_search_options": {}},
        {"models": ["dearer"]},
        {"tools": [{"type": "web_search"}]},
        {"n": 1000},
        {"n": -1},
        {"stream": "yes"},
        {"messages": []},
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": ["hello"]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"ttl": "1h"}}]}]},
        {"model": 5},
        {"tools": "all"},
    ],
    ids=str,
)
def test_a_request_that_may_cost_more_than_its_bound_is_refused(fields, program, provider):
    answer = ask(program, **fields)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert provider.requests == []


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"model": "small"}'])
def test_a_body_that_is_no_request_is_refused(body, program):
    answer = program.post(CHAT, body, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_texts_that_the_database_cannot_store_are_replaced(program):
    answer = ask(program, "a\x00b\ud800")
    assert answer.status_code == 200
    assert Trial.objects.get(run__condition__stage="external").messages[0]["content"] == "a\ufffdb\ufffd"


def test_the_labs_key_never_reaches_the_program(program):
    for fields in ({}, {"stream": True}):
        answer = ask(program, "leak", **fields)
        content = b"".join(answer) if answer.streaming else answer.content
        assert b"sk-the-labs-own-key" not in content
    assert not ExternalCall.objects.filter(reply__contains="sk-the-labs-own-key").exists()


def test_an_error_of_the_provider_passes_through_and_pauses_the_endpoint(program, agents):
    answer = ask(program, "fail")
    assert (answer.status_code, answer.json()["error"]["message"]) == (429, "slow down")
    assert answer["Retry-After"] == "1"
    trial = Trial.objects.get(run__condition__stage="external")
    assert (trial.status, trial.error_class) == ("failed", "rate_limited")
    assert Endpoint.objects.get(name="shop").is_paused
    assert check_counters(agents) == (0, 0)


def test_an_address_that_is_not_allowed_is_not_called(program, agents):
    Endpoint.objects.filter(name="shop").update(base_url="http://169.254.169.254/v1")
    answer = ask(program)
    assert (answer.status_code, "Link-local" in answer.json()["error"]["message"]) == (502, True)
    assert check_counters(agents) == (0, 0)


def test_a_key_that_was_missing_counts_with_the_next_call(program, monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.KEPT_S", 60)
    monkeypatch.delenv("EVALSITE_KEY_TESTS")
    refused = ask(program)
    assert refused.status_code == 502
    assert "EVALSITE_KEY_TESTS is not set" in refused.json()["error"]["message"]
    monkeypatch.setenv("EVALSITE_KEY_TESTS", "sk-the-labs-own-key")
    assert ask(program).status_code == 200


def test_only_a_token_of_this_experiment_with_run_may_call(program, agents, team, client):
    other = factories.make_experiment("other", owner=team.owner)
    for fields in ({"scope": "read", "experiment": agents}, {"scope": "admin"}):
        assert ask(make_api_client(team.owner, **fields)).status_code == 403
    assert ask(make_api_client(team.owner, "run", experiment=other)).status_code == 404
    client.force_login(team.owner)
    assert ask(client).status_code == 403
    assert ask(make_bearer("evs_wrong")).json()["error"]["type"] == "authentication_error"
    BlindReading.start(agents, agents.owner)
    blind = ask(program)
    assert (blind.status_code, blind.json()["error"]["type"]) == (403, "permission_error")
    assert not Trial.objects.exists()


def test_models_are_those_of_the_experiment(program, agents):
    factories.make_model("foreign")
    rows = program.get("/gateway/agents/v1/models").json()["data"]
    assert [row["id"] for row in rows] == ["claude-small", "small"]
    answer = ask(program, model="foreign")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    wrong = ask(program, model="claude-small")
    assert (wrong.status_code, "/v1/messages" in wrong.json()["error"]["message"]) == (400, True)


def test_a_recorded_reply_is_reused_only_on_request(program, provider, agents):
    first = ask(program)
    assert ask(program).status_code == 200
    reused = ask(program, headers={"Evalsite-Cache": "reuse"})
    assert (reused.json(), reused["Evalsite-Cache"]) == (first.json(), "reused")
    assert len(provider.requests) == 2
    trial = Trial.objects.filter(run__condition__stage="external").last()
    assert (trial.from_cache, trial.cost_usd) == (True, 0)
    assert ask(program, "another", headers={"Evalsite-Cache": "reuse"}).json() != first.json()
    assert check_counters(agents) == (3 * COST, 0)


def test_the_sweep_ends_a_call_whose_web_process_died(program, agents, monkeypatch):
    monkeypatch.setattr("runs_app.engine.external_queue.record_each", lambda results, worker_id: None)
    assert ask(program).status_code == 200
    trial = Trial.objects.get(run__condition__stage="external")
    assert trial.status == "running"
    expire_leases()
    assert sweep_expired() == 1
    trial.refresh_from_db()
    attempt = Attempt.objects.get(trial=trial)
    assert (trial.status, attempt.outcome, attempt.cost_usd) == ("failed", "lost", None)
    assert check_counters(agents) == (0, attempt.kept_usd)
    assert attempt.kept_usd > COST


def test_failed_calls_are_not_retried_by_the_site(program, agents):
    from runs_app import run_control

    ask(program, "fail")
    assert run_control.retry_failed(agents.runs.all(), by="test") == 0
    assert Trial.objects.get(run__condition__stage="external").status == "failed"


def test_a_snapshot_has_the_calls_of_programs(program, agents):
    ask(program)
    snapshot = make_snapshot(agents, by=agents.owner)
    assert snapshot.counts["rows"]["trials"] == 0, "the trials of the design"
    assert snapshot.counts["rows"]["attempts"] == 1
    assert verify(snapshot.path).problems == []


def test_an_imported_snapshot_has_the_same_calls_and_none_of_the_tokens(program, agents):
    with disable_triggers():
        Dataset.objects.update(content_hash=agents.dataset.hash_items())
    ask(program, headers={"Evalsite-Session": "night run"}, temperature=0.5)
    ask(program, "fail")
    ask(make_api_client(agents.owner, "run", experiment=agents), address=MESSAGES)
    sent = make_snapshot(agents, by="test").path
    copy = import_snapshot(sent, agents.owner).experiment
    columns = ("form", "session", "parameters", "reply", "trial__messages", "trial__answer", "trial__status",
               "trial__cost_usd", "trial__run__condition__content", "trial__run__condition__stage")  # fmt: skip
    calls, copied = (
        list(ExternalCall.objects.filter(trial__run__experiment=one).order_by("trial").values(*columns))
        for one in (agents, copy)
    )
    assert len(calls) == 3
    assert {call["trial__run__condition__stage"] for call in calls} == {"external"}
    assert copied == calls
    assert set(ExternalCall.objects.filter(trial__run__experiment=copy).values_list("token", flat=True)) == {"imported"}
    again = make_snapshot(copy, by="test").path
    assert verify(again).problems == []
    assert verify(again).content == verify(sent).content
    assert copy.spent_usd == Experiment.objects.get(pk=agents.pk).spent_usd > 0
    check_counters(agents)
    for run in copy.runs.with_design():
        assert not run.is_callable_here


def test_a_call_in_flight_refuses_a_snapshot(program, agents, monkeypatch):
    monkeypatch.setattr("runs_app.engine.external_queue.record_each", lambda results, worker_id: None)
    ask(program)
    with pytest.raises(SnapshotError, match="agents is running"):
        make_snapshot(agents, by="test")


ODD = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.sampled_from([1e308, -0.0, "", "x" * 300, "\x00", "\ud800"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "text", "content", "function", "role", "cache_control", "a"]), inner, max_size=3
        ),
    ),
    max_leaves=6,
)
NAMES = [
    "model", "messages", "stream", "stream_options", "tools", "tool_choice", "n", "max_tokens", "max_completion_tokens",
    "system", "metadata", "user", "thinking", "reasoning", "stop", "seed", "unknown",
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    address=st.sampled_from([CHAT, MESSAGES]),
    fields=st.dictionaries(st.sampled_from(NAMES), ODD, max_size=3),
    message=st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "name"]), ODD, max_size=3),
)
def test_odd_requests_are_refused_or_answered(address, fields, message, program, provider):
    messages = [{"role": "user", "content": "hello"}, message, {"role": "user", "content": "bye"}]
    answer = ask(program, address=address, **{"messages": messages, **fields})
    content = b"".join(answer) if answer.streaming else answer.content
    assert answer.status_code in (200, 400, 402, 404), content[:300]


@pytest.mark.parametrize("body", [b'{"temperature": NaN}', b'{"messages": ' + b"[" * 600 + b"]" * 600 + b"}"])
def test_a_body_that_json_does_not_allow_or_too_deep_is_refused(body, program):
    content = b'{"model": "small", ' + body[1:]
    answer = program.post(CHAT, content, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_limit_beyond_any_model_is_refused_without_a_budget_too(program, agents):
    Experiment.objects.filter(pk=agents.pk).update(max_usd=None)
    answer = ask(program, max_tokens=10**30)
    assert (answer.status_code, "max_tokens" in answer.json()["error"]["message"]) == (400, True)
