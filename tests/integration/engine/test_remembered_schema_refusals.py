"""A provider that refuses a strict schema is not asked with one again for each trial."""

import pytest

from evalsite.lib.permissions import OPERATOR
from grading_app.grading.consistency_check import find_differences
from runs_app.engine import model_state
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Endpoint, LanguageModel
from tests import factories
from tests.factories.engine import build_reply, drain


@pytest.fixture
def rated(transactional_db):
    """A run of 24 ratings, whose requests have a schema, at most two in flight."""
    experiment = factories.make_experiment(
        "rated",
        dataset=factories.make_dataset("some", 24),
        dimensions=[factories.make_dimension()],
        prompts=[factories.make_prompt(answer_format="rating")],
        max_usd=None,
    )
    Endpoint.objects.update(max_concurrency=2)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    return run


async def refuse_schema(request):
    if request.response_format is not None:
        raise CallFailure(ErrorClass.RESPONSE_FORMAT_UNSUPPORTED, "no json_schema here", http_status=400)
    return build_reply('{"rating": 3}')


def count_refusals():
    return Attempt.objects.filter(error_class="response_format_unsupported").count()


def test_only_the_first_calls_are_refused_and_the_model_says_why(rated):
    drain(refuse_schema)
    rated.refresh_from_db()
    assert rated.n_done == 24
    assert 1 <= count_refusals() <= 2
    model = LanguageModel.objects.get()
    assert model.refuses_schema
    assert model.schema_refusal == "no json_schema here"
    assert model.history.get(aspect="strict JSON schema").reason == "no json_schema here"
    assert find_differences() == []


def test_another_worker_asks_without_a_schema_from_its_first_call(rated):
    LanguageModel.objects.update(schema_refused_at=factories.NOON, schema_refusal="no json_schema here")
    drain(refuse_schema)
    assert count_refusals() == 0
    assert Attempt.objects.count() == 24


def test_a_call_without_a_schema_that_fails_too_proves_nothing(rated):
    async def refuse_everything(request):
        raise CallFailure(ErrorClass.RESPONSE_FORMAT_UNSUPPORTED, "no", http_status=400)

    drain(refuse_everything, stop_at=2)
    assert LanguageModel.objects.get().schema_refused_at is None


def test_a_forgotten_refusal_is_tried_again_and_so_is_a_new_address(rated, client):
    drain(refuse_schema)
    model = LanguageModel.objects.get()
    client.force_login(factories.make_user("operator", OPERATOR))
    page = client.get(f"/endpoints/models/{model.pk}/edit/").content.decode()
    assert "no json_schema here" in page
    Endpoint.objects.update(base_url="http://127.0.0.1:10/v1")
    assert not LanguageModel.objects.select_related("endpoint").get().refuses_schema
    client.post(f"/endpoints/models/{model.pk}/schema/")
    model.refresh_from_db()
    assert (model.schema_refused_at, model.schema_refusal) == (None, "")
    assert not model_state.forget_refusal(model, by="test")
