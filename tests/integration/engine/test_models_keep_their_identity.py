"""A model with calls keeps its id and provider, by triggers, so that condition snapshots stay true."""

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import DatabaseError, transaction
from django.urls import reverse

from grading_app.grading.consistency_check import find_differences
from runs_app.engine.recorder import record_results
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Endpoint, LanguageModel
from runs_app.views.endpoints import EndpointForm, LanguageModelForm
from tests import factories
from tests.factories.call_outcomes import build_outcome_result
from tests.factories.engine import admit


def update_refused(rows, **change):
    with pytest.raises(DatabaseError) as refusal, transaction.atomic():
        rows.update(**change)
    return str(refusal.value)


def fill_form(row, **change):
    data = {"name": row.name, "endpoint": row.endpoint_id, "model": row.model, "batch_discount": "0.5"}
    return LanguageModelForm(
        {**data, "price_source": "a list", "input_price": 1, "output_price": 2, **change}, instance=row
    )


def test_bare_sql_cannot_change_the_id_or_provider_of_a_used_model(run):
    other_endpoint = factories.make_endpoint("other", provider="anthropic")
    assert "it keeps its id vendor/small" in update_refused(LanguageModel.objects.all(), model="vendor/large")
    assert "it keeps its provider" in update_refused(LanguageModel.objects.all(), endpoint=other_endpoint)
    assert "it keeps its provider openai" in update_refused(Endpoint.objects.filter(name="lab"), provider="openrouter")


def test_a_used_model_can_move_to_another_endpoint_of_its_provider(run):
    elsewhere = factories.make_endpoint("elsewhere")
    LanguageModel.objects.update(endpoint=elsewhere)
    claims = admit(WorkerRegistration().worker_id, 10)
    assert {claim.counter_keys.endpoint_id for claim in claims} == {elsewhere.pk}
    assert find_differences() == []


def test_a_model_cannot_move_while_its_calls_are_in_flight(run):
    """A lost claim is subtracted from the model's current endpoint, so the endpoint must not change before that."""
    worker = WorkerRegistration().worker_id
    claims = admit(worker, 2)
    elsewhere = factories.make_endpoint("elsewhere")
    assert "has calls in flight or in batches" in update_refused(LanguageModel.objects.all(), endpoint=elsewhere)
    form = fill_form(LanguageModel.objects.get(), endpoint=elsewhere.pk)
    assert form.errors["endpoint"] == ["Calls to this model are in flight or in batches. Pause its runs and wait."]
    record_results([build_outcome_result(claim, ("answer", None)) for claim in claims], worker)
    form = fill_form(LanguageModel.objects.get(), endpoint=elsewhere.pk)
    assert form.is_valid(), form.errors
    form.save()
    assert find_differences() == []


def test_an_unused_model_can_change_its_id_and_provider(transactional_db):
    model = factories.make_model()
    other_endpoint = factories.make_endpoint("other", provider="anthropic")
    form = fill_form(model, model="vendor/large", endpoint=other_endpoint.pk)
    assert form.is_valid(), form.errors
    form.save()
    Endpoint.objects.filter(name="other").update(provider="openrouter")
    assert LanguageModel.objects.get().identity == {"provider": "openrouter", "model": "vendor/large"}


def test_the_page_shows_fixed_fields_and_how_to_change_them(run, client):
    client.force_login(User.objects.get(username="operator"))
    page = client.get(reverse("model_edit", args=[LanguageModel.objects.get().pk])).content.decode()
    assert "To change the ID, create a new model" in page
    form_data = {
        "name": "small",
        "endpoint": Endpoint.objects.get().pk,
        "model": "vendor/large",
        "batch_discount": "0.5",
    }
    client.post(reverse("model_edit", args=[LanguageModel.objects.get().pk]), form_data)
    assert LanguageModel.objects.get().model == "vendor/small"
    page = client.get(reverse("endpoint_edit", args=[Endpoint.objects.get().pk])).content.decode()
    assert "To change the provider, create a new endpoint" in page


def test_model_validation_names_the_fixed_field(run):
    model, endpoint = LanguageModel.objects.get(), Endpoint.objects.get()
    model.model, endpoint.provider = "vendor/large", "anthropic"
    for row, field in ((model, "model"), (endpoint, "provider")):
        with pytest.raises(ValidationError, match="settings of earlier calls cannot change") as caught:
            row.full_clean()
        assert list(caught.value.message_dict) == [field]
    assert EndpointForm(instance=Endpoint.objects.get()).fields["provider"].disabled
