"""A waiting run shows why it waits and when it continues: on Progress, in `status`, and at its endpoint."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.utils import timezone

from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Endpoint, Experiment, Run, Worker
from runs_app.monitoring.blockers import find_blockers
from tests import factories
from tests.factories.engine import admit

PROGRESS, ENDPOINTS = "/experiments/pilot/progress/", "/endpoints/"


@pytest.fixture
def waiting_run(db, people):
    """Return a running run with three pending trials and a live worker."""
    experiment = factories.make_experiment("pilot", owner=people["owner"], status="active")
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    Worker.objects.create(name="a-worker", host="lab", pid=1)
    return run


def build_throttle(**throttle):
    now = timezone.now()
    return {"limit": 16, "filled_at": now.timestamp(), "day": now.astimezone(UTC).date().isoformat(), **throttle}


def read_status(capsys):
    call_command("status", "pilot")
    return capsys.readouterr().out


def test_a_run_that_can_continue_gives_no_reason(waiting_run, as_, capsys):
    assert find_blockers(Run.objects.with_design()) == []
    assert "waiting:" not in read_status(capsys)
    assert "Continues at" not in as_("owner").get(PROGRESS).content.decode()


def test_used_up_daily_requests_are_reported_until_midnight(waiting_run, as_, capsys):
    Endpoint.objects.update(requests_per_day=5, throttle=build_throttle(today=5))
    midnight = datetime.combine(timezone.now().astimezone(UTC).date() + timedelta(days=1), datetime.min.time(), UTC)
    (blocker,) = find_blockers(Run.objects.with_design())
    assert (blocker.text, blocker.until) == ("Endpoint lab has used up its 5 requests a day.", midnight)
    assert f"waiting: {blocker.text} Continues at {midnight:%Y-%m-%d} 00:00:00 UTC." in read_status(capsys)
    for address in (PROGRESS, f"/runs/{waiting_run.pk}/", ENDPOINTS, f"/endpoints/{Endpoint.objects.get().pk}/live/"):
        page = as_("owner").get(address).content.decode()
        assert "Endpoint lab has used up its 5 requests a day. Continues at" in page
        assert f"{midnight:%Y-%m-%d}T00:00:00" in page
    call_command("status", "pilot", "--json")
    assert json.loads(capsys.readouterr().out)["blockers"][0]["until"] == midnight.isoformat()


def test_the_day_uses_the_endpoints_time_zone_and_yesterdays_requests_do_not_count(waiting_run):
    zone = ZoneInfo("Pacific/Auckland")
    today = timezone.now().astimezone(zone).date()
    Endpoint.objects.update(
        requests_per_day=5, day_zone=str(zone), throttle=build_throttle(today=5, day=today.isoformat())
    )
    (blocker,) = find_blockers(Run.objects.with_design())
    assert blocker.until.astimezone(zone).date() == today + timedelta(days=1)
    Endpoint.objects.update(throttle=build_throttle(today=5, day=(today - timedelta(days=1)).isoformat()))
    assert find_blockers(Run.objects.with_design()) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda soon: {"paused_until": soon, "pause_reason": "slow down"},
            "Endpoint lab backs off: slow down Continues at",
        ),
        (
            lambda soon: {"throttle": build_throttle(reported_requests=0, requests_until=soon.timestamp())},
            "Endpoint lab says that no request is left. Continues at",
        ),
        (
            lambda soon: {"throttle": build_throttle(reported_tokens=0, tokens_until=soon.timestamp())},
            "Endpoint lab says that no token is left. Continues at",
        ),
        (lambda soon: {"is_active": False}, "Endpoint lab is inactive: no call starts."),
    ],
)
def test_an_endpoint_that_accepts_no_calls_gives_its_reason(waiting_run, as_, capsys, change, text):
    Endpoint.objects.update(**change(timezone.now() + timedelta(minutes=10)))
    assert f"waiting: {text}" in read_status(capsys)
    assert text in as_("owner").get(PROGRESS).content.decode()


def test_a_short_wait_is_not_reported(waiting_run):
    Endpoint.objects.update(paused_until=timezone.now() - timedelta(seconds=1), requests_per_minute=60)
    Endpoint.objects.update(throttle=build_throttle(requests=0.0))
    assert find_blockers(Run.objects.with_design()) == []


def test_a_missing_worker_is_the_reason_after_a_minute(waiting_run, capsys):
    Run.objects.update(created_at=timezone.now() - timedelta(minutes=2))
    Worker.objects.update(stopped_at=timezone.now())
    assert "waiting:" not in read_status(capsys), "one drain has ended, and the next one is about to start"
    Worker.objects.update(seen_at=timezone.now() - timedelta(minutes=2))
    assert "waiting: No worker is alive. Trials wait until one starts." in read_status(capsys)


def test_runs_that_do_not_wait_give_no_reason(waiting_run):
    Worker.objects.all().delete()
    for change in ({"status": "paused"}, {"status": "done"}, {"status": "running", "n_pending": 0}):
        Run.objects.update(**change)
        assert find_blockers(Run.objects.with_design()) == []


@pytest.mark.slow
def test_the_budget_reason_disappears_after_the_budget_is_raised_and_the_run_can_be_resumed(waiting_run, as_, capsys):
    Experiment.objects.update(max_usd=Decimal("0.01"), spent_usd=Decimal("0.0099"))
    Run.objects.update(reserve_usd=Decimal("0.001"))
    (blocker,) = find_blockers(Run.objects.with_design())
    assert blocker.kind == "budget"
    assert admit(WorkerRegistration().worker_id, 5) == []
    owner = as_("owner")
    reached = "The budget of $0.0100 is reached"
    raise_budget = '<a class="btn btn-sm" href="/experiments/pilot/edit/#id_max_usd">Raise budget</a>'
    for address in (PROGRESS, f"/runs/{waiting_run.pk}/"):
        text = owner.get(address).content.decode()
        assert reached in text
        assert raise_budget in text
    assert reached in read_status(capsys)
    Experiment.objects.update(max_usd=Decimal(5))
    for address in (PROGRESS, f"/runs/{waiting_run.pk}/"):
        response = owner.get(address)
        assert reached not in "".join(response.context["stop_reasons"])
        assert "The budget now allows more calls. Resume the run." in response.content.decode()
        assert raise_budget not in response.content.decode()
    assert reached not in owner.get(PROGRESS).content.decode(), "the page of the run keeps it in its history alone"
    assert reached not in read_status(capsys)
    owner.post("/experiments/pilot/control/resume/", {"reason": "the budget is raised"})
    run = Run.objects.get()
    assert (run.status, run.paused_by_budget, run.current_stop_reason) == ("running", False, "")
    assert "The budget now allows more calls" not in owner.get(PROGRESS).content.decode()


def test_a_manual_pause_keeps_its_reason_regardless_of_the_budget(waiting_run, as_):
    Run.objects.update(status="paused", stop_reason="The budget of my patience is spent.")
    assert "The budget of my patience is spent." in as_("owner").get(PROGRESS).content.decode()
