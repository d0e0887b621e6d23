"""Rate limits apply to all workers together, at the claim; an overloaded endpoint gets fewer calls."""

import asyncio

import pytest
from django.db import connection

from runs_app.engine.rate_limiter import FIRST_LIMIT
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Endpoint, EndpointTick, Run
from tests import factories
from tests.factories.engine import admit, build_provider, build_reply, drain


def make_large_run(**endpoint):
    experiment = factories.make_experiment("many", dataset=factories.make_dataset("many", 60), max_usd=None)
    (run,) = factories.make_runs(experiment)
    Run.objects.update(max_concurrency=1000)
    Endpoint.objects.update(**{"max_concurrency": 1000, **endpoint})
    factories.plan_trials(run)
    return run


def claim_with_two_workers():
    return [len(admit(WorkerRegistration().worker_id, 50)) for _ in range(2)]


@pytest.fixture
def clock(transactional_db):
    """A function that sets the database clock, by shadowing `clock_timestamp()` in the search path."""
    with connection.cursor() as cursor:
        cursor.execute("""CREATE SCHEMA told;
            CREATE FUNCTION told.clock_timestamp() RETURNS timestamptz STABLE LANGUAGE sql
                AS $$ SELECT current_setting('told.now')::timestamptz $$;
            SET search_path = told, public, pg_catalog""")
        yield lambda now: cursor.execute("SELECT set_config('told.now', %s, false)", [now])
        cursor.execute("RESET search_path; DROP SCHEMA told CASCADE")


@pytest.fixture
def noon(clock):
    """A clock stopped at noon: no bucket refills and no day ends between two claims."""
    clock("2026-03-01T12:00:00Z")


def test_workers_share_the_limit_of_requests_per_minute(noon):
    make_large_run(requests_per_minute=60, adaptive=False)
    assert claim_with_two_workers() == [10, 0]


def test_workers_share_the_limit_of_requests_per_day(noon):
    make_large_run(requests_per_day=7, adaptive=False)
    assert claim_with_two_workers() == [7, 0]


@pytest.mark.parametrize(
    ("zone", "before", "after", "midnight_in_utc"),
    [
        ("Asia/Tokyo", "2026-03-01T14:59:50Z", "2026-03-01T15:00:10Z", "2026-03-02T00:00:10Z"),
        # The night after daylight saving time began: midnight is one hour earlier in UTC than the night before.
        ("America/New_York", "2026-03-09T03:59:50Z", "2026-03-09T04:00:10Z", "2026-03-10T00:00:10Z"),
    ],
)
def test_a_day_begins_at_midnight_in_the_time_zone_of_the_endpoint(clock, zone, before, after, midnight_in_utc):
    clock(before)
    make_large_run(requests_per_day=7, adaptive=False, day_zone=zone)
    assert claim_with_two_workers() == [7, 0]
    clock(after)
    assert claim_with_two_workers() == [7, 0]
    clock(midnight_in_utc)
    assert claim_with_two_workers() == [0, 0]


def test_workers_share_the_limit_of_tokens_per_minute_and_actual_usage_corrects_it(noon):
    run = make_large_run(tokens_per_minute=6000, adaptive=False)
    Run.objects.update(reserve_tokens=300)
    assert claim_with_two_workers() == [4, 0]
    assert Endpoint.objects.get().throttle["tokens"] < 0
    Run.objects.update(status="paused")
    run.trials.filter(status="running").update(status="pending", token=None)


@pytest.mark.slow
def test_unused_tokens_return_to_the_bucket_with_the_answers(transactional_db):
    make_large_run(tokens_per_minute=60_000, adaptive=False)
    Run.objects.update(reserve_tokens=5000)
    drain(build_provider(), seconds=60)  # Two reservations empty the bucket: the other calls need returned tokens.
    assert Endpoint.objects.get().throttle["tokens"] > 9000


def test_a_changed_rate_limit_applies_to_the_next_claim(noon):
    make_large_run(requests_per_day=3, adaptive=False)
    assert claim_with_two_workers() == [3, 0]
    Endpoint.objects.update(requests_per_day=5)
    assert claim_with_two_workers() == [2, 0]


def test_the_adaptive_limit_starts_low_and_grows_while_calls_are_answered(transactional_db):
    make_large_run()
    assert sum(claim_with_two_workers()) == FIRST_LIMIT


def test_an_overload_reduces_the_adaptive_limit_and_appears_in_its_history(transactional_db):
    make_large_run()
    calls = 0

    async def call(request):
        nonlocal calls
        calls += 1
        mine = calls
        await asyncio.sleep(0.01)
        if mine == 20:
            raise CallFailure(ErrorClass.OVERLOADED, "too many", http_status=529, retry_after_s=0.01)
        return build_reply()

    drain(call)
    assert Run.objects.get().n_done == 60
    assert Endpoint.objects.get().throttle["cut_at"] is not None
    ticks = EndpointTick.objects.all()
    assert sum(tick.overloaded for tick in ticks) == 1
    assert sum(tick.answered for tick in ticks) == 60
