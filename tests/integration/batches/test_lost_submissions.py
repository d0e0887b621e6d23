"""Lost submissions to a provider without batch names: candidates are awaited and reported, never duplicated."""

import json
import urllib.request

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.batches.http_client import ApiClient
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Experiment, ProviderBatch, Run, Trial
from tests.factories.batches import (
    Killed,
    drive_batches,
    end_submission_search,
    kill_at,
    make_batched_run,
    make_next_batched_run,
)

pytestmark = pytest.mark.django_db(transaction=True)

NEVER_S = 1e6


def is_lost():
    return ProviderBatch.objects.filter(error__contains="was lost").exists()


def is_awaiting_candidate():
    return ProviderBatch.objects.filter(error__contains="may be this batch").exists()


def lose_response(provider, until=is_lost):
    """Drive until the provider has an unfinished batch whose submission response was lost."""
    provider.set_faults(batch_faults={"lost_submission": 1}, batch_waits={"done": NEVER_S})
    drive_batches(until=until)
    provider.set_faults(batch_faults={})
    end_submission_search()


def finish_submitted_batches(provider):
    provider.set_faults(batch_waits={})


def cut_submissions(monkeypatch, times=1):
    """Cut the next submissions before they reach the provider."""
    post, cut = ApiClient.post, []

    async def lose_connection(door, path, **options):
        if path.endswith("/batches") and len(cut) < times:
            cut.append(path)
            raise CallFailure(ErrorClass.TIMEOUT, "no reply")
        return await post(door, path, **options)

    monkeypatch.setattr(ApiClient, "post", lose_connection)


def submit_foreign_batch(provider, n):
    """Submit a batch of `n` calls as another program of the same account; return its id."""
    provider.set_faults(batch_waits={"done": NEVER_S})
    messages = [{"role": "user", "content": f"Question {number} of {n}"} for number in range(n)]
    calls = [
        {"custom_id": f"theirs-{number}", "params": {"model": "other", "max_tokens": 5, "messages": [turn]}}
        for number, turn in enumerate(messages)
    ]
    address, body = f"{provider.url}/messages/batches", json.dumps({"requests": calls}).encode()
    with urllib.request.urlopen(urllib.request.Request(address, body), timeout=60) as reply:  # noqa: S310 - loopback
        return json.load(reply)["id"]


def check_each_call_was_made_once(run, provider, *, batches):
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_attempts) == ("done", 6, 6)
    assert set(Attempt.objects.filter(run=run).values_list("outcome", flat=True)) == {"ok"}
    counters = provider.counters()
    assert (counters["batches"], counters["answered_again"]) == (batches, 0)
    assert find_differences() == []


def test_a_lost_submission_waits_for_a_candidate_batch_and_names_it(provider):
    run = make_batched_run(provider.url, "anthropic")
    lose_response(provider)
    drive_batches(until=is_awaiting_candidate)
    batch = ProviderBatch.objects.get()
    assert (batch.status, provider.counters()["batches"]) == ("submitting", 1)
    assert (batch.search_ends_at - batch.created_at).total_seconds() == pytest.approx(86_400, abs=120)
    finish_submitted_batches(provider)
    drive_batches()
    check_each_call_was_made_once(run, provider, batches=1)
    assert ProviderBatch.objects.get().provider_id in batch.error
    assert ProviderBatch.objects.get().search_ends_at is None


@pytest.mark.parametrize("moment", ["before build_search", "before schedule_search", "after schedule_search"])
def test_workers_that_die_during_the_search_for_a_batch_make_no_second_batch(provider, moment):
    run = make_batched_run(provider.url, "anthropic")
    lose_response(provider)
    with pytest.raises(Killed):
        drive_batches(crash=kill_at(moment))
    drive_batches(until=is_awaiting_candidate)
    finish_submitted_batches(provider)
    drive_batches()
    check_each_call_was_made_once(run, provider, batches=1)


@pytest.mark.slow
def test_calls_are_submitted_again_after_a_candidate_batch_proves_to_be_foreign(provider, monkeypatch):
    run = make_batched_run(provider.url, "anthropic")
    foreign_id = submit_foreign_batch(provider, 6)
    cut_submissions(monkeypatch)
    drive_batches(until=is_awaiting_candidate)
    assert foreign_id in ProviderBatch.objects.get().error
    end_submission_search()
    with pytest.raises(AssertionError, match="did not come to an end"):
        drive_batches(steps=3)
    assert provider.counters()["batches"] == 1
    finish_submitted_batches(provider)
    drive_batches()
    check_each_call_was_made_once(run, provider, batches=2)
    assert ProviderBatch.objects.get().provider_id != foreign_id


def test_a_foreign_batch_of_another_size_or_time_delays_nothing(provider, monkeypatch):
    run = make_batched_run(provider.url, "anthropic")
    submit_foreign_batch(provider, 7)
    cut_submissions(monkeypatch)
    drive_batches(until=is_lost)
    submit_foreign_batch(provider, 6)
    end_submission_search(hours=2)
    drive_batches(until=lambda: provider.counters()["batches"] == 3)
    assert not is_awaiting_candidate()
    finish_submitted_batches(provider)
    drive_batches()
    check_each_call_was_made_once(run, provider, batches=3)


@pytest.mark.slow
def test_of_two_lost_submissions_the_arrived_batch_is_identified_by_its_calls(provider, monkeypatch):
    first = make_batched_run(provider.url, "anthropic")
    cut_submissions(monkeypatch)
    drive_batches(until=is_lost)
    second = make_next_batched_run(Experiment.objects.get(), 1)
    lose_response(provider, until=lambda: provider.counters()["batches"] == 1)
    drive_batches(until=lambda: ProviderBatch.objects.filter(error__contains="may be this batch").count() == 2)
    finish_submitted_batches(provider)
    drive_batches()
    check_each_call_was_made_once(first, provider, batches=2)
    check_each_call_was_made_once(second, provider, batches=2)
    assert "found by its key" in " ".join(change.reason for change in second.batches.get().history)


def test_a_cancelled_run_waits_for_a_candidate_batch_and_records_its_answers(provider):
    run = make_batched_run(provider.url, "anthropic")
    lose_response(provider)
    run_control.cancel(Run.objects.all(), by="tester", reason="enough")
    drive_batches(until=is_awaiting_candidate)
    assert ProviderBatch.objects.get().status == "cancelling"
    finish_submitted_batches(provider)
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done, provider.counters()["batches"]) == ("cancelled", 6, 1)
    assert Trial.objects.filter(status="done").count() == provider.counters()["answers"]
    assert find_differences() == []


@pytest.mark.slow
def test_an_ended_foreign_batch_of_the_same_size_delays_nothing(provider, monkeypatch):
    make_batched_run(provider.url, "anthropic")
    drive_batches()
    ProviderBatch.objects.update(provider_id="msgbatch_forgotten")  # As if another program had made it.
    run = make_next_batched_run(Experiment.objects.get(), 1)
    cut_submissions(monkeypatch)
    drive_batches(until=is_lost)
    end_submission_search()
    drive_batches()
    check_each_call_was_made_once(run, provider, batches=2)
