"""Batches at a provider without schemas: a refused call is repeated without its schema; both are recorded."""

from dataclasses import replace

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.llm import gateway
from runs_app.models import Attempt, Experiment, ProviderBatch, Trial
from tests import factories
from tests.factories.batches import drive_batches, make_batched_run

pytestmark = pytest.mark.django_db(transaction=True)


def make_rating_run(provider, kind="openai", **fields):
    prompt = factories.make_prompt("rate", user="{{input}} {{scale_labels}}", answer_format="rating")
    dimensions = [factories.make_dimension()]
    provider.set_faults(json_schema=False)
    return make_batched_run(provider.url, kind, prompts=[prompt], dimensions=dimensions, max_attempts=1, **fields)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_refused_schema_is_omitted_in_the_next_batch_and_uses_no_attempt(provider, kind):
    run = make_rating_run(provider, kind, items=24)
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_attempts, run.n_permanent) == ("done", 24, 48, 0)
    first, second = ProviderBatch.objects.order_by("pk")
    calls = set(Attempt.objects.values_list("token", "outcome", "error_class", "call"))
    assert calls == {(first.key, "transient", "response_format_unsupported", 0), (second.key, "ok", "", 0)}
    assert set(Attempt.objects.filter(token=first.key).values_list("cost_usd", flat=True)) == {0}
    assert set(Trial.objects.values_list("attempts", "error_class")) == {(1, "")}
    assert Trial.objects.filter(rating__isnull=False).exists()
    assert (provider.counters()["answers"], provider.counters()["answered_again"]) == (24, 0)
    assert find_differences() == []


@pytest.mark.slow
def test_a_failure_of_the_call_without_a_schema_uses_an_attempt(provider):
    run = make_rating_run(provider, stop_failure_rate=1)
    drive_batches(
        until=lambda: Trial.objects.filter(error_class="response_format_unsupported", status="pending").count() == 6
    )
    provider.set_faults(errors={"400": 1})
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_failed, run.errors["bad_request"]) == ("done", 6, 6)
    assert ProviderBatch.objects.count() == 2
    assert find_differences() == []


@pytest.mark.slow
def test_an_unreadable_answer_of_a_batch_is_rerun_in_the_next_batch(provider, monkeypatch):
    run = make_rating_run(provider, on_unreadable="rerun")
    Experiment.objects.update(max_attempts=3)
    provider.set_faults(json_schema=True)
    read_reply = gateway.read_batch_reply
    first = {}

    async def read_unreadable_first(request, *reply):
        question = str(request.messages)
        batch_reply = await read_reply(request, *reply)
        return (
            batch_reply
            if first.setdefault(question, batch_reply) is not batch_reply
            else replace(batch_reply, text="no idea", raw_text="no idea")
        )

    monkeypatch.setattr(gateway, "read_batch_reply", read_unreadable_first)
    drive_batches()
    assert set(Trial.objects.values_list("status", "error_class")) == {("pending", "unreadable_answer")}
    Trial.objects.update(not_before=None)
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done, run.errors) == ("done", 6, {"unreadable_answer": 6})
    assert set(Trial.objects.values_list("attempts", "parse_error")) == {(2, "")}
    assert set(Attempt.objects.filter(outcome="transient").values_list("raw_response", flat=True)) == {"no idea"}
    assert run.spent_usd == sum(Attempt.objects.values_list("cost_usd", flat=True)) > 0
    assert find_differences() == []
