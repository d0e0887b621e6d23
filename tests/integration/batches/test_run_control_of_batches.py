"""Budgets, cancellation, concurrency and the response cache of batched runs."""

import time
from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.batches.batch_worker import admit_batches
from runs_app.engine.worker import has_work_left
from runs_app.models import Attempt, Experiment, ProviderBatch, Run, Trial
from runs_app.processes.worker_process import is_drain_needed
from tests import factories
from tests.factories.batches import (
    Killed,
    drive_batches,
    get_batch_endpoint,
    kill_at,
    make_batched_run,
    make_next_batched_run,
)
from tests.factories.engine import build_provider, drain, run_at_once
from tests.system.processes.workers import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
BOTH = pytest.mark.parametrize("kind", ["openai", "anthropic"])


def is_submitted():
    return ProviderBatch.objects.filter(status="submitted").exists()


def is_at_work_for(provider, seconds):
    """Return a condition: the provider has had the batch for this time, even if its submission was delayed."""
    since = []

    def is_elapsed():
        if not since and provider.counters()["batches"]:
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] > seconds

    return is_elapsed


@BOTH
def test_a_cancelled_run_cancels_its_batch_and_records_its_answers(provider, kind):
    run = make_batched_run(provider.url, kind, items=20)
    provider.set_faults(batch_waits={"done": 12.0})
    drive_batches(steps=4000, until=is_at_work_for(provider, 0.7))
    run_control.cancel(Run.objects.all(), by="tester", reason="enough")
    drive_batches(steps=400)
    run.refresh_from_db()
    batch = ProviderBatch.objects.get()
    assert (run.status, batch.status, run.n_running) == ("cancelled", "cancelled", 0)
    assert 0 < run.n_done == batch.n_answered == provider.counters()["answers"] < 20
    assert run.n_done + run.n_cancelled == 20
    assert run.spent_usd > 0
    assert "enough" in [change.reason for change in batch.history]
    assert find_differences() == []


@pytest.mark.parametrize("moment", ["before _build_jobs", "before save"])
def test_an_unsubmitted_batch_is_cancelled_without_a_call_to_the_provider(provider, moment):
    run = make_batched_run(provider.url)

    with pytest.raises(Killed):
        drive_batches(crash=kill_at(moment))
    run_control.cancel(Run.objects.all(), by="tester", reason="enough")
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_cancelled, ProviderBatch.objects.get().status) == ("cancelled", 6, "cancelled")
    assert provider.counters()["batches"] == 0
    assert find_differences() == []


@pytest.mark.slow
def test_cancelling_one_batch_pauses_its_run(provider):
    run = make_batched_run(provider.url)
    provider.set_faults(batch_waits={"done": 1000})
    drive_batches(until=is_submitted)
    assert run_control.cancel_batch(ProviderBatch.objects.get(), by="tester", reason="a wrong prompt")
    drive_batches(steps=400)
    run.refresh_from_db()
    assert (run.status, run.n_pending, run.n_attempts) == ("paused", 6, 0)
    assert ProviderBatch.objects.get().status == "cancelled"
    assert not run_control.cancel_batch(ProviderBatch.objects.get(), by="tester", reason="again")
    provider.set_faults(batch_waits={})
    run_control.resume(Run.objects.all(), by="tester")
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done) == ("done", 6)
    assert find_differences() == []


@pytest.mark.slow
def test_the_budget_limits_the_size_of_a_batch(provider):
    run = make_batched_run(provider.url, max_usd=Decimal("0.025"))
    budgets_kept = []

    def within_budget():
        experiment = Experiment.objects.get()
        assert experiment.spent_usd + experiment.reserved_usd <= experiment.max_usd
        budgets_kept.append(ProviderBatch.objects.latest("pk").n_requests)
        return False

    drive_batches(until=within_budget)
    run.refresh_from_db()
    assert max(budgets_kept) == 2
    assert (run.status == "done") == (run.n_done == 6)
    assert run.status in ("done", "paused")
    assert find_differences() == []


def test_workers_that_create_batches_concurrently_never_exceed_the_budget(provider):
    run = make_batched_run(provider.url, items=8, max_usd=Decimal("0.125"))  # Enough for 12 of 16 calls.
    beside = make_next_batched_run(run.experiment, 1)
    type(get_batch_endpoint()).objects.update(batch_max_requests=5, batch_max_open=100)
    created_keys = [key for keys in run_at_once(*[admit_batches] * 8) for key in keys]
    experiment = Experiment.objects.get()
    assert experiment.reserved_usd == Decimal("0.12") <= experiment.max_usd
    assert Trial.objects.filter(status="running").count() == 12
    assert sum(ProviderBatch.objects.filter(pk__in=created_keys).values_list("n_requests", flat=True)) == 12
    assert {run.pk, beside.pk} == set(ProviderBatch.objects.values_list("run", flat=True))
    assert find_differences() == []


