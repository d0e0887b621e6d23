"""A run that cannot be claimed or prepared is stopped with a reason; the other runs of its endpoint continue."""

from contextlib import contextmanager

import pytest
from django.db import DataError, connection, transaction

from runs_app.batches.batch_worker import admit_batches
from runs_app.engine.leases import renew_worker_leases, sweep_expired
from runs_app.models import Experiment, ProviderBatch, Run, Trial
from tests import factories
from tests.factories.engine import admit, build_provider, drain, register_worker

LEASE = "experiment_lease_s_in_range"


@contextmanager
def drop_constraint(table, name):
    """Drop this constraint of the table; restore and validate it at the end."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [name])
        (definition,) = cursor.fetchone()
        cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE runs_app_experiment SET lease_s = 120 WHERE NOT lease_s BETWEEN 1 AND 86400")
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")


@pytest.fixture
def lease_unchecked(transactional_db):
    with drop_constraint("runs_app_experiment", LEASE):
        yield


@pytest.fixture
def broken(run):
    """A run of another experiment at the same endpoint, with six trials of its own."""
    experiment = factories.make_experiment("broken", samples=2, max_usd=None)
    (other,) = factories.make_runs(experiment)
    factories.plan_trials(other)
    return other


def execute_sql(statement, *parameters):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # Skip triggers that freeze rows.
        cursor.execute(statement, parameters)


def poison_lease(run):
    execute_sql("UPDATE runs_app_experiment SET lease_s = 1e300 WHERE id = %s", run.experiment_id)


def poison_counter(run):
    """No constraint can check this: the sum is too large only once something is added."""
    execute_sql("UPDATE runs_app_experiment SET reserved_usd = 99999999.9 WHERE id = %s", run.experiment_id)
    execute_sql("UPDATE runs_app_run SET reserve_usd = 1 WHERE id = %s", run.pk)


def poison_content(run):
    execute_sql("UPDATE runs_app_condition SET content = '{}' WHERE id = %s", run.condition_id)


def is_stopped_alone(broken, run, *words):
    broken.refresh_from_db()
    run.refresh_from_db()
    assert (run.status, run.n_done) == ("done", 6)
    assert broken.status == "stopped"
    for word in words:
        assert word in broken.stop_reason
    assert broken.history.first().reason == broken.stop_reason
    assert broken.n_running == 0
    return True


def test_a_run_with_an_impossible_lease_duration_stops_alone(lease_unchecked, run, broken):
    poison_lease(broken)
    drain(build_provider())
    assert is_stopped_alone(broken, run, "Its trials could not be claimed", "interval out of range", "resume")


def test_a_run_with_an_overflowing_counter_stops_alone(run, broken):
    poison_counter(broken)
    drain(build_provider())
    assert is_stopped_alone(broken, run, "Its trials could not be claimed", "overflow")


def test_a_run_with_an_unreadable_design_stops_alone_and_its_claims_are_released(run, broken):
    poison_content(broken)
    drain(build_provider())
    assert is_stopped_alone(broken, run, "Its requests could not be prepared")
    assert set(broken.trials.values_list("status", "attempts")) == {("pending", 0)}


def test_each_of_several_broken_runs_stops_with_its_own_reason(lease_unchecked, run, broken):
    second_experiment = factories.make_experiment("broken-too", samples=2, max_usd=None)
    (third_run,) = factories.make_runs(second_experiment)
    factories.plan_trials(third_run)
    poison_lease(broken)
    poison_counter(third_run)
    drain(build_provider())
    assert is_stopped_alone(broken, run, "interval out of range")
    assert is_stopped_alone(third_run, run, "overflow")


def test_a_corrected_run_continues_when_resumed(lease_unchecked, run, broken):
    from runs_app import run_control

    poison_lease(broken)
    drain(build_provider())
    Experiment.objects.filter(pk=broken.experiment_id).update(lease_s=60)
    assert run_control.resume(Run.objects.filter(pk=broken.pk), by="test") == [broken.pk]
    drain(build_provider())
    broken.refresh_from_db()
    assert (broken.status, broken.n_done) == ("done", 6)


def test_a_broken_run_does_not_stop_the_lease_renewal_and_sweep_of_other_runs(lease_unchecked, run, broken):
    keeper = register_worker()
    admit(keeper, 12)
    poison_lease(broken)
    before = Trial.objects.get(pk=run.trials.first().pk).lease_until
    assert renew_worker_leases(keeper) == 12
    assert Trial.objects.get(pk=run.trials.first().pk).lease_until > before
    Trial.objects.filter(run=run).update(lease_until=factories.NOON.replace(year=2020))
    assert sweep_expired() == 6


def test_a_broken_run_does_not_stop_the_batch_of_another_run(run, broken):
    endpoint = run.condition.model.endpoint
    type(endpoint).objects.filter(pk=endpoint.pk).update(batch_api="openai")
    Run.objects.update(is_batched=True)
    poison_counter(broken)
    admit_batches()
    assert list(ProviderBatch.objects.values_list("run", flat=True)) == [run.pk]
    broken.refresh_from_db()
    assert (broken.status, broken.n_pending) == ("stopped", 6)


def test_the_database_refuses_an_impossible_lease_duration(run):
    from django.db import IntegrityError

    with pytest.raises((IntegrityError, DataError), match=LEASE):
        Experiment.objects.update(lease_s=1e300)
