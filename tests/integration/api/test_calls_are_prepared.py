"""The gateway prepares calls: one begins without a transaction, and slots, money and rows stay exact."""

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection
from hypothesis import HealthCheck, given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from grading_app.grading.consistency_check import compare_counters
from runs_app.engine import prepared_calls
from runs_app.engine.admission import Claim
from runs_app.engine.external_calls import EndedCall, ExternalRequest, NotAdmitted, begin_calls
from runs_app.engine.external_queue import Executors, ExternalQueue, open_spool
from runs_app.engine.leases import sweep_expired
from runs_app.engine.prepared_calls import PreparedCalls
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Endpoint, Experiment, ExternalCall, Trial
from runs_app.models.tokens import REVOKED_CHANNEL
from runs_app.planning.work import get_or_create_external_run
from tests import factories
from tests.factories.engine import expire_leases
from tests.factories.people import make_team
from tests.factories.tokens import make_token
from tests.integration.api.test_calls_are_admitted_in_groups import run_in_loop

pytestmark = pytest.mark.django_db

FREE = CallFailure(ErrorClass.BAD_REQUEST, "no such model", http_status=400)


@pytest.fixture
def experiment(db):
    endpoint = factories.make_endpoint("shop", max_concurrency=40, adaptive=False)
    model = factories.make_model("small", endpoint=endpoint, input_price=Decimal(1), output_price=Decimal(1))
    return factories.make_experiment(
        "agents", owner=make_team().owner, models=[model], max_usd=Decimal("0.1"), max_concurrency=40
    )


@pytest.fixture
def make_call(experiment):
    run = get_or_create_external_run(experiment, experiment.language_models.get())
    token = make_token(experiment.owner, "run", experiment=experiment)[0]

    def make(text="hello", tokens=100):
        messages = [{"role": "user", "content": text}]
        return ExternalRequest(run, "openai", "night", token.pk, str(token), messages, {"n": 1}, tokens, tokens, "key")

    make.token = token  # type: ignore[attr-defined]
    return make


@pytest.fixture
def admitted(monkeypatch):
    """Return the texts of the calls that were admitted one by one."""
    texts = []

    def begin(calls):
        texts.extend(call.messages[0]["content"] for call in calls)
        return begin_calls(calls)

    monkeypatch.setattr("runs_app.engine.external_queue.begin_calls", begin)
    return texts


def make_queue(thread):
    spool, worker_id = open_spool()
    return ExternalQueue(Executors(thread, thread, thread), spool, worker_id, 0, prepared=PreparedCalls())


async def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.005)


def play(scene):
    """Return the result of the scene with a queue whose spool a process of the gateway opened."""

    async def run(thread):
        queue = await asyncio.get_running_loop().run_in_executor(thread, make_queue, thread)
        return await scene(queue)

    return run_in_loop(run)


async def warm_up(queue, call):
    """Make a first call, and wait for the calls that are prepared after it."""
    claim = await queue.admit(call)
    await until(lambda: len(queue.prepared))
    queue.record(EndedCall(claim, b"{}", failure=FREE).build_result())
    return claim


def find_differences():
    return compare_counters()


def test_a_prepared_call_begins_without_a_transaction_and_is_recorded_like_any_other(make_call, admitted):
    async def scene(queue):
        await warm_up(queue, make_call("first"))
        claim = await queue.admit(make_call("second"))
        queue.record(EndedCall(claim, b'{"error": 2}', failure=FREE).build_result())
        await queue.finish()

    play(scene)
    assert admitted == ["first"]
    first, second = Trial.objects.order_by("sample_idx")
    assert (first.messages[0]["content"], second.messages[0]["content"]) == ("first", "second")
    assert [trial.status for trial in (first, second)] == ["failed", "failed"]
    call = second.external_call
    assert (call.session, call.parameters, call.reply) == ("night", {"n": 1}, '{"error": 2}')
    assert call.token == str(make_call.token)
    assert Attempt.objects.count() == 2
    assert find_differences() == []


