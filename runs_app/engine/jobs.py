"""Jobs: claims with their requests, the results to record for them, and the queue of prefetched jobs."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evalsite.lib.ops.shared_files import StorageUnavailable
from evalsite.lib.rating_scale import RatingScale
from runs_app.engine import requests
from runs_app.engine.admission import Claim
from runs_app.engine.counters import CounterKeys
from runs_app.engine.design_cache import DesignCache
from runs_app.engine.outcomes import (
    Outcome,
    RetryPolicy,
    build_answer_outcome,
    build_release_outcome,
    build_rerun_outcome,
    classify_answer,
    find_rerun_reason,
)
from runs_app.engine.recorder import Result
from runs_app.engine.recovery import OUTAGES, record_each, stop_broken
from runs_app.engine.response_cache import fetch_cached, take_cache_keys
from runs_app.llm.calls import CallFailure, CallReply, ErrorClass
from runs_app.llm.prompts import PromptError
from runs_app.models import Attempt

logger = logging.getLogger("evalsite.drain")

FAILED = (Attempt.Outcome.TRANSIENT, Attempt.Outcome.ENDPOINT)
INTERNAL_ERROR_MESSAGE = "The program failed; the worker's log has the details."


@dataclass(frozen=True, slots=True)
class Job:
    """A claim with its request, or with the failure that prevents the request."""

    claim: Claim
    prepared: requests.PreparedRequest | CallFailure
    scale: RatingScale | None
    retry: RetryPolicy
    cached_reply: CallReply | None = None
    reruns_empty: bool = False
    reruns_unreadable: bool = False
    local_model: int | None = None  # The key of a model on a local server. The worker unloads it if it stalls.
    model_id: int | None = None

    @property
    def cache_key(self) -> str | None:
        return self.prepared.cache_key if isinstance(self.prepared, requests.PreparedRequest) else None

    @property
    def is_free(self) -> bool:
        return isinstance(self.prepared, requests.PreparedRequest) and self.prepared.request.is_free

    @property
    def may_retry(self) -> bool:
        return self.cached_reply is None and self.claim.attempts < self.retry.max_attempts

    def find_rerun_reason(self, answer: Mapping[str, Any]) -> ErrorClass | None:
        """Return why the design reruns an answer with these columns of a trial, or None."""
        return find_rerun_reason(classify_answer(answer), empty=self.reruns_empty, unreadable=self.reruns_unreadable)

    def build_result(self, outcome: Outcome, calls: list[dict[str, Any]]) -> Result:
        """Return the result to record for a job with this outcome and these calls."""
        outcome = self._apply_rerun_policy(outcome, calls)
        if isinstance(self.prepared, requests.PreparedRequest):
            for columns in (outcome.trial, *calls):
                columns["request_hash"] = self.prepared.request_hash
        elif self.prepared.error_class == ErrorClass.DUPLICATE_IN_FLIGHT:
            calls = []  # No call was made.
        return Result(
            self.claim,
            outcome.status,
            trial=outcome.trial,
            calls=calls,
            released=outcome.released,
            wait_s=outcome.wait_s,
            pause_s=outcome.pause_s,
            cache_key=self.cache_key if self.cached_reply is None else None,
            allowance=outcome.allowance,
        )

    def _apply_rerun_policy(self, outcome: Outcome, calls: list[dict[str, Any]]) -> Outcome:
        """Add the kinds of an answer to its call's columns. Return the outcome, or a retry if the design reruns it."""
        if outcome.status != "done":
            return outcome
        reason = self.find_rerun_reason(outcome.trial)
        if reason is None or not self.may_retry:
            calls[-1].update(classify_answer(outcome.trial))
            return outcome
        rerun = build_rerun_outcome(reason, self.claim.attempts, self.retry)
        calls[-1].update(rerun.trial, outcome="transient", raw_response=outcome.trial["raw_response"])
        return rerun


