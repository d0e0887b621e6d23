import json
from datetime import date
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction

from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Endpoint, LanguageModel, Preflight
from tests.factories import make_endpoint, make_preflight, make_user
from tests.factories.drafts import make_rehearsal_model

URL = "http://127.0.0.1:9599/v1"


def test_set_creates_an_endpoint_and_then_changes_only_the_named_settings(manage):
    output = manage("endpoint", "set", "lab", "--provider", "hosted_vllm", "--base-url", URL, "--free")
    changed = manage("endpoint", "set", "lab", "--max-concurrency", 5, "--key-env", "EVALSITE_KEY_LAB", "--not-free")
    endpoint = Endpoint.objects.get()
    assert (output.code, changed.code) == (0, 0)
    assert (endpoint.provider, endpoint.base_url, endpoint.max_concurrency) == ("hosted_vllm", URL, 5)
    assert (endpoint.is_free, endpoint.key_env) == (False, "EVALSITE_KEY_LAB")


def test_rate_limits_are_set_shown_kept_and_removed(manage):
    manage("endpoint", "set", "lab", "--rpm", 20, "--tpm", 1000, "--rpd", 500, "--day-zone", "America/New_York")
    assert (
        "at most 20 requests per minute, 1000 tokens per minute, 500 requests per day" in manage("endpoint", "list").out
    )
    manage("endpoint", "set", "lab", "--rpm", 0, "--not-adaptive")
    endpoint = Endpoint.objects.get()
    assert (endpoint.requests_per_minute, endpoint.tokens_per_minute, endpoint.requests_per_day) == (None, 1000, 500)
    assert (endpoint.day_zone, endpoint.adaptive) == ("America/New_York", False)


def test_retry_routes_and_local_server_settings_are_set_listed_and_removed(manage):
    manage("endpoint", "set", "router", "--provider", "openrouter", "--routes", "north, south")
    manage("endpoint", "set", "bench", "--provider", "ollama_chat", "--local-server", "ollama")
    listed = {row["name"]: row for row in json.loads(manage("endpoint", "list", "--json").out)}
    assert listed["router"]["provider_routes"] == ["north", "south"]
    assert listed["bench"]["local_server"] == "ollama"
    result = manage("endpoint", "set", "bench", "--routes", "north")
    assert (result.code, "provider_routes" in result.err) == (2, True)
    manage("endpoint", "set", "router", "--routes", "")
    manage("endpoint", "set", "bench", "--local-server", "none")
    assert set(Endpoint.objects.values_list("local_server", flat=True)) == {""}
    assert Endpoint.objects.get(name="router").provider_routes == []


def test_a_model_is_set_to_mark_prompts_for_the_providers_cache(manage):
    make_rehearsal_model("small")
    for flag, marks in (("--cache-marks", True), ("--no-cache-marks", False)):
        manage("model", "set", "small", flag)
        assert json.loads(manage("model", "list", "--json").out)[0]["cache_marks"] is marks


@pytest.mark.parametrize(
    ("option", "value", "field"),
    [
        ("--base-url", "http://evil.example/v1", "base_url"),
        ("--key-env", "sk-secret", "key_env"),
        ("--key-env", "EVALSITE_SECRET_KEY", "key_env"),
        ("--key-env", "DATABASE_URL", "key_env"),
        ("--max-concurrency", "0", "max_concurrency"),
        ("--rpm", "-1", "requests_per_minute"),
        ("--day-zone", "Mars/Olympus", "day_zone"),
    ],
)
def test_a_value_that_is_refused_is_named_and_nothing_is_saved(manage, option, value, field):
    result = manage("endpoint", "set", "lab", option, value)
    assert result.code == 2
    assert result.err.startswith(f"{field}: ")
    assert not Endpoint.objects.exists()


def test_list_shows_whether_the_key_is_set_but_never_the_key(manage, monkeypatch):
    make_endpoint("lab", key_env="EVALSITE_KEY_LAB")
    assert "EVALSITE_KEY_LAB (not set here)" in manage("endpoint", "list").out
    monkeypatch.setenv("EVALSITE_KEY_LAB", "sk-very-secret")
    listed = manage("endpoint", "list")
    assert "EVALSITE_KEY_LAB (set here)" in listed.out
    assert "secret" not in listed.out + manage("endpoint", "list", "--json").out


def test_model_set_writes_prices_with_their_source_and_date(manage):
    make_endpoint("lab")
    output = manage(
        "model", "set", "large", "--endpoint", "lab", "--model", "vendor/large", "--input-price", "0.5",
        "--output-price", "1.5", "--price-source", "price list", "--price-date", "2026-01-31",
    )  # fmt: skip
    model = LanguageModel.objects.get()
    assert output.code == 0
    assert (model.input_price, model.output_price) == (Decimal("0.5"), Decimal("1.5"))
    assert (model.price_source, model.price_date) == ("price list", date(2026, 1, 31))
    assert "$0.5 in, $1.5 out per million tokens (price list, 2026-01-31)" in output.out


