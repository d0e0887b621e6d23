"""A preflight counts as a call: it uses a slot, the rate limit and the budget, and is entered in the ledger."""

import threading
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from evalsite.lib.history import TransitionError
from grading_app.grading.consistency_check import find_differences
from runs_app import deletion
from runs_app.engine import preflight as preflight_module
from runs_app.engine.leases import sweep_expired
from runs_app.engine.preflight import INPUT_TOKENS, MAX_ANSWER_TOKENS
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Endpoint, Experiment, LanguageModel, LedgerEntry, Preflight
from tests import factories
from tests.factories.engine import build_reply
from tests.factories.tampering import allow_deletions, disable_triggers

PAID = Decimal("0.00003")
reconciled = pytest.mark.django_db(transaction=True)  # find_differences() needs its own transaction.
CEILING = Decimal(INPUT_TOKENS * 1 + MAX_ANSWER_TOKENS * 2) / 1_000_000


@pytest.fixture
def draft(db):
    """An experiment of one model that costs 1 and 2 US dollars a million tokens, with a budget of five dollars."""
    return factories.make_experiment("draft")


def request_preflight(experiment=None, by="a person"):
    (row,) = Preflight.objects.request([LanguageModel.objects.get().pk], by=by, experiment=experiment)
    return row


def run_preflight(preflight, call):
    preflight_module.make_preflight(preflight.pk, call)
    preflight.refresh_from_db()
    return preflight


def answer_at_a_price(request):
    return build_reply(cost_usd=PAID, list_usd=PAID)


def time_out(request):
    raise CallFailure(ErrorClass.TIMEOUT, "no reply within 30 s")


def forbid_call(request):
    raise AssertionError("no call may be made")


def sum_ledger():
    names = ("attempts", "answered", "paid_usd", "unpriced", "kept_usd")
    return tuple(LedgerEntry.objects.aggregate(**{name: Sum(name) for name in names}).values())


@reconciled
def test_a_preflight_spends_the_budget_of_its_experiment_and_is_entered_in_the_ledger(draft):
    reservations = []

    def watched(request):
        reservations.append((Endpoint.objects.get().in_flight, Experiment.objects.get().reserved_usd))
        assert find_differences() == []
        return answer_at_a_price(request)

    answered = run_preflight(request_preflight(draft), watched)
    assert reservations == [(1, CEILING)]
    assert (answered.status, answered.cost_usd, answered.served_model, answered.reserved_usd) == (
        "ok",
        PAID,
        "small-2026",
        0,
    )
    draft.refresh_from_db()
    assert (draft.spent_usd, draft.reserved_usd) == (PAID, 0)
    assert sum_ledger() == (1, 1, PAID, 0, 0)
    assert Endpoint.objects.get().in_flight == 0
    assert find_differences() == []


@reconciled
def test_a_preflight_without_an_experiment_spends_no_budget_and_is_entered_for_its_model(draft):
    run_preflight(request_preflight(), answer_at_a_price)
    draft.refresh_from_db()
    assert (draft.spent_usd, draft.reserved_usd) == (0, 0)
    entry = LedgerEntry.objects.get()
    assert (entry.model.name, entry.experiment, entry.run, entry.paid_usd) == ("small", None, None, PAID)
    assert find_differences() == []


@pytest.mark.parametrize(
    ("error_class", "status", "cost"),
    [
        (ErrorClass.UNAUTHORIZED, "dead", 0),
        (ErrorClass.OVERLOADED, "unverified", 0),
        (ErrorClass.TIMEOUT, "unverified", None),
    ],
)
def test_a_failed_preflight_states_whether_the_model_works_and_may_be_billed(draft, error_class, status, cost):
    def failing(request):
        raise CallFailure(error_class, "not now", http_status=None if cost is None else 503)

    answered = run_preflight(request_preflight(draft), failing)
    assert (answered.status, answered.cost_usd, answered.result_text) == (status, cost, f"{error_class}: not now")
    reserved = CEILING if cost is None else 0
    draft.refresh_from_db()
    assert (draft.spent_usd, draft.reserved_usd) == (0, reserved)
    assert sum_ledger() == (1, 0, 0, cost is None, reserved)
    assert Endpoint.objects.get().is_paused == (error_class == ErrorClass.OVERLOADED)
    assert Endpoint.objects.get().in_flight == 0


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"in_flight": 1}, "the endpoint lab has 1 of 1 calls in flight"),
        ({"is_active": False}, "the endpoint lab is inactive"),
        ({"paused_until": timezone.now() + timedelta(days=9), "pause_reason": "too many"}, ": too many"),
        ({"requests_per_day": 1, "throttle": {"today": 1}}, "the endpoint lab has used up its 1 requests a day until"),
        ({"requests_per_minute": 1, "throttle": {"requests": 0}}, "has used up its 1 requests a minute until"),
        ({"tokens_per_minute": 60, "throttle": {"tokens": -99}}, "has used up its 60 tokens a minute until"),
    ],
)
def test_a_closed_endpoint_is_not_called_and_the_reason_is_stated(draft, fields, reason):
    now = timezone.now()
    throttle = fields.get("throttle", {}) | {"filled_at": now.timestamp(), "day": f"{now:%Y-%m-%d}"}
    Endpoint.objects.update(**{"max_concurrency": 1, **fields, "throttle": throttle})
    before = Endpoint.objects.get()
    answered = run_preflight(request_preflight(draft), forbid_call)
    assert answered.status == "unverified"
    assert reason in answered.result_text
    if "until" in reason:
        assert answered.result_text.endswith(" UTC")
    assert (Endpoint.objects.get().in_flight, sum_ledger()[0]) == (before.in_flight, None)


