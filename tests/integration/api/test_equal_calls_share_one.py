"""Equal requests that reuse replies pay for one call, also while it is in flight."""

import asyncio
import json
from decimal import Decimal

import pytest

from evalsite.api.gateway_api import OPENAI, Access, answer_call
from grading_app.grading.consistency_check import compare_counters
from runs_app.engine.external_queue import Executors, ExternalQueue
from runs_app.llm.http_transport import close_session
from runs_app.models import Trial
from tests import factories
from tests.factories.model_server import model_server
from tests.factories.tokens import make_token
from tests.integration.api.test_calls_are_admitted_in_groups import run_in_loop

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.KEPT_S", 0)
    with model_server() as (url, server):
        server.url = url
        yield server


@pytest.fixture
def access(team, provider):
    endpoint = factories.make_endpoint("shop", base_url=f"{provider.url}/v1")
    model = factories.make_model("small", endpoint=endpoint, input_price=Decimal(1), output_price=Decimal(2))
    experiment = factories.make_experiment("agents", owner=team.owner, models=[model], max_usd=Decimal(1))
    token = make_token(team.owner, "run", experiment=experiment)[0]
    return Access(token.pk, str(token), experiment)


def ask_together(access, texts, **fields):
    """Return the bodies of the replies to requests that a program sends at the same time."""

    async def ask(queue, text):
        body = {"model": "small", "max_tokens": 50, "messages": [{"role": "user", "content": text}], **fields}
        reply = await answer_call(queue, access, OPENAI, {"evalsite-cache": "reuse"}, json.dumps(body).encode())
        return reply.body or b"".join([piece async for piece in reply.pieces])

    async def run(thread):
        queue = ExternalQueue(Executors(thread, thread, thread))
        bodies = await asyncio.gather(*(ask(queue, text) for text in texts))
        await queue.finish()
        await close_session()
        assert queue.in_flight == {}
        return bodies

    return run_in_loop(run)


@pytest.mark.parametrize("fields", [{}, {"stream": True, "stream_options": {"include_usage": True}}], ids=str)
def test_equal_requests_at_the_same_time_are_one_paid_call(fields, access, provider):
    bodies = ask_together(access, ["hello"] * 4, **fields)
    assert len(set(bodies)) == 1
    assert b"hello" in bodies[0]
    assert len(provider.requests) == 1
    trials = Trial.objects.filter(run__condition__stage="external")
    assert sorted(trial.from_cache for trial in trials) == [False, True, True, True]
    assert sum(trial.cost_usd for trial in trials) == Decimal("0.00002")
    assert compare_counters() == []


def test_other_requests_at_the_same_time_are_calls_of_their_own(access, provider):
    ask_together(access, ["hello", "hello", "bye"])
    assert len(provider.requests) == 2


def test_a_request_is_made_again_if_the_equal_call_in_flight_failed(access, provider):
    ask_together(access, ["fail", "fail"])
    assert [trial.status for trial in Trial.objects.all()] == ["failed", "failed"]
    assert len(provider.requests) == 2
