"""A preflight counts as a call: it uses a slot, the rate limit and the budget, and is entered in the ledger."""

import threading
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from datasets_app.models import TransitionError
from runs_app import deletion
from runs_app.engine import preflight as preflight_module
from runs_app.engine.leases import sweep_expired
from runs_app.engine.preflight import INPUT_TOKENS, MAX_ANSWER_TOKENS
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Endpoint, Experiment, LanguageModel, LedgerEntry, Preflight
from runs_app.monitoring.consistency_check import find_differences
from tests import factories
from tests.factories.engine import reply
from tests.factories.tampering import deleting_anything, without_triggers

PAID = Decimal("0.00003")
reconciled = pytest.mark.django_db(transaction=True)  # find_differences() needs its own transaction.
CEILING = Decimal(INPUT_TOKENS * 1 + MAX_ANSWER_TOKENS * 2) / 1_000_000


@pytest.fixture
def draft(db):
    """An experiment of one model that costs 1 and 2 US dollars a million tokens, with a budget of five dollars."""
    return factories.make_experiment("draft")


def asked(experiment=None, by="a person"):
    (row,) = Preflight.objects.request([LanguageModel.objects.get().pk], by=by, experiment=experiment)
    return row


def made(preflight, call):
    preflight_module.make_preflight(preflight.pk, call)
    preflight.refresh_from_db()
    return preflight


def priced(request):
    return reply(cost_usd=PAID, list_usd=PAID)


def cut(request):
    raise CallFailure(ErrorClass.TIMEOUT, "no reply within 30 s")


def never(request):
    raise AssertionError("no call may be made")


def entry():
    names = ("attempts", "answered", "paid_usd", "unpriced", "kept_usd")
    return tuple(LedgerEntry.objects.aggregate(**{name: Sum(name) for name in names}).values())


@reconciled
def test_a_preflight_spends_the_budget_of_its_experiment_and_is_entered_in_the_ledger(draft):
    held = []

    def watched(request):
        held.append((Endpoint.objects.get().in_flight, Experiment.objects.get().reserved_usd))
        assert find_differences() == []
        return priced(request)

    done = made(asked(draft), watched)
    assert held == [(1, CEILING)]
    assert (done.status, done.cost_usd, done.served_model, done.reserved_usd) == ("ok", PAID, "small-2026", 0)
    draft.refresh_from_db()
    assert (draft.spent_usd, draft.reserved_usd) == (PAID, 0)
    assert entry() == (1, 1, PAID, 0, 0)
    assert Endpoint.objects.get().in_flight == 0
    assert find_differences() == []


@reconciled
def test_a_preflight_without_an_experiment_spends_no_budget_and_is_entered_for_its_model(draft):
    made(asked(), priced)
    draft.refresh_from_db()
    assert (draft.spent_usd, draft.reserved_usd) == (0, 0)
    found = LedgerEntry.objects.get()
    assert (found.model.name, found.experiment, found.run, found.paid_usd) == ("small", None, None, PAID)
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

    done = made(asked(draft), failing)
    assert (done.status, done.cost_usd, done.result_text) == (status, cost, f"{error_class}: not now")
    kept = CEILING if cost is None else 0
    draft.refresh_from_db()
    assert (draft.spent_usd, draft.reserved_usd) == (0, kept)
    assert entry() == (1, 0, 0, cost is None, kept)
    assert Endpoint.objects.get().is_paused == (error_class == ErrorClass.OVERLOADED)
    assert Endpoint.objects.get().in_flight == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"in_flight": 1}, "the endpoint lab has 1 of 1 calls in flight"),
        ({"is_active": False}, "the endpoint lab is inactive"),
        ({"paused_until": timezone.now() + timedelta(days=9), "pause_reason": "too many"}, ": too many"),
        ({"requests_per_day": 1, "throttle": {"today": 1}}, "the endpoint lab has used up its 1 requests a day until"),
        ({"requests_per_minute": 6, "throttle": {"requests": 0}}, "has used up its 6 requests a minute until"),
        ({"tokens_per_minute": 60, "throttle": {"tokens": -9}}, "has used up its 60 tokens a minute until"),
    ],
)
def test_a_closed_endpoint_is_not_called_and_the_reason_is_stated(draft, fields, said):
    now = timezone.now()
    throttle = fields.get("throttle", {}) | {"filled_at": now.timestamp(), "day": f"{now:%Y-%m-%d}"}
    Endpoint.objects.update(**{"max_concurrency": 1, **fields, "throttle": throttle})
    before = Endpoint.objects.get()
    done = made(asked(draft), never)
    assert done.status == "unverified"
    assert said in done.result_text
    if "until" in said:
        assert done.result_text.endswith(" UTC")
    assert (Endpoint.objects.get().in_flight, entry()[0]) == (before.in_flight, None)


