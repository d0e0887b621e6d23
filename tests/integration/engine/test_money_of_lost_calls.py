"""The ceiling of a call of unknown cost stays reserved, so that a late bill never exceeds the budget."""

import asyncio
from decimal import Decimal

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.engine.leases import sweep_expired
from runs_app.engine.recorder import record_results
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Endpoint, Experiment, Run
from tests.factories.engine import admit, build_provider, build_text_result, drain, expire_leases, register_worker

TEN_CENTS = Decimal("0.10")


@pytest.fixture
def budgeted(run):
    """A budget that pays three of six trials."""
    Run.objects.update(reserve_usd=TEN_CENTS)
    Experiment.objects.update(max_usd=Decimal("0.30"))
    return run


def read_money():
    return Experiment.objects.values_list("spent_usd", "reserved_usd").get()


def lose_claims(n):
    claims = admit(register_worker(), n)
    expire_leases()
    sweep_expired()
    return claims


def fail_with(error_class, **fields):
    async def call(request):
        raise CallFailure(error_class, "no", **fields)

    return call


def test_reservations_of_lost_calls_are_not_available_to_others(budgeted):
    lose_claims(2)
    assert read_money() == (0, Decimal("0.20"))
    assert len(admit(register_worker(), 6)) == 1
    assert find_differences() == []


def test_late_answers_never_exceed_the_budget(budgeted):
    lost = lose_claims(3)
    drain(build_provider(cost_usd=TEN_CENTS))
    record_results([build_text_result(claim) for claim in lost], WorkerRegistration().worker_id)
    spent, reserved = read_money()
    assert reserved == 0
    assert spent == 3 * Decimal("0.5")  # They cost more than their ceiling, and no other call was paid.
    assert not Attempt.objects.exclude(outcome="late").exists()
    assert find_differences() == []


def test_a_run_pauses_with_a_reason_if_lost_calls_reserve_its_budget(budgeted):
    lose_claims(3)
    assert drain(build_provider(cost_usd=TEN_CENTS)) == 0
    budgeted.refresh_from_db()
    assert budgeted.status == "paused"
    assert "$0.3000 reserved for calls of unknown cost" in budgeted.stop_reason


def test_a_timeout_keeps_its_reservation(budgeted):
    drain(fail_with(ErrorClass.TIMEOUT), stop_at=3)
    assert read_money() == (0, Decimal("0.30"))
    assert set(Attempt.objects.values_list("kept_usd", "cost_usd")) == {(TEN_CENTS, None)}
    assert find_differences() == []


def test_a_lost_call_at_a_free_endpoint_costs_nothing_and_is_never_unknown(run):
    Endpoint.objects.update(is_free=True)
    lost = lose_claims(2)
    run.refresh_from_db()
    assert (run.spent_usd, run.n_unpriced) == (0, 0)
    assert set(Attempt.objects.values_list("outcome", "cost_usd")) == {("lost", 0)}
    record_results([build_text_result(claim) for claim in lost[:1]], WorkerRegistration().worker_id)
    run.refresh_from_db()
    assert (run.spent_usd, run.n_unpriced) == (Decimal("0.5"), 0)  # The provider states a cost nevertheless.
    assert find_differences() == []


def test_a_call_released_at_a_stop_costs_nothing_at_a_free_endpoint(run):
    Endpoint.objects.update(is_free=True)

    async def hang(request):
        await asyncio.sleep(600)

    drain(hang, stop_at=1, grace_s=0.1)
    assert set(Attempt.objects.values_list("outcome", "cost_usd")) == {("released", 0)}
    assert find_differences() == []


@pytest.mark.parametrize("fields", [{"http_status": 500}, {"was_sent": False}])
def test_a_call_that_cost_nothing_keeps_no_reservation(budgeted, fields):
    drain(fail_with(ErrorClass.SERVER_ERROR, **fields), stop_at=3)
    assert read_money() == (0, 0)
    assert set(Attempt.objects.values_list("kept_usd", "cost_usd")) == {(None, 0)}
    assert find_differences() == []
