"""List prices are copied from the litellm package with source and date; unlisted models are named."""

import json
from datetime import date
from decimal import Decimal

import pytest

from runs_app import model_lists
from runs_app.models import Endpoint, LanguageModel
from runs_app.pricing import tokens
from tests.factories import make_endpoint
from tests.factories.drafts import make_rehearsal_model

LISTED = {
    "gpt-4o": {
        "litellm_provider": "openai",
        "input_cost_per_token": 2.5e-06,
        "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": 1.25e-06,
    },
    "claude-fine": {
        "litellm_provider": "anthropic",
        "input_cost_per_token": 3e-06,
        "output_cost_per_token": 1.5e-05,
        "cache_creation_input_token_cost": 3.75e-06,
        "input_cost_per_token_above_200k_tokens": 6e-06,
    },
    "gemini/gemini-flash": {
        "litellm_provider": "gemini",
        "input_cost_per_token": 1e-07,
        "output_cost_per_token": 4e-07,
    },
    "embedder": {"litellm_provider": "openai", "input_cost_per_token": 1e-07},
}


@pytest.fixture(autouse=True)
def list_prices(tmp_path, monkeypatch):
    (tmp_path / model_lists.LIST).write_text(json.dumps(LISTED))
    monkeypatch.setattr(tokens, "find_litellm_folder", lambda: tmp_path)


def make_priced_model(provider, name, model, **fields):
    endpoint = make_endpoint(f"at-{provider}", provider=provider)
    return make_rehearsal_model(
        name, endpoint=endpoint, **({"model": model, "input_price": None, "output_price": None} | fields)
    )


def test_a_price_is_copied_with_source_and_date_and_old_and_new_values_are_printed(manage):
    make_priced_model("openai", "big", "gpt-4o", input_price=Decimal("5"), cache_write_price=Decimal("1"))
    result = manage("model", "price", "big")
    model = LanguageModel.objects.get()
    assert result.code == 0
    assert "big: input $5 -> $2.5, output unknown -> $10, cache read unknown -> $1.25, cache write $1 -> unknown" in (
        result.out
    )
    assert (model.input_price, model.output_price) == (Decimal("2.5"), Decimal("10"))
    assert (model.cache_read_price, model.cache_write_price) == (Decimal("1.25"), None)
    assert model.price_source == model_lists.get_source_name()
    assert abs((model.price_date - date.today()).days) <= 1  # noqa: DTZ011


def test_each_provider_has_its_own_names_in_the_list(manage):
    make_priced_model("anthropic", "fine", "claude-fine")
    make_priced_model("gemini", "flash", "gemini-flash")
    result = manage("model", "price", "fine", "flash")
    prices = dict(LanguageModel.objects.values_list("name", "input_price"))
    assert prices == {"fine": Decimal("3"), "flash": Decimal("0.1")}
    assert "dearer above 200k tokens, which Evalsite does not apply" in result.out


@pytest.mark.parametrize(
    ("provider", "model"),
    [("openai", "no-such-model"), ("openrouter", "gpt-4o"), ("hosted_vllm", "gpt-4o"), ("openai", "embedder")],
)
def test_a_named_model_without_a_list_price_stops_the_command_without_changes(manage, provider, model):
    make_priced_model("openai", "big", "gpt-4o")
    make_priced_model(provider, "other", model)
    result = manage("model", "price", "big", "other")
    assert result.code == 2
    assert f"lists no price of {model} at {provider}" in result.err
    assert not LanguageModel.objects.exclude(input_price=None).exists()


def test_all_copies_the_listed_prices_and_names_the_other_models(manage):
    make_priced_model("openai", "big", "gpt-4o")
    make_priced_model("openai", "own", "no-such-model")
    make_priced_model("openai", "old", "gpt-4o", is_active=False)
    make_rehearsal_model("gratis", endpoint=make_endpoint("free", is_free=True), model="gpt-4o", input_price=None)
    result = manage("model", "price", "--all")
    assert result.code == 0
    assert list(LanguageModel.objects.filter(input_price=Decimal("2.5")).values_list("name", flat=True)) == ["big"]
    assert "own: " in result.out
    assert "gratis: its endpoint is free" in result.out
    assert "old: " not in result.out
    assert "1 models priced from" in result.out


def test_a_dry_run_prints_prices_and_changes_nothing(manage):
    make_priced_model("openai", "big", "gpt-4o")
    result = manage("model", "price", "--all", "--dry-run")
    assert "input unknown -> $2.5" in result.out
    assert LanguageModel.objects.get().input_price is None


@pytest.mark.parametrize("given", [[], ["big", "--all"], ["nobody"]])
def test_it_requires_names_or_all(manage, given):
    make_priced_model("openai", "big", "gpt-4o")
    result = manage("model", "price", *given)
    assert result.code == 2
    assert result.err.startswith("name: ")


def test_copying_prices_again_changes_only_the_date(manage):
    make_priced_model("openai", "big", "gpt-4o")
    manage("model", "price", "big")
    assert "big: matches the list" in manage("model", "price", "big").out


def test_an_operator_copies_prices_on_the_page_of_endpoints(client, django_user_model):
    big = make_priced_model("openai", "big", "gpt-4o")
    make_priced_model("openai", "own", "no-such-model")
    client.force_login(django_user_model.objects.create_superuser("olga"))
    page = client.post(f"/endpoints/{big.endpoint_id}/prices/", follow=True)
    big.refresh_from_db()
    assert big.input_price == Decimal("2.5")
    text = page.content.decode()
    assert "1 of 2 models have prices from litellm" in text
    assert "lists no price of no-such-model at openai" in text
    assert "Update prices" in text
    Endpoint.objects.update(provider="hosted_vllm")
    assert "Update prices" not in client.get("/endpoints/").content.decode()