def test_a_preflight_uses_one_request_and_its_tokens_of_the_rate_limit(draft):
    Endpoint.objects.update(requests_per_minute=60, tokens_per_minute=6000, requests_per_day=5)
    throttles = []

    def long_winded(request):
        throttles.append(Endpoint.objects.get().throttle)
        return build_reply(input_tokens=3000, output_tokens=2000)

    run_preflight(request_preflight(), long_winded)
    assert [(throttle["today"], throttle["requests"], throttle["tokens"]) for throttle in throttles] == [
        (1, 9, 1000 - INPUT_TOKENS - MAX_ANSWER_TOKENS)
    ]
    after = Endpoint.objects.get().throttle
    assert after["today"] == 1
    assert after["tokens"] < 0  # For about 50 s: the bucket refills at 100 tokens per second.


@pytest.mark.parametrize(
    ("budget", "prices", "reason"),
    [
        (0, {}, "the budget of draft has $0.00 left, and it may cost $0.000048"),
        (5, {"input_price": None}, "unknown price: model small has no price, and experiment draft has a budget"),
    ],
)
def test_no_preflight_is_made_beyond_the_budget(draft, budget, prices, reason):
    Experiment.objects.update(max_usd=budget)
    LanguageModel.objects.update(**prices)
    answered = run_preflight(request_preflight(draft), forbid_call)
    assert (answered.status, answered.was_made) == ("unverified", False)
    assert answered.result_text.startswith(reason)
    assert run_preflight(request_preflight(), answer_at_a_price).status == "ok"


@reconciled
def test_a_concurrency_limit_of_one_admits_one_of_two_preflights(draft):
    Endpoint.objects.update(max_concurrency=1)
    first, second = request_preflight(draft), request_preflight(draft)
    inside, over = threading.Event(), threading.Event()

    def slow(request):
        inside.set()
        assert over.wait(30)
        return answer_at_a_price(request)

    def make():
        preflight_module.make_preflight(first.pk, slow)
        connection.close()

    thread = threading.Thread(target=make)
    thread.start()
    assert inside.wait(30)
    assert preflight_module.begin_preflight(first.pk) is None  # A task that is delivered twice makes no second call.
    assert run_preflight(second, forbid_call).result_text == "the endpoint lab has 1 of 1 calls in flight"
    over.set()
    thread.join(30)
    first.refresh_from_db()
    assert (first.status, Endpoint.objects.get().in_flight) == ("ok", 0)
    assert sum_ledger()[:3] == (1, 1, PAID)


@reconciled
def test_a_preflight_of_a_silent_worker_releases_its_slot_and_its_late_answer_is_paid_once(draft):
    silent = request_preflight(draft)

    def late(request):
        assert sweep_expired() == 0
        Preflight.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
        assert sweep_expired() == 1
        silent.refresh_from_db()
        assert (silent.status, silent.error_class, Endpoint.objects.get().in_flight) == ("unverified", "worker_lost", 0)
        assert sum_ledger() == (1, 0, 0, 1, CEILING)
        assert find_differences() == []
        return answer_at_a_price(request)

    assert run_preflight(silent, late).status == "ok"
    assert sum_ledger() == (1, 1, PAID, 0, 0)
    draft.refresh_from_db()
    assert (draft.spent_usd, draft.reserved_usd, Endpoint.objects.get().in_flight) == (PAID, 0, 0)
    assert find_differences() == []


def test_a_preflight_that_no_worker_claims_expires(draft):
    waiting = request_preflight()
    Preflight.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert sweep_expired() == 1
    waiting.refresh_from_db()
    assert (waiting.status, waiting.result_text) == ("unverified", "no worker took it within 10 minutes")
    assert run_preflight(waiting, forbid_call).status == "unverified"


@reconciled
def test_reconcile_finds_changed_entries_and_money_and_slots_without_a_preflight(draft):
    run_preflight(request_preflight(draft), answer_at_a_price)
    with disable_triggers():
        LedgerEntry.objects.update(paid_usd=7, attempts=7)
    differences = find_differences()
    assert {difference.counter for difference in differences} == {"paid_usd", "attempts"}
    row = f"preflights of model {LanguageModel.objects.get().pk} of experiment {draft.pk} from"
    assert all(difference.row.startswith(row) for difference in differences)
    with pytest.raises(SystemExit) as ending:
        call_command("reconcile")
    assert ending.value.code == 1
    with allow_deletions():
        Preflight.objects.filter(experiment=draft).delete()
    assert {difference.counter for difference in find_differences()} >= {"spent_usd", "paid_usd", "attempts"}
    Endpoint.objects.update(in_flight=1)
    assert "in_flight" in {difference.counter for difference in find_differences()}


@reconciled
def test_an_experiment_can_be_deleted_with_its_ledger_after_its_preflight_ends(draft):
    def deleting(request):
        with pytest.raises(TransitionError, match="preflight"):
            deletion.delete(draft, by="owner", reason="too early")
        return answer_at_a_price(request)

    run_preflight(request_preflight(draft), deleting)
    deletion.delete(draft, by="owner", reason="no longer needed")
    assert not LedgerEntry.objects.exists()
    assert find_differences() == []
