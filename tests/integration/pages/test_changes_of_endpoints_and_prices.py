"""Changes of endpoints and models are recorded with author, old value and reason, and shown on their pages."""

import re
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.forms import model_to_dict

from evalsite.lib.history import StatusChange, format_for_history
from runs_app import model_lists
from runs_app.models import Endpoint, LanguageModel
from runs_app.views.endpoints import EndpointForm, LanguageModelForm
from tests import factories


@pytest.fixture
def model(people):
    return factories.make_model("small")


def list_changes(row):
    changes = StatusChange.objects.for_row(row).order_by("pk")
    return [(one.aspect, one.from_value, one.to_value, one.actor, one.reason) for one in changes]


def build_form_data(form_of, row, **changes):
    """Return the data that the row's form submits, with these changes."""
    initial = model_to_dict(row, form_of.Meta.fields) | {"provider_routes": ""} | changes
    return {name: value for name, value in initial.items() if value is not None}


def test_prices_and_limits_changed_on_pages_have_a_history_with_the_reason(model, as_):
    operator = as_("operator")
    address = f"/endpoints/models/{model.pk}/edit/"
    assert "No changes yet" in operator.get(address).content.decode()
    form_data = build_form_data(
        LanguageModelForm, model, input_price="3.5", cache_read_price="0.1", reason="the list of May"
    )
    assert operator.post(address, form_data).status_code == 302
    assert list_changes(model) == [
        ("input price", "1", "3.5", "operator", "the list of May"),
        ("cache read price", "none", "0.1", "operator", "the list of May"),
    ]
    page = operator.get(address).content.decode()
    assert "the list of May" in page
    assert "input price" in page
    address = f"/endpoints/{model.endpoint_id}/edit/"
    form_data = build_form_data(
        EndpointForm, model.endpoint, max_concurrency=4, requests_per_minute=60, is_active=False
    )
    operator.post(address, {name: value for name, value in form_data.items() if value is not False})
    assert list_changes(model.endpoint) == [
        ("max concurrency", "16", "4", "operator", ""),
        ("active", "yes", "no", "operator", ""),
        ("requests per minute", "none", "60", "operator", ""),
    ]
    assert as_("researcher").get(address).status_code == 404


@pytest.mark.parametrize("address", ["/endpoints/models/{}/edit/", "/admin/runs_app/languagemodel/{}/change/"])
def test_a_price_with_a_decimal_comma_is_read_as_written(model, client, address):
    """A number input of a browser makes 15 of 0,15."""
    client.force_login(factories.make_user("root", superuser=True))
    address = address.format(model.pk)
    page = client.get(address).content.decode()
    assert re.search(r'<input type="text" name="input_price" value="1(\.0*)?"', page)
    form_data = build_form_data(LanguageModelForm, model, input_price="0,15")
    assert client.post(address, form_data).status_code == 302
    assert LanguageModel.objects.get().input_price == Decimal("0.15")


def test_saving_an_unchanged_form_changes_nothing(model, as_):
    """The form data are those of a browser, which leaves a date empty if it cannot parse it."""
    LanguageModel.objects.update(price_date="2026-05-01", price_source="a list", batch_discount="0.25")
    operator, address = as_("operator"), f"/endpoints/models/{model.pk}/edit/"
    fields = operator.get(address).context["form"]
    values = {field.html_name: field.value() for field in fields if field.value() not in (None, False)}
    values["price_date"] = re.search(r'name="price_date" value="(\d{4}-\d\d-\d\d)"', str(fields["price_date"]))[1]
    assert operator.post(address, values).status_code == 302
    assert list_changes(model) == []


def test_commands_record_changes_with_the_named_author(model):
    options = {"user": "operator", "reason": "slower"}
    call_command("endpoint", "set", "lab", "--max-concurrency", "8", "--user", "operator", "--reason", "slower")
    call_command("endpoint", "set", "fresh", "--free", "--base-url", "http://127.0.0.1:9/v1")
    call_command("model", "set", "small", "--input-price", "2", "--price-source", "a contract", "--user", "operator")
    assert list_changes(model.endpoint) == [("max concurrency", "16", "8", *options.values())]
    (creation,) = list_changes(Endpoint.objects.get(name="fresh"))
    assert (creation[2], creation[3][:12]) == ("created", "command line")
    assert {change[:4] for change in list_changes(model)} >= {
        ("input price", "1", "2", "operator"), ("price source", "test", "a contract", "operator"),
    }  # fmt: skip


def test_a_copied_list_price_is_recorded_and_unchanged_prices_are_not(model, as_, people):
    unread = LanguageModel.objects.get(pk=model.pk)
    LanguageModel.objects.update(max_output_tokens=50)
    before = {"input_price": Decimal(1), "output_price": Decimal(2)}
    listed = model_lists.Repricing(unread, before, before | {"input_price": Decimal("2.5")})
    assert model_lists.apply_repricings([listed], by=people["operator"]) == 1
    assert [change[0] for change in list_changes(model)] == ["input price", "price source", "price date"]
    assert list_changes(model)[0][:4] == ("input price", "1", "2.5", "operator")
    assert LanguageModel.objects.get().max_output_tokens == 50


def test_the_admin_records_changes_and_deletions(model, client):
    client.force_login(factories.make_user("root", superuser=True))
    form_data = build_form_data(LanguageModelForm, model, output_price="4")
    assert client.post(f"/admin/runs_app/languagemodel/{model.pk}/change/", form_data).status_code == 302
    assert list_changes(model) == [("output price", "2", "4", "root", "")]
    assert "output price" in client.get(f"/admin/runs_app/languagemodel/{model.pk}/change/").content.decode()
    assert client.get("/admin/runs_app/languagemodel/add/").status_code == 200
    client.post(f"/admin/runs_app/languagemodel/{model.pk}/delete/", {"post": "yes"})
    assert not LanguageModel.objects.exists()
    assert list_changes(model)[-1] == ("status", "small", "deleted", "root", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "none"), ("", "none"), ([], "none"), (["a", "b"], "a, b"), (True, "yes"), (Decimal("10.000"), "10")],
)
def test_values_in_the_history_are_readable(value, text):
    assert format_for_history(value) == text