def test_the_experiment_with_the_higher_priority_gets_the_last_batch_slot(provider):
    run = make_batched_run(provider.url)
    experiment = factories.make_experiment(
        "urgent", dataset=run.experiment.dataset, models=[run.condition.model], batch=True, max_usd=None, priority=1
    )
    (urgent,) = factories.make_runs(experiment)
    Run.objects.filter(pk=urgent.pk).update(is_batched=True)
    factories.plan_trials(urgent)
    type(get_batch_endpoint()).objects.update(batch_max_open=1)
    admit_batches()
    assert ProviderBatch.objects.get().run == urgent
    assert find_differences() == []


@pytest.mark.slow
def test_answers_of_a_cancelled_batch_are_not_repeated_when_its_run_resumes(provider):
    run = make_batched_run(provider.url, items=20)
    provider.set_faults(batch_waits={"done": 24.0})
    drive_batches(steps=4000, until=is_at_work_for(provider, 1.3))
    assert run_control.cancel_batch(ProviderBatch.objects.get(), by="tester", reason="a pause")
    drive_batches(steps=400)
    run.refresh_from_db()
    n_done, paid = run.n_done, run.spent_usd
    assert 0 < n_done < 20
    assert paid > 0
    provider.set_faults(batch_waits={})
    run_control.resume(Run.objects.all(), by="tester")
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_attempts) == ("done", 20, 20)
    assert ProviderBatch.objects.latest("pk").n_requests == 20 - n_done
    assert (provider.counters()["answers"], provider.counters()["answered_again"]) == (20, 0)
    assert find_differences() == []


@pytest.mark.slow
def test_batch_limits_apply_to_all_runs_of_an_endpoint_together(provider):
    run = make_batched_run(provider.url, items=7)
    type(get_batch_endpoint()).objects.update(batch_max_requests=2, batch_max_open=2)
    most = []

    def count_batches():
        most.append(ProviderBatch.objects.open().count())
        return False

    provider.set_faults(batch_waits={"done": 0.3})
    drive_batches(steps=400, until=count_batches)
    run.refresh_from_db()
    assert (run.status, max(most)) == ("done", 2)
    assert sorted(ProviderBatch.objects.values_list("n_requests", flat=True)) == [1, 2, 2, 2]


def test_trials_in_a_batch_are_not_calls_in_flight(provider):
    run = make_batched_run(provider.url)
    provider.set_faults(batch_waits={"done": 1000})
    drive_batches(until=is_submitted)
    type(get_batch_endpoint()).objects.update(max_concurrency=1, adaptive=False)
    other = factories.make_experiment(
        "beside", dataset=run.experiment.dataset, models=[run.condition.model], max_usd=None
    )
    (beside,) = factories.make_runs(other)
    factories.plan_trials(beside)
    Run.objects.filter(pk=run.pk).update(status="paused")
    finished = Run.objects.filter(pk=beside.pk, status="done")
    wait_until(lambda: drain(build_provider(), until_idle=False, seconds=0.2) == 0 and finished.exists())
    beside.refresh_from_db()
    assert (beside.status, beside.n_done) == ("done", 6)
    assert (get_batch_endpoint().in_batches, get_batch_endpoint().in_flight) == (6, 0)


def test_cached_answers_are_not_sent_in_a_batch(provider):
    run = make_batched_run(provider.url, cache=True, cache_buster=False)
    drive_batches()
    repeated = factories.make_experiment(
        "again",
        dataset=run.experiment.dataset,
        models=[run.condition.model],
        prompts=[run.condition.prompt],
        samplers=[run.condition.sampler],
        max_usd=None,
    )
    (replay,) = factories.make_runs(repeated)
    Run.objects.filter(pk=replay.pk).update(is_batched=True)
    factories.plan_trials(replay)
    drive_batches()
    replay.refresh_from_db()
    assert (replay.status, replay.n_done, replay.spent_usd) == ("done", 6, 0)
    assert provider.counters()["batches"] == 1
    assert Attempt.objects.filter(outcome="cached").count() == Trial.objects.filter(from_cache=True).count() == 6
    assert find_differences() == []


def test_the_task_queue_starts_a_drain_for_a_batch_only_when_it_can_be_polled(provider):
    make_batched_run(provider.url)
    assert is_drain_needed()
    provider.set_faults(batch_waits={"done": 1000})
    drive_batches(until=is_submitted)
    later = timezone.now() + timedelta(minutes=3)
    ProviderBatch.objects.update(next_poll_at=later, claim=None, lease_until=None)
    assert not is_drain_needed()
    assert has_work_left()
    ProviderBatch.objects.update(next_poll_at=timezone.now())
    assert is_drain_needed()
