"""The life of a work unit, in any order of events: claims, answers in time, late and twice, sweeps, and steering.

Hypothesis plays several workers, an operator and the passing of time on real rows, and a small model says what must be
there. For a deeper search: FAULTS_EXAMPLES=1000 pytest tests/faults/test_life_of_a_work_unit.py
"""

import os
from collections import Counter
from contextlib import suppress
from decimal import Decimal

import pytest
from django.db import connection
from django.db.models import F
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from runs_app import steering
from runs_app.admitting import admit
from runs_app.models import Attempt, Endpoint, Experiment, Run, Trial
from runs_app.planning import PlanError
from runs_app.reconciling import differences
from runs_app.recording import record
from runs_app.registering import Registration
from runs_app.sweeping import renew, sweep
from tests import factories
from tests.faults.outcomes import CEILING, MAX_ATTEMPTS, outcomes, result_of

DEEPER = int(os.environ.get("FAULTS_EXAMPLES", "0"))
WORKERS = 3
EMPTIED = (
    "runs_app_trial, runs_app_attempt, runs_app_tick, runs_app_endpointtick, runs_app_run, runs_app_condition,"
    " runs_app_manifest, runs_app_cachedanswer, runs_app_wave, datasets_app_statuschange"
)

workers = st.integers(0, WORKERS - 1)
budgets = st.sampled_from([None, "0.15", "0.30", "0.55", "1.00", "5.00"])
waves = st.sampled_from(["", "again"])