def test_the_rows_and_the_reservation_of_a_prepared_call_exist_before_it_begins(make_call, experiment):
    async def scene(queue):
        await warm_up(queue, make_call())
        await queue._run(queue.executors.reading, check)
        await queue.finish()

    def check():
        experiment.refresh_from_db()
        prepared = Trial.objects.filter(messages=[], status="running")
        assert experiment.reserved_usd >= sum(trial.reserved_usd for trial in prepared) > 0
        assert find_differences() == []

    play(scene)


def test_pages_show_a_prepared_call_as_one_that_no_program_has_asked_for(make_call, experiment, client):
    client.force_login(experiment.owner)

    def look():
        trial = Trial.objects.filter(messages=[]).first()
        assert "No program has asked for it yet" in client.get(trial.get_absolute_url()).content.decode()
        for address in (trial.run.get_absolute_url(), f"/trials/?experiment=agents&run={trial.run_id}",
                        "/experiments/agents/progress/", "/experiments/agents/ledger/"):  # fmt: skip
            assert client.get(address).status_code == 200

    async def scene(queue):
        await warm_up(queue, make_call())
        await queue._run(queue.executors.reading, look)
        await queue.finish()

    play(scene)


def test_a_stopping_gateway_releases_the_calls_that_it_prepared(make_call, experiment):
    async def scene(queue):
        await warm_up(queue, make_call())
        await queue.finish()

    play(scene)
    assert Trial.objects.count() == ExternalCall.objects.count() == 1
    experiment.refresh_from_db()
    assert (experiment.reserved_usd, Endpoint.objects.get().in_flight) == (0, 0)
    assert find_differences() == []


def test_prepared_calls_are_released_when_no_program_calls_any_more(make_call, monkeypatch):
    monkeypatch.setattr("runs_app.engine.external_queue.REFRESH_S", 0.01)

    async def scene(queue):
        await warm_up(queue, make_call())
        monkeypatch.setattr(prepared_calls, "IDLE_S", 0)
        await until(lambda: not queue.prepared.is_active and queue._writing.done())
        await queue.finish()

    play(scene)
    assert Trial.objects.count() == 1


def test_later_calls_are_numbered_after_the_last_one_although_earlier_ones_were_released(make_call):
    async def scene(queue):
        await warm_up(queue, make_call("first"))
        await queue._run(queue.executors.reading, begin_calls, [make_call("of another process")])
        await queue.finish()

    play(scene)
    decided = begin_calls([make_call("third"), make_call("fourth")])
    assert all(isinstance(one, Claim) for one in decided)
    numbers = list(Trial.objects.order_by("pk").values_list("sample_idx", flat=True))
    assert numbers == sorted(set(numbers))
    assert len(numbers) == numbers[-1] + 1 - 2, "two prepared calls were released"


def test_a_killed_gateway_releases_what_it_prepared_and_keeps_the_calls_that_began(make_call, experiment, monkeypatch):
    async def scene(queue):
        await warm_up(queue, make_call("first"))
        await queue.write()
        monkeypatch.setattr(ExternalQueue, "_write_now", lambda queue: None)  # Killed before its next transaction.
        claim = await queue.admit(make_call("in flight"))
        os.close(queue.spool._file)  # The lock of the file ends with the process.
        return claim

    claim = play(scene)
    assert Trial.objects.filter(messages=[]).exists()
    later, _ = open_spool()
    trial = Trial.objects.get(status="running")
    assert (trial.pk, trial.messages[0]["content"]) == (claim.trial_id, "in flight")
    assert trial.external_call.session == "night"
    assert not Trial.objects.filter(messages=[]).exists()
    assert find_differences() == []
    expire_leases()
    assert sweep_expired() == 1
    experiment.refresh_from_db()
    assert experiment.reserved_usd == Attempt.objects.get(outcome="lost").kept_usd > 0
    assert find_differences() == []
    later.close()
    assert list(settings.RESULT_SPOOL_DIR.glob("*.jsonl")) == []


