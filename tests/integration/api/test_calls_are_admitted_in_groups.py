"""Calls of programs are admitted and recorded in groups: the rules are those of single calls."""

import asyncio
import os
import threading
from concurrent.futures import Executor, Future
from decimal import Decimal

import pytest
from django.conf import settings

from evalsite.api.gateway_api import RequestThread
from runs_app.engine.admission import Claim
from runs_app.engine.external_calls import EndedCall, ExternalRequest, NotAdmitted, begin_calls
from runs_app.engine.external_queue import Executors, ExternalQueue, open_spool
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Experiment, ExternalCall, Trial
from runs_app.planning.work import get_or_create_external_run
from tests import factories
from tests.factories.tokens import make_token

pytestmark = pytest.mark.django_db


def run_in_loop(make):
    """Return the result of the coroutine that `make` returns for an executor of this thread."""
    thread, results = RequestThread(), []

    def work():
        try:
            results.append(asyncio.run(make(thread)))
        finally:
            thread.entries.put(None)

    threading.Thread(target=work).start()
    assert list(thread) == []
    return results[0]


@pytest.fixture
def make_call(team):
    endpoint = factories.make_endpoint("shop", max_concurrency=10, adaptive=False)
    model = factories.make_model("small", endpoint=endpoint, input_price=Decimal(1), output_price=Decimal(1))
    experiment = factories.make_experiment("agents", owner=team.owner, models=[model], max_usd=Decimal("0.001"))
    run = get_or_create_external_run(experiment, model)
    token = make_token(team.owner, "run", experiment=experiment)[0]
    return lambda text="hello", tokens=100: ExternalRequest(
        run, "openai", "", token.pk, str(token), [{"role": "user", "content": text}], {}, tokens, tokens, "key"
    )


def test_a_group_reserves_no_more_than_the_budget(make_call):
    decided = begin_calls([make_call(f"call {n}") for n in range(8)])
    assert [isinstance(one, Claim) for one in decided] == [True] * 5 + [False] * 3
    assert all(one.is_over_budget for one in decided[5:])
    experiment = Experiment.objects.get(slug="agents")
    assert experiment.reserved_usd == 5 * Decimal("0.0002") == experiment.max_usd
    trials = Trial.objects.order_by("sample_idx")
    assert [trial.messages[0]["content"] for trial in trials] == [f"call {n}" for n in range(5)]
    assert [trial.sample_idx for trial in trials] == [0, 1, 2, 3, 4]
    assert [claim.trial_id for claim in decided[:5]] == [trial.pk for trial in trials]
    assert ExternalCall.objects.count() == 5


def test_a_smaller_call_of_a_group_still_fits(make_call):
    large, larger, small = begin_calls([make_call(tokens=400), make_call(tokens=400), make_call(tokens=50)])
    assert isinstance(large, Claim)
    assert isinstance(larger, NotAdmitted)
    assert isinstance(small, Claim)


def test_a_group_takes_no_more_slots_than_the_endpoint_has(make_call):
    Experiment.objects.filter(slug="agents").update(max_usd=None, max_concurrency=100)
    decided = begin_calls([make_call() for _ in range(12)])
    assert sum(isinstance(one, Claim) for one in decided) <= 10
    assert decided[-1].may_start_later


def test_calls_that_arrive_together_share_a_transaction(make_call, monkeypatch):
    groups = []
    monkeypatch.setattr(
        "runs_app.engine.external_queue.begin_calls", lambda calls: groups.append(len(calls)) or begin_calls(calls)
    )

    async def run(thread):
        queue = ExternalQueue(Executors(thread, thread, thread))
        return await asyncio.gather(*(queue.admit(call) for call in calls))

    calls = [make_call() for _ in range(4)]
    assert len({claim.trial_id for claim in run_in_loop(run)}) == 4
    assert groups == [4]


def test_a_call_that_is_cancelled_while_it_waits_keeps_no_other_call_of_its_group_from_starting(make_call):
    async def run(thread):
        queue = ExternalQueue(Executors(thread, thread, thread))
        waiting = [asyncio.create_task(queue.admit(call)) for call in calls]
        await asyncio.sleep(0)
        waiting[0].cancel()
        return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 20)

    calls = [make_call() for _ in range(3)]
    cancelled, *others = run_in_loop(run)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert [isinstance(one, Claim) for one in others] == [True, True]
    assert Trial.objects.filter(status="running").count() == 3, "its lease ends the trial of the cancelled call"


class Dead(Executor):
    """An executor of a process that is killed before it records anything."""

    def submit(self, function, /, *args, **kwargs):
        return Future()


def test_a_killed_gateway_loses_no_reply_and_doubles_none(make_call):
    spool, worker_id = open_spool()
    (claim,) = begin_calls([make_call()])
    failure = CallFailure(ErrorClass.BAD_REQUEST, "no such model", http_status=400)
    result = EndedCall(claim, b'{"error": 1}', failure=failure).build_result()

    async def run():
        queue = ExternalQueue(Executors(Dead(), Dead(), Dead()), spool, worker_id)
        queue.record(result)

    asyncio.run(run())
    assert Trial.objects.get().status == "running"
    os.close(spool._file)  # The lock of the file ends with the process.
    later, _ = open_spool()
    trial = Trial.objects.get()
    assert (trial.status, trial.error_class) == ("failed", "bad_request")
    assert trial.external_call.reply == '{"error": 1}'
    assert Attempt.objects.count() == 1
    later.close()
    open_spool()[0].close()
    assert Attempt.objects.count() == 1
    assert list(settings.RESULT_SPOOL_DIR.glob("*.jsonl")) == []