def prepare_jobs(claims: Sequence[Claim], designs: DesignCache, worker_id: int) -> list[Job]:
    """Return the jobs of these claims. Stop a run whose requests cannot be prepared, and release its claims."""
    try:
        return build_jobs(claims, designs)
    except OUTAGES:
        raise
    except Exception:
        logger.exception("requests of %s claims could not be prepared together", len(claims))
    by_run: dict[CounterKeys, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_run[claim.counter_keys].append(claim)
    jobs: list[Job] = []
    for counter_keys, run_claims in by_run.items():
        try:
            jobs += build_jobs(run_claims, designs)
        except OUTAGES:
            raise
        except Exception as error:
            logger.exception("requests of run %s cannot be prepared", counter_keys.run_id)
            stop_broken(counter_keys, "Its requests could not be prepared", error)
            release = build_release_outcome()
            record_each(
                [Result(claim, release.status, trial=release.trial, released=True) for claim in run_claims], worker_id
            )
    return jobs


def build_jobs(claims: Sequence[Claim], designs: DesignCache) -> list[Job]:
    """Return the jobs of these claims, with their answers from the response cache. Rows are fetched in sets."""
    claims = designs.fetch(claims)
    questions = (designs.get(claim)[1] for claim in claims)
    requests.images.fetch_files((question.image, question.image_type) for question in questions if question.image)
    failed_at = _fetch_failed_providers(claims, designs)
    jobs = [_prepare_job(claim, designs, failed_at.get(claim.trial_id, ())) for claim in claims]
    cached = fetch_cached({job.cache_key for job in jobs if job.cache_key})
    if cached:
        jobs = [replace(job, cached_reply=_get_cached_reply(job, cached)) for job in jobs]
    return _fail_requested_elsewhere(jobs, cached)


def _fetch_failed_providers(claims: Sequence[Claim], designs: DesignCache) -> dict[int, list[str]]:
    """Return the providers at which these trials failed before, the oldest first, if their endpoint has routes."""
    retried = [claim for claim in claims if claim.attempts > 1 or claim.yields]
    routed = [claim.trial_id for claim in retried if designs.get(claim)[0].target.routes]
    failed_at: dict[int, list[str]] = defaultdict(list)
    if routed:
        rows = Attempt.objects.filter(trial__in=routed, outcome__in=FAILED).exclude(served_provider="").order_by("pk")
        for trial_id, provider in rows.values_list("trial_id", "served_provider"):
            failed_at[trial_id].append(provider)
    return failed_at


def _prepare_job(claim: Claim, designs: DesignCache, failed_at: Sequence[str] = ()) -> Job:
    design, question, retry = designs.get(claim)
    try:
        request = design.prepare_request(question, claim.sample_idx)
        if claim.without_schema or design.target.refuses_schema:
            request = request.drop_schema()
        prepared: requests.PreparedRequest | CallFailure = request.reroute(
            design.target.routes, claim.attempts, failed_at
        )
    except (PromptError, OSError) as error:
        prepared = CallFailure(ErrorClass.UNRENDERABLE, str(error)[:500])
    except StorageUnavailable as error:  # It is tried again, as after an error of this program.
        prepared = CallFailure(ErrorClass.INTERNAL_ERROR, str(error)[:500], was_sent=False)
    except Exception:  # Handled like a broken call, because the other trials of this batch are claimed, too.
        logger.exception("the request of trial %s raised an error", claim.trial_id)
        prepared = CallFailure(ErrorClass.INTERNAL_ERROR, INTERNAL_ERROR_MESSAGE, was_sent=False)
    return Job(
        claim,
        prepared,
        question.scale,
        retry,
        reruns_empty=design.reruns_empty,
        reruns_unreadable=design.reruns_unreadable,
        local_model=design.target.local_model,
        model_id=design.target.model_id,
    )


def _fail_requested_elsewhere(jobs: list[Job], cached: Mapping[str, CallReply]) -> list[Job]:
    """Return the same jobs, but fail those whose request another call is making now.

    Their trials are released, and find the answer in the cache when they are claimed again.
    """
    keys = {
        job.claim.trial_id: job.cache_key
        for job in jobs
        if job.cache_key and job.cache_key not in cached and not job.claim.batched
    }
    waiting = take_cache_keys(keys)
    return [replace(job, prepared=_build_duplicate_failure()) if job.claim.trial_id in waiting else job for job in jobs]


def _build_duplicate_failure() -> CallFailure:
    return CallFailure(ErrorClass.DUPLICATE_IN_FLIGHT, "Another call is making the same request now.", was_sent=False)


def _get_cached_reply(job: Job, cached: Mapping[str, CallReply]) -> CallReply | None:
    """Return the cached answer, or None if the design reruns answers of its kind: a cached answer never changes."""
    reply = cached.get(job.cache_key or "")
    if reply is None or not (job.reruns_empty or job.reruns_unreadable):
        return reply
    return None if job.find_rerun_reason(build_answer_outcome(reply, job.scale).trial) else reply


LOOKAHEAD_S = 0.1  # Twice the time of a cycle and of the gathering before it, to allow for slow ones.
AVERAGING_S = 0.5  # The time over which the rate of answers is averaged.
STALE_S = 1.0  # Jobs that wait longer are released: the estimated rate was too high.


@dataclass(slots=True)
class PrefetchQueue:
    """A queue of jobs that wait for a slot, by endpoint, oldest first, with the rate of answers of each endpoint.

    Jobs are claimed ahead of time, so that a call starts when another one ends, and not a cycle later. A cycle takes
    tens of milliseconds. If slots waited for cycles, a provider that answers as quickly would be idle half of the time.
    So a worker also claims the trials that it will start before its next cycle is over. It derives their number from
    the rate of recent answers, so it prefetches nothing if calls take seconds. A prefetched trial has two costs:
    another worker could have started it, and it starts even if its run was paused a moment ago.

    The queue belongs to one event loop.
    """

    clock: Callable[[], float] = time.monotonic
    _waiting: dict[int, deque[tuple[float, Job]]] = field(default_factory=dict)
    _levels: Counter[int] = field(default_factory=Counter)
    _answered: Counter[int] = field(default_factory=Counter)
    _rates: dict[int, float] = field(default_factory=dict)
    _measured_at: float = 0.0

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    def iter_claims(self) -> Iterator[Claim]:
        return (job.claim for queue in self._waiting.values() for _, job in queue)

    def sizes(self) -> Counter[int]:
        """Return the number of waiting jobs, by endpoint."""
        return Counter({key: len(queue) for key, queue in self._waiting.items() if queue})

    def note_answer(self, endpoint_id: int) -> None:
        """Count a call that ended."""
        self._answered[endpoint_id] += 1

    def target_sizes(self) -> dict[int, int]:
        """Return the number of jobs that should wait, by endpoint: those that will start within the lookahead.

        Call this once per cycle.
        """
        now = self.clock()
        elapsed, self._measured_at = now - self._measured_at, now
        if elapsed > 0:
            weight = 1 - math.exp(-elapsed / AVERAGING_S)
            for key in {*self._rates, *self._answered}:
                rate = self._rates.get(key, 0.0)
                self._rates[key] = rate + weight * (self._answered[key] / elapsed - rate)
            self._answered.clear()
        return {key: n for key, rate in self._rates.items() if (n := int(rate * LOOKAHEAD_S))}

    def add(self, jobs: list[Job], levels: Mapping[int, int]) -> None:
        """Add claimed jobs. `levels` are the numbers of calls that this worker may now have in flight, by endpoint."""
        now = self.clock()
        for job in jobs:
            self._waiting.setdefault(job.claim.counter_keys.endpoint_id, deque()).append((now, job))
        self._levels = Counter(levels)

    def take_startable(self, in_flight: Mapping[int, int]) -> list[Job]:
        """Remove and return the jobs that may start. `in_flight` are the numbers of calls in flight, by endpoint."""
        return [
            queue.popleft()[1]
            for key, queue in self._waiting.items()
            for _ in range(min(len(queue), self._levels[key] - in_flight.get(key, 0)))
        ]

    def take_endpoint(self, endpoint_id: int) -> list[Job]:
        """Remove and return the jobs that wait at this endpoint."""
        return [job for _, job in self._waiting.pop(endpoint_id, ())]

    def take_stale(self, older_than_s: float = STALE_S) -> list[Job]:
        """Remove and return the jobs that have waited too long."""
        since = self.clock() - older_than_s
        stale = []
        for queue in self._waiting.values():
            while queue and queue[0][0] <= since:
                stale.append(queue.popleft()[1])
        return stale