def test_without_the_spool_every_prepared_call_counts_as_lost_at_its_largest_cost(make_call, experiment, monkeypatch):
    async def scene(queue):
        await warm_up(queue, make_call())
        await queue.write()
        monkeypatch.setattr(ExternalQueue, "_write_now", lambda queue: None)
        queue.spool.path.unlink()
        os.close(queue.spool._file)
        return len(queue.prepared)

    n = play(scene)
    expire_leases()
    assert sweep_expired() == n > 0
    experiment.refresh_from_db()
    assert experiment.reserved_usd == sum(attempt.kept_usd for attempt in Attempt.objects.filter(outcome="lost")) > 0
    assert find_differences() == []


def test_a_revoked_token_takes_no_prepared_call(make_call):
    async def scene(queue):
        await warm_up(queue, make_call())
        await queue._run(queue.executors.reading, lambda: make_call.token.revoke(by="test"))
        await until(lambda: make_call.token.pk not in next(iter(queue.prepared._stocks.values())).usable)
        with pytest.raises(NotAdmitted) as refused:
            await queue.admit(make_call())
        await queue.finish()
        return refused.value

    assert play(scene).was_revoked


def test_a_notice_of_a_revoked_token_counts_at_once_even_if_a_transaction_found_it_usable(make_call, admitted):
    async def scene(queue):
        await warm_up(queue, make_call("first"))
        queue.prepared.revoke(make_call.token.pk)
        for text in ("second", "third"):
            claim = await queue.admit(make_call(text))
            queue.record(EndedCall(claim, b"{}", failure=FREE).build_result())
            await queue.write()
            assert len(queue.prepared)
        await queue.finish()

    play(scene)
    assert admitted == ["first", "second", "third"], "their transactions read the token again"


def test_a_revocation_is_announced_when_it_commits(make_call, transactional_db):
    connection.ensure_connection()
    with psycopg.connect(connection.connection.info.dsn, password=connection.settings_dict["PASSWORD"],
                         autocommit=True) as listener:  # fmt: skip
        listener.execute(f"LISTEN {REVOKED_CHANNEL}")
        make_call.token.revoke(by="test")
        notices = list(listener.notifies(timeout=10, stop_after=1))
    assert [int(notice.payload) for notice in notices] == [make_call.token.pk]


def test_a_paused_endpoint_takes_the_prepared_calls_back(make_call, monkeypatch):
    for name in ("MAX_AGE_S", "IDLE_S"):
        monkeypatch.setattr(prepared_calls, name, 1000)

    async def scene(queue):
        await warm_up(queue, make_call())
        await queue._run(queue.executors.reading, lambda: Endpoint.objects.update(is_active=False))
        await until(lambda: not len(queue.prepared))
        with pytest.raises(NotAdmitted):
            await queue.admit(make_call())
        await queue.finish()

    play(scene)
    assert Trial.objects.count() == 1


def test_a_call_that_is_refused_releases_the_prepared_calls_of_its_endpoint_and_experiment_alone(make_call, experiment):
    other = factories.make_experiment("other", owner=experiment.owner, models=[factories.make_model("else")])
    other_run = get_or_create_external_run(other, other.language_models.get())

    async def scene(queue):
        elsewhere = replace(make_call(), run=other_run)
        await warm_up(queue, make_call())
        await queue.write()
        assert not await queue.flush(elsewhere)
        assert len(queue.prepared)
        assert await queue.flush(make_call())
        assert not len(queue.prepared), "and prepares none for a second"
        await queue.finish()

    play(scene)
    assert Trial.objects.count() == 1


def test_calls_that_a_commit_prepared_before_its_connection_broke_are_released(make_call, monkeypatch):
    broken = []

    def write_and_break(*arguments):
        prepared = prepared_calls.record_and_prepare(*arguments)
        if prepared.claims and not broken:
            broken.extend(prepared.claims)
            raise OperationalError("the connection broke after the commit")
        return prepared

    monkeypatch.setattr("runs_app.engine.external_queue.record_and_prepare", write_and_break)
    monkeypatch.setattr("runs_app.engine.external_queue.OUTAGE_WAIT_S", 0)

    async def scene(queue):
        await warm_up(queue, make_call())
        await queue.write()
        known = queue.prepared.list_known()
        found = await queue._run(queue.executors.reading, list_prepared)
        await queue.finish()
        return known, found

    def list_prepared():
        return set(Trial.objects.filter(messages=[]).values_list("pk", flat=True))

    known, found = play(scene)
    assert broken
    assert found == known
    assert find_differences() == []


