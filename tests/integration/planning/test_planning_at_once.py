"""Two processes that plan one experiment at once end with one row a trial and true counters."""

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


def plan_alone(experiment):
    """As another process would: over a connection of its own."""
    try:
        return plan_module.plan(experiment)
    finally:
        connection.close()


def wait_for_waiting(n):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # Else a transaction sees its first look for ever.
            cursor.execute(WAITING)
            if cursor.fetchone()[0] == n:
                return
        time.sleep(0.02)
    pytest.fail(f"there were never {n} waiting for the experiment's lock")


def test_both_wait_for_the_experiment_and_the_second_finds_all_done():
    experiment = make_draft_experiment(
        dataset=make_questions(20),
        models=[make_rehearsal_model("a"), make_rehearsal_model("b")],
        samplers=[make_draft_sampler(status="approved")],  # A draft would be locked as well, and hide a missing lock.
        dimensions=[make_draft_dimension(status="approved")],
        samples=3,
    )
    with ThreadPoolExecutor(2) as pool:
        with transaction.atomic():
            Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
            reports = [pool.submit(plan_alone, experiment) for _ in range(2)]
            wait_for_waiting(2)
        added = sorted(report.result(timeout=60).trials_added for report in reports)
    assert added == [0, 120]
    assert Trial.objects.count() == 120
    assert Condition.objects.count() == 2
    assert list(Run.objects.values_list("n_pending", flat=True)) == [60, 60]


def launch_alone(experiment):
    try:
        return run_control.launch(Experiment.objects.get(pk=experiment.pk), by="test")
    finally:
        connection.close()


@pytest.mark.slow
def test_of_launches_at_once_one_plans_and_the_others_find_it_launched():
    experiment = make_draft_experiment(dataset=make_questions(5))
    with ThreadPoolExecutor(8) as pool:
        with transaction.atomic():
            Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
            launches = [pool.submit(launch_alone, experiment) for _ in range(8)]
            wait_for_waiting(8)
        reports = [launch.result(timeout=60) for launch in launches]
    assert sorted((report.is_new, report.trials_added) for report in reports) == [(False, 0)] * 7 + [(True, 5)]
    assert experiment.manifests.count() == 1
    assert Run.objects.get().status == "running"


def test_each_launch_that_adds_something_writes_a_manifest():
    experiment = make_draft_experiment(dataset=make_questions(5))
    for pilot, added in ((2, 2), (2, 0), (None, 3), (None, 0)):
        assert run_control.launch(experiment, by="test", pilot=pilot).trials_added == added
    assert experiment.manifests.count() == 2