def test_a_new_price_gets_a_date(manage):
    make_rehearsal_model("large", price_date=None, input_price=None, output_price=None)
    manage("model", "set", "large", "--input-price", "2")
    assert LanguageModel.objects.get().price_date is not None


def test_a_price_without_a_source_is_refused_with_the_field(manage):
    make_endpoint("lab")
    words = ("model", "set", "large", "--endpoint", "lab", "--model", "vendor/large", "--input-price", "2")
    result = manage(*words)
    assert (result.code, result.err.startswith("price_source: Enter the source of the prices")) == (2, True)
    assert not LanguageModel.objects.exists()
    assert manage(*words, "--price-source", "a contract").code == 0


@pytest.mark.parametrize("lost", [{"price_source": ""}, {"price_date": None}])
def test_the_database_refuses_a_price_without_source_and_date(db, lost):
    model = make_rehearsal_model("large")
    with pytest.raises(IntegrityError, match="languagemodel_price_has_source"), transaction.atomic():
        LanguageModel.objects.filter(pk=model.pk).update(**lost)
    LanguageModel.objects.update(
        input_price=None, output_price=None, cache_read_price=None, cache_write_price=None, **lost
    )


def test_models_are_listed_with_outdated_preflights(manage):
    model = make_rehearsal_model("large")
    make_preflight(model)
    assert "check again" not in manage("model", "list").out
    manage("endpoint", "set", model.endpoint.name, "--base-url", "http://127.0.0.1:9600/v1")
    assert "ok. Checked before the endpoint changed on " in manage("model", "list").out
    assert json.loads(manage("model", "list", "--json").out)[0]["check_is_outdated"] is True
    make_preflight(model)
    assert "check again" not in manage("model", "list").out


def test_a_model_without_a_price_is_listed_as_unknown_never_as_free(manage):
    make_rehearsal_model("large", input_price=None)
    assert "price unknown" in manage("model", "list").out
    assert json.loads(manage("model", "list", "--json").out)[0]["input_price"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "x"], "endpoint: a new model needs --endpoint NAME"),
        (
            ["--endpoint", "nowhere", "--model", "x"],
            "endpoint: there is no endpoint nowhere; create it with `endpoint set`",
        ),
        (["--endpoint", "lab", "--model", "x", "--input-price", "cheap"], "input_price: 'cheap' is not a number"),
        (
            ["--endpoint", "lab", "--model", "x", "--price-source", "a list", "--input-price", "-1"],
            "input_price: Must be between 0 and 100,000 US dollars per million tokens.",
        ),
        (
            ["--endpoint", "lab", "--model", "x", "--price-source", "a list", "--input-price", "NaN"],
            "input_price: “NaN” value must be a decimal number.",
        ),
        (
            ["--endpoint", "lab", "--model", "x", "--price-date", "today"],
            "price_date: 'today' is not a date; use YYYY-MM-DD",
        ),
        (["--endpoint", "lab"], "model: This field cannot be blank."),
    ],
)
def test_invalid_model_settings_are_refused_with_the_field(manage, words, message):
    make_endpoint("lab")
    result = manage("model", "set", "large", *words)
    assert (result.code, result.err) == (2, message)
    assert not LanguageModel.objects.exists()


def test_check_calls_each_model_and_exits_with_1_if_one_fails(manage, monkeypatch):
    async def fail_call(request):
        raise CallFailure(ErrorClass.UNAUTHORIZED, "no such key")

    monkeypatch.setattr(gateway, "call", fail_call)
    monkeypatch.setattr(gateway, "warm_up", lambda: None)
    make_user("root", superuser=True)
    make_rehearsal_model("large")
    checked = manage("endpoint", "check", "rehearsal", "--user", "root")
    assert checked.code == 1
    assert "dead" in checked.out
    preflight = Preflight.objects.get()
    assert (preflight.status, preflight.by.username, preflight.experiment, preflight.was_made) == (
        "dead",
        "root",
        None,
        True,
    )
    listed = json.loads(manage("model", "list", "--json").out)
    assert [model["check"] for model in listed] == ["dead"]


def test_check_of_an_endpoint_without_models_says_so(manage):
    make_endpoint("lab")
    assert manage("endpoint", "check", "lab").err == "name: endpoint lab has no models; create one with `model set`"
    assert manage("endpoint", "check", "nowhere").code == 2