@pytest.mark.parametrize(
    ("model", "limits"),
    [
        (Experiment, {"max_usd": Decimal("0.002")}),
        (Experiment, {"max_concurrency": 3}),
        (Endpoint, {"max_concurrency": 3}),
        (Endpoint, {"requests_per_minute": 3}),
        (Endpoint, {"tokens_per_minute": 2000}),
    ],
    ids=str,
)
def test_no_call_is_prepared_where_little_is_left(model, limits, make_call, experiment):
    model.objects.update(**limits)
    experiment.runs.update(**{name: n for name, n in limits.items() if name == "max_concurrency"})

    async def scene(queue):
        claim = await queue.admit(make_call())
        await until(lambda: next(iter(queue.prepared._stocks.values())).retry_at)
        n = len(queue.prepared)
        queue.record(EndedCall(claim, b"{}", failure=FREE).build_result())
        await queue.finish()
        return n

    assert play(scene) == 0


def test_a_call_that_may_cost_more_than_a_prepared_one_is_admitted_by_itself(make_call, admitted, experiment):
    async def scene(queue):
        await warm_up(queue, make_call("small"))
        claim = await queue.admit(make_call("large", tokens=5000))
        queue.record(EndedCall(claim, b"{}", failure=FREE).build_result())
        await queue.finish()
        return claim

    assert play(scene).reserved_usd == Decimal("0.01")
    assert admitted == ["small", "large"]


@pytest.mark.slow
@example_settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    budget=st.sampled_from([Decimal("0.0006"), Decimal("0.01"), Decimal("0.1")]),
    steps=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["ask", "large", "end", "kill", "flush", "wait"])),
        min_size=5, max_size=25),
)  # fmt: skip
def test_the_budget_is_never_exceeded_whatever_two_gateways_do(budget, steps, make_call, experiment):
    Experiment.objects.update(max_usd=budget, spent_usd=0)
    ends = []

    def check():
        assert find_differences() == []
        row = Experiment.objects.get()
        assert row.spent_usd + row.reserved_usd <= budget or row.spent_usd + row.reserved_usd == before
        return row

    before = Experiment.objects.get().reserved_usd

    async def run(thread):
        loop = asyncio.get_running_loop()
        queues = [await loop.run_in_executor(thread, make_queue, thread) for _ in range(2)]
        flying = [[], []]
        for n, step in steps:
            queue = queues[n]
            if step in ("ask", "large"):
                with suppress(NotAdmitted):
                    flying[n].append(await queue.admit(make_call(tokens=1000 if step == "large" else 100)))
            elif step == "end" and flying[n]:
                claim = flying[n].pop()
                ends.append(claim.trial_id)
                queue.record(EndedCall(claim, b"{}", failure=FREE).build_result())
            elif step == "flush":
                await queue.flush(make_call())
            elif step == "wait":
                await until(lambda queue=queue: queue._writing is None or queue._writing.done())
            elif step == "kill":
                if queue._writing is not None:
                    await asyncio.wait([queue._writing])
                if queue._timer is not None:
                    queue._timer.cancel()
                os.close(queue.spool._file)
                flying[n] = []
                queues[n] = await loop.run_in_executor(thread, make_queue, thread)
            await loop.run_in_executor(thread, check)
        for queue in queues:
            await queue.finish()

    run_in_loop(run)
    assert not Trial.objects.filter(messages=[]).exists()
    assert set(ends) <= set(Attempt.objects.values_list("trial_id", flat=True))
    assert Attempt.objects.filter(trial__in=ends).count() == len(ends)
    assert find_differences() == []
    expire_leases()
    sweep_expired()
