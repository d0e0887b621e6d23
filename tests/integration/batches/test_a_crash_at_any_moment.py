"""A worker dies at any step of a batch: the next worker continues, loses no result and pays no call twice."""

import itertools

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.batches.http_client import ApiClient
from runs_app.models import Attempt, ProviderBatch
from tests.factories.batches import (
    Killed,
    drive_batches,
    end_submission_search,
    make_batched_run,
    make_next_batched_run,
)

pytestmark = pytest.mark.django_db(transaction=True)

TRIALS = 3
ONLY_READ = {"_build_jobs", "build_search", "is_lost"}  # A crash before these equals a crash before the next step.


class Crasher:
    """A crash at one of the steps that a worker passes: before each statement, before or after each request."""

    def __init__(self, monkeypatch, *, only_requests):
        self.at, self.only_requests = None, only_requests
        self.passed = []
        self._around_requests(monkeypatch)

    def arm(self, at):
        self.at, self.passed = at, []

    def __call__(self, point):
        if self.only_requests:
            return
        if point.startswith("before ") and point.removeprefix("before ") not in ONLY_READ:
            self._pass(point)

    def _pass(self, point):
        if self.at is None:
            return
        self.passed.append(point)
        if len(self.passed) > self.at:
            self.at = None
            raise Killed(point)

    def _around_requests(self, monkeypatch):
        send, lines = ApiClient._send, ApiClient.iter_lines

        async def sending(door, method, path, *arguments, **named):
            self._pass(f"before {method} {path}")
            reply = await send(door, method, path, *arguments, **named)
            self._pass(f"after {method} {path}")
            return reply

        async def reading(door, path):
            self._pass(f"before lines of {path}")
            async for line in lines(door, path):
                yield line
                self._pass(f"within lines of {path}")

        monkeypatch.setattr(ApiClient, "_send", sending)
        monkeypatch.setattr(ApiClient, "iter_lines", reading)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_the_next_worker_continues_after_a_crash_at_any_step(provider, kind, monkeypatch):
    monkeypatch.setattr("runs_app.batches.collection.LINES_PER_CHUNK", 2)
    experiment = make_batched_run(provider.url, kind, items=TRIALS).experiment
    # The database steps are the same for all providers.
    crasher = Crasher(monkeypatch, only_requests=kind == "anthropic")
    points = []
    for number in itertools.count():
        run = experiment.runs.get() if number == 0 else make_next_batched_run(experiment, number)
        crasher.arm(number)
        try:
            drive_batches(crash=crasher)
        except Killed as crash:
            points.append(str(crash))
        is_last = crasher.at is not None
        crasher.at = None
        end_submission_search()
        drive_batches()
        check(run, points[-1:])
        if is_last:
            break
    assert find_differences() == []
    counters = provider.counters()
    assert counters["batches"] == ProviderBatch.objects.count() == len(points) + 1
    assert (counters["batch_calls"], counters["answers"]) == (TRIALS * (len(points) + 1),) * 2
    assert {"before POST /batches", "after POST /batches"} <= set(points) or kind == "anthropic"
    assert any(point.startswith("within lines") for point in points)


def check(run, point):
    run.refresh_from_db()
    assert (run.status, run.n_done) == ("done", TRIALS), point
    batch = ProviderBatch.objects.get(run=run)
    assert (batch.status, batch.n_answered) == ("collected", TRIALS), point
    assert list(Attempt.objects.filter(run=run).values_list("outcome", flat=True)) == ["ok"] * TRIALS, point
