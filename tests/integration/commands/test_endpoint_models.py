"""The endpoint's own list of models is shown with its changes, and the chosen models are stored with its prices."""

import json
from decimal import Decimal

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.history import StatusChange
from evalsite.lib.permissions import OPERATOR
from runs_app import model_lists
from runs_app.llm.calls import CallFailure
from runs_app.models import LanguageModel
from tests import factories
from tests.integration.gateway.fake_provider import run_fake_provider

OPENROUTER = {
    "data": [
        {
            "id": "vendor/large-2",
            "context_length": 200_000,
            "architecture": {"input_modalities": ["text", "image"]},
            "pricing": {
                "prompt": "0.000003", "completion": "0.000015", "request": "0", "input_cache_read": "0.0000003",
            },
            "top_provider": {"max_completion_tokens": 8192},
        },
        {"id": "vendor/text", "architecture": {"input_modalities": ["text"]}, "pricing": {"prompt": "0.0000001"}},
        {"id": "vendor/search", "pricing": {"prompt": "0.000001", "completion": "0.000002", "request": "0.01"}},
        {"id": "vendor/auto", "pricing": {"prompt": "-1", "completion": "-1"}},
    ]
}  # fmt: skip
OPENAI = {"object": "list", "data": [{"id": "gpt-x", "object": "model", "created": 1, "owned_by": "lab"}]}


@pytest.fixture
def fake():
    with run_fake_provider() as provider:
        provider.listing = OPENROUTER
        yield provider


@pytest.fixture
def router(db, fake):
    return factories.make_endpoint("router", base_url=fake.url, provider="openrouter", key_env="EVALSITE_KEY_ROUTER")


def read_list(manage, *words):
    return {row["model"]: row for row in json.loads(manage("endpoint", "models", "router", "--json", *words).out)}


def test_the_list_shows_prices_per_million_tokens_and_changes_nothing(manage, router, fake, monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_ROUTER", "secret-of-the-router")
    listed = read_list(manage)
    large = listed["vendor/large-2"]
    assert {name: Decimal(large[name]) for name in ("input_price", "output_price", "cache_read_price")} == {
        "input_price": Decimal(3), "output_price": Decimal(15), "cache_read_price": Decimal("0.3"),
    }  # fmt: skip
    assert large["cache_write_price"] is None
    assert (large["context_length"], large["max_output_tokens"], large["sees_images"]) == (200_000, 8192, True)
    assert large["name"] == "vendor-large-2"
    assert not LanguageModel.objects.exists()
    assert fake.last.path == "GET /models"
    assert fake.last.headers["authorization"] == "Bearer secret-of-the-router"


def test_chosen_models_are_added_with_the_list_as_their_price_source(manage, router):
    assert manage("endpoint", "models", "router", "--add", "vendor/large-2").code == 0
    model = LanguageModel.objects.get()
    assert (model.model, model.input_price, model.output_price) == ("vendor/large-2", 3, 15)
    assert (model.max_output_tokens, model.sees_images, model.cache_write_price) == (8192, True, None)
    assert model.price_source == f"model list of {router.base_url}"
    assert model.price_date == timezone.now().date()


def test_prices_that_the_list_does_not_state_stay_unknown(manage, router):
    manage("endpoint", "models", "router", "--add", "vendor/text", "vendor/search", "vendor/auto")
    prices = dict(LanguageModel.objects.values_list("model", "output_price"))
    assert prices == {"vendor/text": None, "vendor/search": None, "vendor/auto": None}
    assert "charges for each request" in manage("endpoint", "models", "router").out


def test_an_update_changes_only_models_of_the_site_and_records_the_old_price(manage, router):
    model = factories.make_model("mine", endpoint=router, model="vendor/large-2")
    outcome = manage("endpoint", "models", "router", "--update", "--reason", "spring prices")
    assert "input $1 -> $3" in outcome.out
    model.refresh_from_db()
    assert (model.name, model.input_price, model.cache_read_price) == ("mine", 3, Decimal("0.3"))
    assert LanguageModel.objects.count() == 1
    change = StatusChange.objects.for_row(model).get(aspect="input price")
    assert (change.from_value, change.reason) == ("1", "spring prices")


def test_a_plain_list_of_ids_keeps_the_prices_that_were_set_by_hand(manage, router, fake):
    fake.listing = OPENAI
    model = factories.make_model("mine", endpoint=router, model="gpt-x")
    assert "no change" in manage("endpoint", "models", "router").out
    manage("endpoint", "models", "router", "--update")
    model.refresh_from_db()
    assert (model.input_price, model.price_source) == (1, "test")


@pytest.mark.parametrize("listing", [None, b"<html>", {"data": []}, {"data": "none"}, {"data": [{"id": 7}]}])
def test_a_reply_without_models_is_an_error_that_changes_nothing(manage, router, fake, listing):
    fake.listing = listing
    outcome = manage("endpoint", "models", "router", "--update")
    assert outcome.code != 0
    assert "the list of router was not read" in outcome.err


def test_a_host_that_is_not_allowed_is_never_asked(manage, router, fake):
    type(router).objects.update(base_url="http://models.example.net/v1")
    outcome = manage("endpoint", "models", "router")
    assert "not on the list of allowed hosts" in outcome.err
    assert fake.requests == []


def test_a_list_that_is_too_long_is_refused(manage, router, fake):
    fake.listing = b'{"data": [' + b" " * (17 * 2**20) + b"]}"
    assert "longer than 16 MB" in manage("endpoint", "models", "router").err


def test_an_unlisted_model_is_refused_by_name(manage, router):
    outcome = manage("endpoint", "models", "router", "--add", "vendor/large-2", "vendor/none")
    assert (outcome.code, LanguageModel.objects.count()) == (2, 0)
    assert "does not list vendor/none" in outcome.err


def test_an_operator_fetches_the_list_and_saves_chosen_models_on_the_page(client, router):
    client.force_login(factories.make_user("operator", OPERATOR))
    address = f"/endpoints/{router.pk}/models/"
    assert b"vendor/large-2" not in client.get(address).content
    page = client.post(address).content.decode()
    assert "vendor/large-2" in page
    assert "new, as vendor-large-2" in page
    # Prices in the form are ignored: the list is fetched again.
    client.post(address, {"model": ["vendor/large-2"], "input_price": "0"})
    assert LanguageModel.objects.get().input_price == 3


values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20), st.lists)
prices = st.dictionaries(st.sampled_from(["prompt", "completion", "request", "input_cache_read"]), values)
entries = st.dictionaries(
    st.sampled_from(["id", "pricing", "context_length", "architecture", "top_provider"]), values | prices
)


@given(st.dictionaries(st.just("data"), st.lists(entries) | values))
def test_any_reply_is_a_list_of_valid_models_or_a_failure(payload):
    try:
        listed = model_lists.parse_models(payload)
    except CallFailure:
        return
    for model in listed:
        assert all(price is None or 0 <= price <= 100_000 for price in model.prices.values())
