"""Lost responses, expiry, refusals and missing results: each trial ends once, and each call is paid once."""

import dataclasses

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.batches.http_client import ApiClient
from runs_app.batches.openai_batches import OpenAiBatches
from runs_app.batches.protocol import Phase
from runs_app.engine.leases import sweep_expired
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Experiment, ProviderBatch, Trial
from tests.factories.batches import drive_batches, end_submission_search, make_batched_run

pytestmark = pytest.mark.django_db(transaction=True)
BOTH = pytest.mark.parametrize("kind", ["openai", "anthropic"])


def has_failed_once():
    return ProviderBatch.objects.filter(tries__gt=0).exists()


def list_outcomes():
    return sorted(Attempt.objects.values_list("outcome", flat=True))


@BOTH
def test_a_submission_with_a_lost_response_is_found_again(provider, kind):
    run = make_batched_run(provider.url, kind)
    provider.set_faults(batch_faults={"lost_submission": 1})
    drive_batches(until=has_failed_once)
    assert ProviderBatch.objects.get().provider_id == ""
    provider.set_faults(batch_faults={})
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done) == ("done", 6)
    assert (provider.counters()["batches"], provider.counters()["answers"]) == (1, 6)
    assert list_outcomes() == ["ok"] * 6
    assert find_differences() == []


def test_an_upload_with_a_lost_response_is_found_by_its_name(provider, monkeypatch):
    run = make_batched_run(provider.url)
    provider.set_faults(batch_faults={"lost_upload": 1})
    uploads = []
    post = ApiClient.post

    async def count_post(door, path, **options):
        uploads.append(path)
        return await post(door, path, **options)

    monkeypatch.setattr(ApiClient, "post", count_post)
    drive_batches(until=has_failed_once)
    provider.set_faults(batch_faults={})
    drive_batches()
    run.refresh_from_db()
    assert (run.status, uploads) == ("done", ["/files", "/batches"])


def test_a_submission_that_may_still_arrive_is_not_repeated(provider, monkeypatch):
    run = make_batched_run(provider.url)
    post, cut = ApiClient.post, []

    async def lose_connection(door, path, **options):
        if path == "/batches" and not cut:
            cut.append(path)
            raise CallFailure(ErrorClass.TIMEOUT, "no reply")
        return await post(door, path, **options)

    monkeypatch.setattr(ApiClient, "post", lose_connection)
    drive_batches(until=has_failed_once)
    with pytest.raises(AssertionError, match="did not come to an end"):
        drive_batches(steps=4)
    assert provider.counters()["batches"] == 0
    end_submission_search()
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done, provider.counters()["batches"]) == ("done", 6, 1)


@BOTH
def test_unmade_calls_of_an_expired_batch_move_to_the_next_batch(provider, kind):
    run = make_batched_run(provider.url, kind)
    provider.set_faults(batch_faults={"expired": 1})
    drive_batches(until=lambda: ProviderBatch.objects.filter(status="expired").exists())
    provider.set_faults(batch_faults={})
    assert Trial.objects.filter(status="pending", attempts=1, error_class="batch_expired").count() == 3
    assert set(Attempt.objects.exclude(outcome="ok").values_list("cost_usd", flat=True)) == {0}
    Trial.objects.filter(status="pending").update(not_before=None)
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_attempts) == ("done", 6, 9)
    assert provider.counters()["answers"] == 6
    assert find_differences() == []


@BOTH
def test_a_call_without_a_result_line_uses_an_attempt_and_keeps_its_reservation(provider, kind):
    run = make_batched_run(provider.url, kind, max_usd=10, max_attempts=1)
    provider.set_faults(batch_faults={"missing": 1})
    drive_batches()
    run.refresh_from_db()
    assert (run.n_done, run.n_failed, run.n_unpriced) == (3, 3, 3)
    assert set(Trial.objects.filter(status="failed").values_list("error_class", flat=True)) == {"malformed_reply"}
    assert float(Experiment.objects.get().reserved_usd) == pytest.approx(0.03)
    assert find_differences() == []


def test_a_refused_batch_releases_its_trials_and_stops_its_run_with_a_reason(provider):
    run = make_batched_run(provider.url)
    provider.set_faults(batch_faults={"invalid": 1})
    drive_batches()
    run.refresh_from_db()
    batch = ProviderBatch.objects.get()
    assert (run.status, batch.status) == ("stopped", "failed")
    assert "refused a batch" in run.stop_reason
    assert "invalid" in batch.error
    assert set(Trial.objects.values_list("status", "attempts", "reserved_usd")) == {("pending", 0, 0)}
    assert not Attempt.objects.exists()
    assert find_differences() == []


def test_a_batch_is_submitted_later_if_the_provider_has_no_capacity(provider):
    run = make_batched_run(provider.url)
    provider.set_faults(batch_faults={"full": 1})
    drive_batches()
    run.refresh_from_db()
    assert (run.status, ProviderBatch.objects.get().status) == ("running", "failed")
    assert Trial.objects.filter(status="pending", attempts=0, not_before__isnull=False).count() == 6
    provider.set_faults(batch_faults={})
    Trial.objects.filter(status="pending").update(not_before=None)
    drive_batches()
    run.refresh_from_db()
    assert run.status == "done"


@pytest.mark.slow
@BOTH
def test_a_failed_call_in_a_batch_is_handled_like_a_failed_single_call(provider, kind):
    run = make_batched_run(provider.url, kind, items=60, stop_failure_rate=1)  # Enough calls that both faults occur.
    provider.set_faults(errors={"400": 0.4, "refusal": 0.3} if kind == "openai" else {"400": 0.4})
    drive_batches()
    run.refresh_from_db()
    assert run.status == "done"
    assert 0 < run.n_failed == run.errors["bad_request"] < 60
    assert run.n_failed + run.n_done == 60
    assert Trial.objects.filter(refused=True).exists() == (kind == "openai")
    assert find_differences() == []


def test_a_claim_of_a_batched_trial_has_no_lease_to_expire(provider):
    make_batched_run(provider.url)
    provider.set_faults(batch_waits={"done": 1000})
    drive_batches(until=lambda: ProviderBatch.objects.filter(status="submitted").exists())
    assert Trial.objects.filter(status="running", lease_until=None, worker=None).count() == 6
    assert sweep_expired() == 0
    assert find_differences() == []


@BOTH
def test_a_submission_response_without_an_id_counts_as_lost(provider, kind, monkeypatch):
    run = make_batched_run(provider.url, kind)
    post, posted = ApiClient.post, []

    async def forget(door, path, **options):
        reply = await post(door, path, **options)
        posted.append(path)
        return reply if path == "/files" else {"status": "odd"}

    monkeypatch.setattr(ApiClient, "post", forget)
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done, provider.counters()["batches"]) == ("done", 6, 1)
    assert [path for path in posted if path.endswith("batches")] == [posted[-1]]


def test_a_batch_with_unavailable_results_is_polled_again(provider, monkeypatch):
    run = make_batched_run(provider.url)
    look, looks = OpenAiBatches.retrieve, []

    async def report_earlier_phase(api, provider_id):
        looks.append(provider_id)
        state = await look(api, provider_id)
        return dataclasses.replace(state, phase=Phase.WORKING) if len(looks) in (2, 3) else state

    monkeypatch.setattr(OpenAiBatches, "retrieve", report_earlier_phase)
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_attempts) == ("done", 6, 6)
    assert len(looks) == 4