class LifeOfAWorkUnit(RuleBasedStateMachine):
    """`holders` is which token holds which trial; `calls` is what each call that was made left, by its key."""

    claims = Bundle("claims")

    def __init__(self):
        super().__init__()
        with connection.cursor() as cursor:
            cursor.execute(f"SET synchronous_commit = off; TRUNCATE {EMPTIED} CASCADE")
        Endpoint.objects.update(in_flight=0, throttle={}, paused_until=None, max_concurrency=5, adaptive=False)
        Experiment.objects.update(
            status="active", spent_usd=0, reserved_usd=0, max_usd=None, samples=1, sequential=False
        )
        self.workers = [Registration().worker_id for _ in range(WORKERS)]
        self.holders = {}
        self.calls = {}
        self.done = {}
        self.most_in_flight = 5
        self.most_usd = None

    @initialize(budget=budgets, sequential=st.booleans())
    def begin(self, budget, sequential):
        self.set_budget(budget)
        Experiment.objects.update(sequential=sequential)
        self.launch("")

    # What people do

    @rule(wave=waves)
    def launch(self, wave):
        with suppress(PlanError):  # A wave whose epochs would run into the next one's does not grow.
            steering.launch(Experiment.objects.get(), by="test", wave=wave)
        Run.objects.update(reserve_usd=CEILING)

    @precondition(lambda self: Experiment.objects.get().samples < 3)
    @rule(wave=waves)
    def grow(self, wave):
        Experiment.objects.update(samples=F("samples") + 1)
        self.launch(wave)

    @rule(every_other=st.booleans())
    def pause(self, every_other):
        steering.pause(self.some_runs(every_other), by="test", reason="to look at it")

    @rule()
    def resume(self):
        steering.resume(Run.objects.all(), by="test")

    @rule(every_other=st.booleans())
    def cancel(self, every_other):
        steering.cancel(self.some_runs(every_other), by="test", reason="a mistake")

    @rule(error_class=st.sampled_from([None, "content_refused", "worker_lost"]))
    def retry_failed(self, error_class):
        steering.retry_failed(Run.objects.all(), by="test", error_class=error_class)

    @rule(budget=budgets)
    def set_budget(self, budget):
        self.most_usd = None if budget is None else max(Decimal(budget), self.committed())
        Experiment.objects.update(max_usd=budget)

    @rule(n=st.integers(1, 8))
    def set_concurrency(self, n):
        Endpoint.objects.update(max_concurrency=n)
        self.most_in_flight = max(n, len(self.holders))

    # What workers do

    @rule(target=claims, worker=workers, room=st.integers(1, 6))
    def claim(self, worker, room):
        claims = sorted(admit(self.workers[worker], room), key=lambda claim: claim.trial_id)
        assert len(claims) <= room
        for claim in claims:
            assert claim.trial_id not in self.holders, "two workers hold one trial"
            assert claim.reserved_usd == CEILING
            self.holders[claim.trial_id] = claim.token
        return multiple(*claims)

    @rule(batch=st.lists(st.tuples(claims, outcomes), min_size=1, max_size=4, unique_by=lambda pair: key_of(pair[0])))
    def finish(self, batch):
        """In time, late, or again: whatever claims there ever were may come back, alone or together."""
        results = [result_of(claim, outcome) for claim, outcome in batch]
        holding = [result for result in results if self.holds(result.claim)]
        assert record(results, self.workers[0]) == len(holding)
        for result in results:
            self.expect_calls_of(result)
        for result in holding:
            del self.holders[result.claim.trial_id]
            self.check_outcome(result)

    @rule(claim=claims)
    def renew(self, claim):
        assert renew([claim.trial_id], [claim.token]) == self.holds(claim)

    @rule(lost=st.lists(claims, min_size=1, max_size=4))
    def go_silent(self, lost):
        """Leases end, and someone sweeps."""
        for claim in lost:
            Trial.objects.filter(pk=claim.trial_id, token=claim.token).update(lease_until="2020-01-01T00:00Z")
        gone = {key_of(claim) for claim in lost if self.holds(claim)}
        assert sweep() == len(gone)
        for trial_id, token in gone:
            del self.holders[trial_id]
            self.calls[trial_id, token, 0] = ("lost", None)

    @rule()
    def time_passes(self):
        Trial.objects.filter(status="pending", not_before__isnull=False).update(not_before="2020-01-01T00:00Z")
        Endpoint.objects.update(paused_until=None)

    # What must hold after each step

    @invariant()
    def counters_equal_rows(self):
        assert differences() == []
        for run in Run.objects.all():
            classes = Attempt.objects.filter(run=run).exclude(error_class="").values_list("error_class", flat=True)
            assert run.errors == Counter(classes)

    @invariant()
    def every_call_is_one_row(self):
        rows = Attempt.objects.values_list("trial_id", "token", "call", "outcome", "cost_usd")
        assert {row[:3]: row[3:] for row in rows} == self.calls
        assert len(rows) == len(self.calls)

    @invariant()
    def claims_are_those_that_were_given(self):
        assert dict(Trial.objects.filter(status="running").values_list("pk", "token")) == self.holders

    @invariant()
    def money_and_slots_are_never_overdrawn(self):
        assert len(self.holders) <= self.most_in_flight
        assert Trial.objects.filter(attempts__gt=MAX_ATTEMPTS).count() == 0
        if self.most_usd is not None:
            assert self.committed() <= self.most_usd

    @invariant()
    def what_is_done_never_changes(self):
        rows = {row["id"]: row for row in Trial.objects.filter(status="done").values()}
        assert {key: rows.get(key) for key in self.done} == self.done
        self.done = rows

    @invariant()
    def runs_end_when_their_work_does(self):
        for run in Run.objects.all():
            if run.status == "done":
                assert (run.n_pending, run.n_running) == (0, 0)
            if run.status == "cancelled":
                assert run.n_pending == 0
            if run.status in ("running", "paused", "stopped"):
                assert run.n_pending + run.n_running > 0

    def teardown(self):
        """Whatever happened: with money, time and a provider that answers, all that is not cancelled is answered."""
        for _ in range(20):
            if not Run.objects.exclude(status__in=["done", "cancelled"]).exists() and not self.holders:
                break
            self.set_budget(None)
            self.time_passes()
            self.resume()
            answers = [result_of(claim, ("answer", Decimal(0))) for claim in admit(self.workers[0], 100)]
            record(answers, self.workers[0])
            Trial.objects.filter(status="running").update(lease_until="2020-01-01T00:00Z")
            sweep()
            self.holders = dict(Trial.objects.filter(status="running").values_list("pk", "token"))
        assert set(Run.objects.values_list("status", flat=True)) <= {"done", "cancelled"}
        assert not Trial.objects.filter(status__in=["pending", "running"]).exists()
        assert differences() == []

    # The model

    def some_runs(self, every_other):
        keys = sorted(Run.objects.values_list("pk", flat=True))
        return Run.objects.filter(pk__in=keys[::2] if every_other else keys)

    def holds(self, claim):
        return self.holders.get(claim.trial_id) == claim.token

    def committed(self):
        return sum(Experiment.objects.values_list("spent_usd", "reserved_usd").get())

    def expect_calls_of(self, result):
        """Kept as it came while it holds; as late after that; and never twice."""
        for call in result.calls:
            key = (*key_of(result.claim), call["call"])
            if self.holds(result.claim):
                self.calls[key] = (call["outcome"], call.get("cost_usd"))
            elif self.calls.get(key, ("lost",))[0] == "lost":
                self.calls[key] = ("late", call.get("cost_usd"))

    def check_outcome(self, result):
        trial = Trial.objects.select_related("run").get(pk=result.claim.trial_id)
        if trial.run.status == "cancelled" and result.status in ("pending", "cancelled"):
            assert trial.status == "cancelled"
        else:
            assert trial.status == result.status
        assert trial.attempts == result.claim.attempts - result.unspent


def key_of(claim):
    return claim.trial_id, claim.token


@pytest.fixture
def design(transactional_db, monkeypatch):
    """Two conditions of two items."""
    # Nothing that happens may depend on how long a step takes.
    monkeypatch.setattr("runs_app.tasks.wake", lambda *_: None)
    return factories.make_experiment(
        "life",
        dataset=factories.make_dataset("two", 2),
        models=[factories.make_model("small", max_output_tokens=10), factories.make_model("big", max_output_tokens=10)],
        max_attempts=MAX_ATTEMPTS,
        stop_after_attempts=8,
        stop_failure_rate=0.5,
    )


def test_nothing_is_lost_doubled_or_overspent_whatever_happens_in_whatever_order(design):
    run_state_machine_as_test(
        LifeOfAWorkUnit,
        settings=settings(
            max_examples=DEEPER or 30,
            stateful_step_count=25,
            derandomize=not DEEPER,
            phases=[Phase.generate, Phase.shrink] if DEEPER else [Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
