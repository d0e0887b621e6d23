"""Processes that plan one experiment concurrently create one row per trial and correct counters."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from runs_app import run_control
from runs_app.models import Condition, Experiment, Run, Trial
from runs_app.planning import plan as plan_module
from tests.factories.drafts import (
    make_draft_dimension,
    make_draft_experiment,
    make_draft_sampler,
    make_questions,
    make_rehearsal_model,
)

pytestmark = pytest.mark.django_db(transaction=True)
WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


def plan_on_own_connection(experiment):
    """Plan over a separate database connection, as another process does."""
    try:
        return plan_module.plan(experiment)
    finally:
        connection.close()


def wait_for_lock_waits(n):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # Otherwise a transaction keeps its first snapshot.
            cursor.execute(WAITING)
            if cursor.fetchone()[0] == n:
                return
        time.sleep(0.02)
    pytest.fail(f"there were never {n} waiting for the experiment's lock")


def test_concurrent_plans_wait_for_the_experiment_lock_and_only_one_adds_trials():
    experiment = make_draft_experiment(
        dataset=make_questions(20),
        models=[make_rehearsal_model("a"), make_rehearsal_model("b")],
        samplers=[make_draft_sampler(status="approved")],  # A draft is locked too, which would hide a missing lock.
        dimensions=[make_draft_dimension(status="approved")],
        samples=3,
    )
    with ThreadPoolExecutor(2) as pool:
        with transaction.atomic():
            Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
            reports = [pool.submit(plan_on_own_connection, experiment) for _ in range(2)]
            wait_for_lock_waits(2)
        added = sorted(report.result(timeout=60).trials_added for report in reports)
    assert added == [0, 120]
    assert Trial.objects.count() == 120
    assert Condition.objects.count() == 2
    assert list(Run.objects.values_list("n_pending", flat=True)) == [60, 60]


def launch_on_own_connection(experiment):
    try:
        return run_control.launch(Experiment.objects.get(pk=experiment.pk), by="test")
    finally:
        connection.close()


@pytest.mark.slow
def test_exactly_one_of_several_concurrent_launches_plans_the_experiment():
    experiment = make_draft_experiment(dataset=make_questions(5))
    with ThreadPoolExecutor(8) as pool:
        with transaction.atomic():
            Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
            launches = [pool.submit(launch_on_own_connection, experiment) for _ in range(8)]
            wait_for_lock_waits(8)
        reports = [launch.result(timeout=60) for launch in launches]
    assert sorted((report.is_new, report.trials_added) for report in reports) == [(False, 0)] * 7 + [(True, 5)]
    assert experiment.manifests.count() == 1
    assert Run.objects.get().status == "running"


def test_each_launch_that_adds_trials_writes_a_manifest():
    experiment = make_draft_experiment(dataset=make_questions(5))
    for pilot, added in ((2, 2), (2, 0), (None, 3), (None, 0)):
        assert run_control.launch(experiment, by="test", pilot=pilot).trials_added == added
    assert experiment.manifests.count() == 2
