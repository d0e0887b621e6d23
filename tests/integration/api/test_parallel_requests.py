"""Requests that arrive at the same time: an idempotency key acts once, and an account has one limit."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection

from runs_app.models import ApiAllowance, ApiAnswer, Manifest, Trial
from tests import factories
from tests.factories.people import make_team
from tests.factories.tokens import make_bearer, make_token

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

PARALLEL = 6


def send_together(send):
    """Return what `send` returns in each of several threads that start together."""
    barrier = Barrier(PARALLEL)

    def run(number):
        barrier.wait(timeout=30)
        try:
            return send(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(PARALLEL) as threads:
        return list(threads.map(run, range(PARALLEL)))


def test_parallel_launches_with_one_key_make_one_launch():
    owner = make_team().owner
    draft = factories.make_experiment("draft", owner=owner, models=[factories.make_model(max_output_tokens=100)])
    _, text = make_token(owner, "run")

    def launch(_):
        headers = {"Idempotency-Key": "one launch"}
        address = "/api/v1/experiments/draft/launch"
        return make_bearer(text).post(address, {"wave": "w1"}, content_type="application/json", headers=headers)

    answers = send_together(launch)
    assert [answer.status_code for answer in answers] == [200] * PARALLEL
    assert len({answer.content for answer in answers}) == 1, "all requests get the first answer"
    assert answers[0].json()["is_new"] is True
    assert sum("Idempotent-Replayed" not in answer for answer in answers) == 1
    assert Manifest.objects.filter(experiment=draft).count() == 1
    assert Trial.objects.count() == answers[0].json()["trials_added"]
    assert ApiAnswer.objects.count() == 1


def test_parallel_creations_with_one_key_make_one_experiment():
    owner = make_team().owner
    factories.make_experiment("draft", owner=owner)
    _, text = make_token(owner, "run")
    design = make_bearer(text).get("/api/v1/experiments/draft/design").json() | {"experiment": "copy"}

    def create(_):
        headers = {"Idempotency-Key": "one"}
        return make_bearer(text).post(
            "/api/v1/experiments", {"design": design}, content_type="application/json", headers=headers
        )

    answers = send_together(create)
    assert [answer.status_code for answer in answers] == [201] * PARALLEL
    assert len({answer.content for answer in answers}) == 1


def test_parallel_requests_never_exceed_the_limit_of_an_account(monkeypatch):
    monkeypatch.setattr(ApiAllowance, "BURST", 10)
    monkeypatch.setattr(ApiAllowance, "PER_SECOND", 0)
    owner = make_team().owner
    taken = send_together(lambda _: sum(ApiAllowance.take(owner) for _ in range(5)))
    assert sum(taken) == 10
