"""A claim is valid until its lease expires; a result is written only with a valid fencing token."""

from decimal import Decimal

from grading_app.grading.consistency_check import find_differences
from runs_app.engine.leases import renew_leases, sweep_expired
from runs_app.engine.recorder import record_results
from runs_app.models import Attempt, Endpoint, Run, Trial
from tests.factories.engine import admit, build_provider, build_text_result, drain, expire_leases, register_worker


def test_two_workers_never_claim_the_same_trial(run):
    first, second = admit(register_worker(), 4), admit(register_worker(), 4)
    assert len(first) == 4
    assert len(second) == 2
    assert not {claim.trial_id for claim in first} & {claim.trial_id for claim in second}


def test_claims_of_a_silent_worker_are_released_when_their_lease_expires(run):
    admit(register_worker(), 3)
    assert sweep_expired() == 0
    expire_leases()
    assert sweep_expired() == 3
    run.refresh_from_db()
    assert (run.n_pending, run.n_running) == (6, 0)
    assert Endpoint.objects.get().in_flight == 0
    assert Attempt.objects.filter(outcome="lost", cost_usd=None).count() == 3
    assert find_differences() == []


def test_claims_are_released_although_their_run_was_paused_and_sends_batches_now(run):
    admit(register_worker(), 3)
    Run.objects.filter(pk=run.pk).update(status=Run.Status.PAUSED, is_batched=True)
    assert sweep_expired() == 0
    expire_leases()
    assert sweep_expired() == 3
    assert find_differences() == []


def test_the_check_counts_claims_from_their_rows_although_the_run_counts_none(run):
    admit(register_worker(), 3)
    Run.objects.filter(pk=run.pk).update(n_running=0)
    Endpoint.objects.update(in_flight=0)
    differences = {(difference.counter, difference.counted, difference.in_rows) for difference in find_differences()}
    assert differences == {("n_running", 0, 3), ("in_flight", 0, 3)}


def test_a_crash_counts_as_an_attempt_so_a_trial_that_kills_workers_fails(run):
    for _ in range(3):
        admit(register_worker(), 6)
        expire_leases()
        sweep_expired()
    assert set(run.trials.values_list("status", "error_class")) == {("failed", "worker_lost")}
    assert Run.objects.get().status == "done"


def test_a_renewed_lease_does_not_expire(run):
    claims = admit(register_worker(), 3)
    expire_leases()
    assert renew_leases([claim.trial_id for claim in claims], [claims[0].token]) == 3
    assert sweep_expired() == 0


def test_a_late_result_is_recorded_with_its_cost_but_changes_no_trial(run):
    holder = register_worker()
    claims = admit(holder, 1)
    expire_leases()
    sweep_expired()
    drain(build_provider("in time"))
    assert record_results([build_text_result(claims[0])], holder) == 0

    trial = Trial.objects.get(pk=claims[0].trial_id)
    assert (trial.status, trial.answer) == ("done", "in time")
    late = Attempt.objects.get(token=claims[0].token)
    assert (late.outcome, late.cost_usd, late.raw_response) == ("late", Decimal("0.5"), "late")
    run.refresh_from_db()
    assert run.spent_usd == Decimal("0.5")
    assert find_differences() == []


def test_recording_the_same_results_again_changes_nothing(run):
    holder = register_worker()
    results = [build_text_result(claim, "once") for claim in admit(holder, 2)]
    assert record_results(results, holder) == 2
    assert record_results(results, holder) == 0
    assert Attempt.objects.count() == 2
    assert find_differences() == []


def test_a_trial_of_a_cancelled_run_is_cancelled_when_its_lease_expires(run):
    from runs_app import run_control

    admit(register_worker(), 2)
    run_control.cancel(Run.objects.all(), by="test", reason="enough")
    expire_leases()
    sweep_expired()
    run.refresh_from_db()
    assert (run.n_cancelled, run.n_running, run.n_pending) == (6, 0, 0)
    assert find_differences() == []


def test_a_lost_claim_and_a_new_claim_of_the_same_trial_can_be_recorded_together(run):
    """A worker whose lease expired can claim the same trial again while its first call is still in flight."""
    holder = register_worker()
    (lost_claim,) = admit(holder, 1)
    expire_leases()
    sweep_expired()
    Run.objects.update(max_concurrency=6)
    new_claim = next(claim for claim in admit(holder, 6) if claim.trial_id == lost_claim.trial_id)
    assert record_results([build_text_result(lost_claim, "late"), build_text_result(new_claim, "in time")], holder) == 1

    assert Trial.objects.get(pk=lost_claim.trial_id).answer == "in time"
    outcomes = Attempt.objects.filter(trial=lost_claim.trial_id).values_list("token", "outcome")
    assert dict(outcomes) == {lost_claim.token: "late", new_claim.token: "ok"}
    assert find_differences() == []
