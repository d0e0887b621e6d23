"""A host that an operator allowed for one endpoint is called by that endpoint alone."""

import asyncio

import pytest
from django.core.exceptions import ValidationError

from runs_app import model_lists
from runs_app.engine.requests import build_target
from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, CallRequest, ErrorClass
from tests import factories

HOST = "models.example.invalid:8001"  # It has no address, so an allowed call fails at the connection.
URL = f"http://{HOST}/v1"


def call(**fields):
    async def make():
        try:
            await gateway.call(CallRequest("openai", "big", URL, None, [{"role": "user", "content": "hi"}], **fields))
        finally:
            await gateway.close_session()

    with pytest.raises(CallFailure) as failure:
        asyncio.run(make())
    return failure.value.error_class


@pytest.mark.slow
def test_the_gateway_calls_the_host_only_for_a_request_that_carries_the_permission():
    assert call() == ErrorClass.NOT_ALLOWED
    assert call(allowed_host="other.example.invalid:8001") == ErrorClass.NOT_ALLOWED
    assert call(allowed_host=HOST) == ErrorClass.UNREACHABLE


@pytest.mark.django_db
def test_an_endpoint_passes_its_permission_on_to_its_calls_and_its_list_of_models():
    endpoint = factories.make_endpoint("lab", base_url=URL)
    with pytest.raises(ValidationError, match="not on the list of allowed hosts"):
        endpoint.full_clean()
    with pytest.raises(CallFailure) as failure:
        model_lists.fetch_models(endpoint)
    assert failure.value.error_class == ErrorClass.NOT_ALLOWED
    endpoint.allowed_host = HOST
    endpoint.full_clean()
    endpoint.save()
    model = factories.make_model("big", endpoint=endpoint)
    assert build_target(model, 5).allowed_host == HOST
    with pytest.raises(CallFailure) as failure:
        model_lists.fetch_models(endpoint)
    assert failure.value.error_class != ErrorClass.NOT_ALLOWED
    endpoint.base_url = "http://elsewhere.example.invalid/v1"
    with pytest.raises(ValidationError, match="not on the list of allowed hosts"):
        endpoint.full_clean()
