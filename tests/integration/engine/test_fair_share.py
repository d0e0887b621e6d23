"""Fair share of slots among experiments of an endpoint and among endpoints of a drain."""

import asyncio
from collections import Counter

import pytest
from django.core.exceptions import ValidationError
from django.db.models import F

from grading_app.grading.consistency_check import find_differences
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.forms.experiments import LaunchedExperimentForm
from runs_app.models import Endpoint, Experiment, Run, Trial
from tests import factories
from tests.factories.engine import admit, build_reply, drain


def make_shared_experiment(slug, models, **fields):
    experiment = factories.make_experiment(
        slug, dataset=factories.make_dataset(slug, 40), models=models, max_usd=None, cache=False, **fields
    )
    for run in factories.make_runs(experiment):
        factories.plan_trials(run)
    return experiment


def make_models(endpoint, *names):
    return [factories.make_model(name, endpoint=endpoint, model=name) for name in names]


def count_in_flight():
    return Counter(Trial.objects.filter(status="running").values_list("run__experiment__slug", flat=True))


def test_two_experiments_get_equal_shares_regardless_of_their_number_of_conditions(transactional_db):
    endpoint = factories.make_endpoint("shared", max_concurrency=40, adaptive=False)
    make_shared_experiment("crowd", make_models(endpoint, "a", "b", "c", "d", "e"))
    make_shared_experiment("single", make_models(endpoint, "f"))
    admit(WorkerRegistration().worker_id, 100)
    assert count_in_flight() == {"crowd": 20, "single": 20}
    assert find_differences() == []


def test_a_higher_priority_set_during_a_run_applies_to_the_next_claim(transactional_db):
    endpoint = factories.make_endpoint("shared", max_concurrency=20, adaptive=False)
    models = make_models(endpoint, "a")
    make_shared_experiment("early", models)
    urgent = make_shared_experiment("urgent", models)
    worker = WorkerRegistration().worker_id
    admit(worker, 10)
    assert count_in_flight() == {"early": 5, "urgent": 5}
    assert urgent.change_priority(5, by=urgent.owner, reason="due today")
    admit(worker, 10)
    assert count_in_flight() == {"early": 5, "urgent": 15}
    change = urgent.history.filter(aspect="priority").get()
    assert (change.from_value, change.to_value, change.by, change.reason) == ("0", "5", urgent.owner, "due today")


def test_an_equal_priority_is_no_change_and_a_priority_out_of_range_is_refused(db):
    experiment = make_shared_experiment("calm", make_models(factories.make_endpoint("lab-x"), "a"))
    assert not experiment.change_priority(0, by=experiment.owner)
    for priority in (-10, 10):
        with pytest.raises(ValidationError):
            experiment.change_priority(priority, by=experiment.owner)
    assert not experiment.history.filter(aspect="priority").exists()


def test_saving_settings_of_a_running_experiment_does_not_change_its_counters(transactional_db):
    experiment = make_shared_experiment("running", make_models(factories.make_endpoint("lab-x"), "a"))
    stale = Experiment.objects.get(pk=experiment.pk)
    Experiment.objects.update(spent_usd=F("spent_usd") + 3, reserved_usd=2)
    data = {"title": "t", "sharing": experiment.sharing, "samples": 1, "on_empty": "keep", "priority": 4}
    form = LaunchedExperimentForm(data, instance=stale, user=experiment.owner)
    assert form.is_valid(), form.errors
    form.save()
    experiment.refresh_from_db()
    assert (experiment.spent_usd, experiment.reserved_usd, experiment.priority) == (3, 2, 4)
    change = experiment.history.filter(aspect="priority").get()
    assert (change.from_value, change.to_value, change.by) == ("0", "4", experiment.owner)


def test_a_hanging_endpoint_does_not_take_another_endpoints_share_of_the_drain(transactional_db):
    """The slow endpoint fills the drain first, and answers only after the other endpoint's run is nearly done."""
    slow = factories.make_endpoint("slow", max_concurrency=64, adaptive=False)
    quick = factories.make_endpoint("quick", max_concurrency=64, adaptive=False)
    make_shared_experiment("hanging", make_models(slow, "hangs"), max_concurrency=64)
    make_shared_experiment("answering", make_models(quick, "answers"), max_concurrency=64)
    Run.objects.filter(experiment__slug="answering").update(status="planned")
    answered, highest = asyncio.Event(), Counter()
    active_calls = Counter()

    async def call(request):
        active_calls[request.model] += 1
        highest[request.model] = max(highest[request.model], active_calls[request.model])
        try:
            if request.model == "hangs":
                if active_calls["hangs"] == 8:
                    await asyncio.to_thread(start, "answering")
                await answered.wait()
            elif await asyncio.to_thread(is_nearly_done, "answering"):
                answered.set()
            return build_reply()
        finally:
            active_calls[request.model] -= 1

    drain(call, concurrency=8)
    assert set(Run.objects.values_list("status", "n_done")) == {("done", 40)}
    assert highest["hangs"] == 8
    assert 1 <= highest["answers"] <= 4
    assert Endpoint.objects.filter(in_flight=0).count() == 2
    assert find_differences() == []


def start(slug):
    Run.objects.filter(experiment__slug=slug).update(status="running")
    close()


def is_nearly_done(slug):
    run = Run.objects.get(experiment__slug=slug)
    close()
    return run.n_pending == 0


def close():
    """Close the database connection of this thread."""
    from django.db import connection

    connection.close()
