"""Adaptive runs in batches: a round of all points is one batch and is decided after the batch is collected."""

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.engine.adaptive_rounds import RoundScheduler
from runs_app.engine.worker import has_calls_left, has_work_left
from runs_app.models import Endpoint, Point, ProviderBatch, Run, Trial
from tests import factories
from tests.factories.batches import PRICES, Killed, drive_batches, kill_at

pytestmark = pytest.mark.django_db(transaction=True)

RULE = {
    "by": "category",
    "scorer": "exact_match",
    "round": 4,
    "max": 8,
    "targetci": 0.2,
}  # Four answers never reach this interval.


@pytest.fixture
def launched_run(provider):
    """Return a run with three points: two have items for two rounds, one has items for a single round."""
    endpoint = factories.make_endpoint("lab", base_url=provider.url, batch_api="openai", key_env="EVALSITE_KEY_BATCH")
    items = [
        {"key": f"{point}-{n}", "input": f"{point} {n}", "target": "x", "category": point}
        for point, size in (("first", 8), ("second", 8), ("short", 4))
        for n in range(size)
    ]
    experiment = factories.make_experiment(
        "rounds",
        dataset=factories.make_dataset("places", items),
        models=[factories.make_model("small", endpoint=endpoint, **PRICES)],
        adaptive=RULE,
        scorers=["exact_match"],
        batch=True,
        cache=False,
        max_usd=None,
    )
    run_control.launch(experiment, by=experiment.owner)
    return Run.objects.get()


def decide():
    return bool(RoundScheduler().decide_now())


def decide_and_drive():
    while decide():
        drive_batches()


@pytest.mark.slow
def test_each_round_is_one_batch_of_all_open_points(launched_run, provider):
    Endpoint.objects.update(batch_max_open=4)
    assert launched_run.is_batched
    drive_batches()
    assert list(ProviderBatch.objects.values_list("status", "n_requests")) == [("collected", 12)]
    assert has_calls_left()
    decide_and_drive()
    launched_run.refresh_from_db()
    assert launched_run.status == "done"
    assert not Point.objects.filter(status="open").exists()
    sizes = list(ProviderBatch.objects.order_by("pk").values_list("n_requests", flat=True))
    assert sizes == [12, 8]
    assert sorted(len(point.rounds) for point in Point.objects.all()) == [1, 2, 2]
    assert Trial.objects.count() == provider.counters()["answers"] == 20
    assert find_differences() == []


def test_a_submitted_batch_needs_no_drain_of_the_task_queue(launched_run, provider):
    provider.set_faults(batch_waits={"done": 1e6})
    drive_batches(until=lambda: ProviderBatch.objects.filter(status="submitted").exists())
    assert has_work_left()
    assert not has_calls_left()


@pytest.mark.slow
def test_no_batch_is_created_before_all_points_are_decided(launched_run, monkeypatch):
    drive_batches()
    monkeypatch.setattr("runs_app.engine.adaptive_rounds.MAX_POINTS_PER_CHECK", 1)
    assert decide()
    assert Trial.objects.filter(status="pending").count() == 4
    drive_batches()
    assert ProviderBatch.objects.count() == 1
    while decide():
        pass
    drive_batches()
    assert [batch.n_requests for batch in ProviderBatch.objects.order_by("pk")] == [12, 8]
    while decide():
        pass
    launched_run.refresh_from_db()
    assert (launched_run.status, find_differences()) == ("done", [])


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["after record_each", "after _end_batch"])
def test_no_decision_is_lost_if_a_worker_dies_while_it_collects_or_decides(launched_run, provider, moment):
    with pytest.raises(Killed):
        drive_batches(crash=kill_at(moment))
    drive_batches()
    decide_and_drive()
    launched_run.refresh_from_db()
    assert launched_run.status == "done"
    assert Trial.objects.count() == provider.counters()["answers"] == launched_run.n_attempts
    assert find_differences() == []
