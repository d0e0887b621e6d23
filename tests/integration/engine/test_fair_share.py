"""Who gets the slots: experiments that share an endpoint, and endpoints that share a drain."""

import asyncio
from collections import Counter

import pytest
from django.core.exceptions import ValidationError
from django.db.models import F

from runs_app.engine.admission import admit
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.forms.launched_experiment import LaunchedExperimentForm
from runs_app.models import Endpoint, Experiment, Run, Trial
from runs_app.monitoring.consistency_check import find_differences
from tests import factories
from tests.factories.engine import drain, reply


def make(slug, models, **fields):
    experiment = factories.make_experiment(
        slug, dataset=factories.make_dataset(slug, 40), models=models, max_usd=None, cache=False, **fields
    )
    for run in factories.make_runs(experiment):
        factories.plan_trials(run)
    return experiment


def models_at(endpoint, *names):
    return [factories.make_model(name, endpoint=endpoint, model=name) for name in names]


def in_flight():
    return Counter(Trial.objects.filter(status="running").values_list("run__experiment__slug", flat=True))


def test_two_experiments_get_the_same_share_whatever_their_number_of_conditions(transactional_db):
    endpoint = factories.make_endpoint("shared", max_concurrency=40, adaptive=False)
    make("crowd", models_at(endpoint, "a", "b", "c", "d", "e"))
    make("single", models_at(endpoint, "f"))
    admit(WorkerRegistration().worker_id, 100)
    assert in_flight() == {"crowd": 20, "single": 20}
    assert find_differences() == []


def test_a_higher_priority_set_while_running_goes_first(transactional_db):
    endpoint = factories.make_endpoint("shared", max_concurrency=20, adaptive=False)
    models = models_at(endpoint, "a")
    make("early", models)
    urgent = make("urgent", models)
    worker = WorkerRegistration().worker_id
    admit(worker, 10)
    assert in_flight() == {"early": 5, "urgent": 5}
    assert urgent.change_priority(5, by=urgent.owner, reason="due today")
    admit(worker, 10)
    assert in_flight() == {"early": 5, "urgent": 15}
    change = urgent.history.filter(what="priority").get()
    assert (change.from_value, change.to_value, change.by, change.reason) == ("0", "5", urgent.owner, "due today")


def test_the_priority_that_it_has_is_no_change_and_none_is_out_of_its_limits(db):
    experiment = make("calm", models_at(factories.make_endpoint("lab-x"), "a"))
    assert not experiment.change_priority(0, by=experiment.owner)
    for priority in (-10, 10):
        with pytest.raises(ValidationError):
            experiment.change_priority(priority, by=experiment.owner)
    assert not experiment.history.filter(what="priority").exists()


def test_settings_that_are_saved_while_it_runs_leave_its_counters_alone(transactional_db):
    experiment = make("running", models_at(factories.make_endpoint("lab-x"), "a"))
    stale = Experiment.objects.get(pk=experiment.pk)
    Experiment.objects.update(spent_usd=F("spent_usd") + 3, reserved_usd=2)
    data = {"title": "t", "sharing": experiment.sharing, "samples": 1, "on_empty": "keep", "priority": 4}
    form = LaunchedExperimentForm(data, instance=stale, user=experiment.owner)
    assert form.is_valid(), form.errors
    form.save()
    experiment.refresh_from_db()
    assert (experiment.spent_usd, experiment.reserved_usd, experiment.priority) == (3, 2, 4)
    change = experiment.history.filter(what="priority").get()
    assert (change.from_value, change.to_value, change.by) == ("0", "4", experiment.owner)


def test_an_endpoint_that_hangs_leaves_the_other_its_share_of_the_drain(transactional_db):
    """It holds all the calls of the drain when the other's work comes, and answers none until that is done."""
    slow = factories.make_endpoint("slow", max_concurrency=64, adaptive=False)
    quick = factories.make_endpoint("quick", max_concurrency=64, adaptive=False)
    make("hanging", models_at(slow, "hangs"), max_concurrency=64)
    make("answering", models_at(quick, "answers"), max_concurrency=64)
    Run.objects.filter(experiment__slug="answering").update(status="planned")
    answered, highest = asyncio.Event(), Counter()
    flying = Counter()

    async def call(request):
        flying[request.model] += 1
        highest[request.model] = max(highest[request.model], flying[request.model])
        try:
            if request.model == "hangs":
                if flying["hangs"] == 8:
                    await asyncio.to_thread(start, "answering")
                await answered.wait()
            elif await asyncio.to_thread(is_nearly_done, "answering"):
                answered.set()
            return reply()
        finally:
            flying[request.model] -= 1

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
    """The connection of this thread, which nobody else would close."""
    from django.db import connection

    connection.close()