def test_a_preflight_uses_one_request_and_its_tokens_of_the_rate_limit(draft):
    Endpoint.objects.update(requests_per_minute=60, tokens_per_minute=6000, requests_per_day=5)
    taken = []

    def long_winded(request):
        taken.append(Endpoint.objects.get().throttle)
        return reply(input_tokens=3000, output_tokens=2000)

    made(asked(), long_winded)
    assert [(one["today"], one["requests"], one["tokens"]) for one in taken] == [
        (1, 9, 1000 - INPUT_TOKENS - MAX_ANSWER_TOKENS)
    ]
    after = Endpoint.objects.get().throttle
    assert after["today"] == 1
    assert after["tokens"] < 0  # For about 50 s: the bucket refills at 100 tokens per second.


@pytest.mark.parametrize(
    ("budget", "prices", "said"),
    [
        (0, {}, "the budget of draft has $0.00 left, and it may cost $0.000048"),
        (5, {"input_price": None}, "unknown price: model small has no price, and experiment draft has a budget"),
    ],
)
def test_no_preflight_is_made_beyond_the_budget(draft, budget, prices, said):
    Experiment.objects.update(max_usd=budget)
    LanguageModel.objects.update(**prices)
    done = made(asked(draft), never)
    assert (done.status, done.was_made) == ("unverified", False)
    assert done.result_text.startswith(said)
    assert made(asked(), priced).status == "ok"


@reconciled
def test_a_concurrency_limit_of_one_admits_one_of_two_preflights(draft):
    Endpoint.objects.update(max_concurrency=1)
    first, second = asked(draft), asked(draft)
    inside, over = threading.Event(), threading.Event()

    def slow(request):
        inside.set()
        assert over.wait(30)
        return priced(request)

    def make():
        preflight_module.make_preflight(first.pk, slow)
        connection.close()

    other = threading.Thread(target=make)
    other.start()
    assert inside.wait(30)
    assert preflight_module.begin_preflight(first.pk) is None  # A task that is delivered twice makes no second call.
    assert made(second, never).result_text == "the endpoint lab has 1 of 1 calls in flight"
    over.set()
    other.join(30)
    first.refresh_from_db()
    assert (first.status, Endpoint.objects.get().in_flight) == ("ok", 0)
    assert entry()[:3] == (1, 1, PAID)


@reconciled
def test_a_preflight_of_a_silent_worker_releases_its_slot_and_its_late_answer_is_paid_once(draft):
    lost = asked(draft)

    def late(request):
        assert sweep_expired() == 0
        Preflight.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
        assert sweep_expired() == 1
        lost.refresh_from_db()
        assert (lost.status, lost.error_class, Endpoint.objects.get().in_flight) == ("unverified", "worker_lost", 0)
        assert entry() == (1, 0, 0, 1, CEILING)
        assert find_differences() == []
        return priced(request)

    assert made(lost, late).status == "ok"
    assert entry() == (1, 1, PAID, 0, 0)
    draft.refresh_from_db()
    assert (draft.spent_usd, draft.reserved_usd, Endpoint.objects.get().in_flight) == (PAID, 0, 0)
    assert find_differences() == []


def test_a_preflight_that_no_worker_claims_expires(draft):
    waiting = asked()
    Preflight.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert sweep_expired() == 1
    waiting.refresh_from_db()
    assert (waiting.status, waiting.result_text) == ("unverified", "no worker took it within 10 minutes")
    assert made(waiting, never).status == "unverified"


@reconciled
def test_reconcile_finds_changed_entries_and_money_and_slots_without_a_preflight(draft):
    made(asked(draft), priced)
    with without_triggers():
        LedgerEntry.objects.update(paid_usd=7, attempts=7)
    found = find_differences()
    assert {difference.counter for difference in found} == {"paid_usd", "attempts"}
    row = f"preflights of model {LanguageModel.objects.get().pk} of experiment {draft.pk} from"
    assert all(difference.row.startswith(row) for difference in found)
    with pytest.raises(SystemExit) as ending:
        call_command("reconcile")
    assert ending.value.code == 1
    with deleting_anything():
        Preflight.objects.filter(experiment=draft).delete()
    assert {difference.counter for difference in find_differences()} >= {"spent_usd", "paid_usd", "attempts"}
    Endpoint.objects.update(in_flight=1)
    assert "in_flight" in {difference.counter for difference in find_differences()}


@reconciled
def test_an_experiment_can_be_deleted_with_its_ledger_after_its_preflight_ends(draft):
    def deleting(request):
        with pytest.raises(TransitionError, match="preflight"):
            deletion.delete(draft, by="owner", reason="too early")
        return priced(request)

    made(asked(draft), deleting)
    deletion.delete(draft, by="owner", reason="no longer needed")
    assert not LedgerEntry.objects.exists()
    assert find_differences() == []
