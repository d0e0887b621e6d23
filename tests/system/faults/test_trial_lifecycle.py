"""The life cycle of trials under random events: claims, answers in time, late and repeated, sweeps, user actions.

Hypothesis performs the steps of several workers, an operator and the clock on real rows, and compares the rows with a
small model. For a deeper search: FAULTS_EXAMPLES=1000 pytest tests/system/faults/test_trial_lifecycle.py
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
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.engine.leases import renew_leases, sweep_expired
from runs_app.engine.recorder import record_results
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Attempt, Endpoint, Experiment, LanguageModel, Run, Trial
from runs_app.planning.work import PlanError
from tests import factories
from tests.factories.call_outcomes import CEILING, MAX_ATTEMPTS, build_outcome_result, outcomes
from tests.factories.engine import admit

DEEPER = int(os.environ.get("FAULTS_EXAMPLES", "0"))
WORKERS = 3
PRICE = 10_000  # For a million tokens, so an answer of ten costs CEILING.
EMPTIED_TABLES = (
    "runs_app_trial, runs_app_attempt, runs_app_tick, runs_app_endpointtick, runs_app_run, runs_app_condition,"
    " runs_app_manifest, runs_app_cachedanswer, runs_app_wave, lib_statuschange"
)


def step(name, *details):
    return st.tuples(st.just(name), *details)


picks = st.lists(st.integers(0, 99), min_size=1, max_size=4)
outcome_lists = st.lists(outcomes, min_size=4, max_size=4)
workers = st.integers(0, WORKERS - 1)
waves = st.sampled_from(["", "again"])
budgets = st.sampled_from(["0.25", "0.55", "1.05", None])
verbs = st.sampled_from(
    [
        run_control.pause,
        run_control.resume,
        run_control.resume,
        run_control.resume,
        run_control.retry_failed,
        run_control.cancel,
    ]
)
# Each step occurs as often as here. All steps are one rule, because hypothesis omits some rules from an example.
steps = st.one_of(
    *[step("claim", workers, st.integers(1, 6))] * 2,
    *[step("claim_after_waits", workers)] * 2,
    *[step("finish", picks, outcome_lists)] * 4,
    *[step("record_any_claims", picks, outcome_lists)] * 2,
    *[step("record_all_claims_of_a_trial", picks, outcomes)] * 2,
    *[step("lose_leases", picks, workers)] * 3,
    step("renew", picks),
    *[step("control", verbs, st.sampled_from([slice(None), slice(0, None, 2), slice(1)]))] * 2,
    step("launch", waves),
    step("grow", waves),
    step("set_budget", budgets),
    step("set_concurrency", st.integers(1, 8)),
    step("open_endpoint_form"),
    step("save_endpoint_form"),
    step("set_prices", st.sampled_from([1, 2])),
)


class TrialMachine(RuleBasedStateMachine):
    """`claims` has all claims ever made, `holders` the token of each claimed trial, `calls` the outcome of a call."""

    def __init__(self):
        super().__init__()
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off; SET evalsite.deleting_experiment = '*'")
            cursor.execute(f"TRUNCATE {EMPTIED_TABLES} CASCADE; RESET evalsite.deleting_experiment")
        Endpoint.objects.update(in_flight=0, throttle={}, paused_until=None, max_concurrency=5, adaptive=False)
        Experiment.objects.update(
            status="active", spent_usd=0, reserved_usd=0, max_usd=None, samples=1, sequential=False
        )
        LanguageModel.objects.update(output_price=PRICE)
        self.workers = [WorkerRegistration().worker_id for _ in range(WORKERS)]
        self.holders = {}
        self.claims = []
        self.outcomes = {}
        self.calls = {}
        self.done = {}
        self.most_in_flight = 5
        self.most_usd = None
        self.ceiling = CEILING
        self.form = None

    @initialize(budget=budgets, sequential=st.booleans(), samples=st.integers(1, 2))
    def begin(self, budget, sequential, samples):
        self.set_budget(budget)
        Experiment.objects.update(sequential=sequential, samples=samples)
        self.launch("")

    @rule(step=steps)
    def take_step(self, step):
        name, *details = step
        if name in self.list_possible_steps():
            getattr(self, name)(*details)
        else:
            self.claim_after_waits(0)

    def list_possible_steps(self):
        """Return the steps that are possible now. For example, only a claimed trial can be finished."""
        of_workers = {"finish", "renew", "lose_leases"} if self.holders else set()
        of_claims = {"record_any_claims", "record_all_claims_of_a_trial"} if self.claims else set()
        of_forms = {"save_endpoint_form"} if self.form else set()
        always = {"claim", "claim_after_waits", "control", "launch", "grow", "set_budget", "set_concurrency"}
        return always | {"open_endpoint_form", "set_prices"} | of_workers | of_claims | of_forms

    # Actions of people

    def control(self, verb, which):
        keys = sorted(Run.objects.values_list("pk", flat=True))
        verb(Run.objects.filter(pk__in=keys[which]), by="test")

    def launch(self, wave):
        with suppress(PlanError):  # A wave cannot grow into the epochs of the next wave.
            run_control.launch(Experiment.objects.get(), by="test", wave=wave)

    def grow(self, wave):
        Experiment.objects.filter(samples__lt=4).update(samples=F("samples") + 1)
        self.launch(wave)

    def set_budget(self, budget):
        self.most_usd = None if budget is None else max(Decimal(budget), self.sum_committed())
        Experiment.objects.update(max_usd=budget)

    def set_concurrency(self, n):
        Endpoint.objects.update(max_concurrency=n)
        self.most_in_flight = max(n, len(self.holders))

    def open_endpoint_form(self):
        self.form = Endpoint.objects.get()

    def save_endpoint_form(self):
        """Save the endpoint as it was read, although its counters changed since."""
        self.form.save()
        self.most_in_flight, self.form = max(self.form.max_concurrency, len(self.holders)), None

    def set_prices(self, times):
        """Change the prices of both models. The next claims reserve the new ceiling."""
        for model in LanguageModel.objects.all():
            model.output_price = times * PRICE
            model.save()
        self.ceiling = times * CEILING

    # Actions of workers

    def claim(self, worker, room):
        claims = sorted(admit(self.workers[worker], room), key=lambda claim: claim.trial_id)
        assert len(claims) <= room
        for claim in claims:
            assert claim.trial_id not in self.holders, "two workers hold one trial"
            assert claim.reserved_usd == self.ceiling
            self.holders[claim.trial_id] = claim.token
        self.claims += claims

    def claim_after_waits(self, worker):
        self.end_waits()
        self.claim(worker, 6)

    def finish(self, picks, chosen_outcomes):
        held = [claim for claim in self.claims if self.is_held(claim)]
        self.record_all(dict(zip(pick_rows(held, picks), chosen_outcomes, strict=False)))

    def record_any_claims(self, picks, chosen_outcomes):
        """Record results of any claims: in time, late or repeated."""
        self.record_all(dict(zip(pick_rows(self.claims, picks), chosen_outcomes, strict=False)))

    def record_all_claims_of_a_trial(self, picks, outcome):
        """Record a result for every claim of one trial, as after a long network failure."""
        trial = pick_rows(self.claims, picks)[0].trial_id
        self.record_all({claim: outcome for claim in self.claims if claim.trial_id == trial})

    def renew(self, picks):
        claim = pick_rows(self.claims, picks)[0]
        assert renew_leases([claim.trial_id], [claim.token]) == self.is_held(claim)

    def lose_leases(self, picks, worker):
        """End leases, sweep them, and let another worker claim."""
        lost = {trial_id: self.holders[trial_id] for trial_id in pick_rows(sorted(self.holders), picks)}
        Trial.objects.filter(pk__in=lost, status="running").update(lease_until="2020-01-01T00:00Z")
        assert sweep_expired() == len(lost)
        for trial_id, token in lost.items():
            del self.holders[trial_id]
            self.calls[trial_id, token, 0] = ("lost", None)
        if worker:
            self.claim_after_waits(worker)

    def end_waits(self):
        Trial.objects.filter(status="pending", not_before__isnull=False).update(not_before="2020-01-01T00:00Z")
        Endpoint.objects.update(paused_until=None)

    # Checks after each step

    @invariant()
    def check_all(self):
        self.check_counters()
        self.check_attempts()
        self.check_budget_and_slots()
        self.check_done_trials()
        self.check_run_statuses()
        self.check_sequence()

    def check_counters(self):
        assert find_differences() == []
        classes = Counter(Attempt.objects.exclude(error_class="").values_list("run_id", "error_class"))
        errors = Run.objects.values_list("pk", "errors")
        assert {(key, name): n for key, counts in errors for name, n in counts.items()} == classes

    def check_attempts(self):
        rows = Attempt.objects.values_list("trial_id", "token", "call", "outcome", "cost_usd")
        assert {row[:3]: row[3:] for row in rows} == self.calls
        assert len(rows) == len(self.calls)

    def check_budget_and_slots(self):
        assert dict(Trial.objects.filter(status="running").values_list("pk", "token")) == self.holders
        assert len(self.holders) <= self.most_in_flight
        assert Trial.objects.filter(attempts__gt=MAX_ATTEMPTS).count() == 0
        if self.most_usd is not None:
            assert self.sum_committed() <= self.most_usd

    def check_done_trials(self):
        rows = {row["id"]: row for row in Trial.objects.filter(status="done").values()}
        assert {key: rows.get(key) for key in self.done} == self.done
        self.done = rows

    def check_run_statuses(self):
        for run in Run.objects.all():
            if run.status == "done":
                assert (run.n_pending, run.n_running) == (0, 0)
            if run.status == "cancelled":
                assert run.n_pending == 0
            if run.status in ("running", "paused", "stopped"):
                assert run.n_pending + run.n_running > 0

    def check_sequence(self):
        if Experiment.objects.get().sequential:
            assert Run.objects.filter(status="running").count() <= 1

    def teardown(self):
        """Check that, with a budget, time and a working provider, all trials that are not cancelled are completed."""
        for _ in range(20):
            if not Run.objects.exclude(status__in=["done", "cancelled"]).exists() and not self.holders:
                break
            self.set_budget(None)
            self.end_waits()
            run_control.resume(Run.objects.all(), by="test")
            answers = [build_outcome_result(claim, ("answer", Decimal(0))) for claim in admit(self.workers[0], 100)]
            record_results(answers, self.workers[0])
            Trial.objects.filter(status="running").update(lease_until="2020-01-01T00:00Z")
            sweep_expired()
            self.holders = dict(Trial.objects.filter(status="running").values_list("pk", "token"))
        assert set(Run.objects.values_list("status", flat=True)) <= {"done", "cancelled"}
        assert not Trial.objects.filter(status__in=["pending", "running"]).exists()
        assert find_differences() == []

    # The model

    def is_held(self, claim):
        return self.holders.get(claim.trial_id) == claim.token

    def sum_committed(self):
        return sum(Experiment.objects.values_list("spent_usd", "reserved_usd").get())

    def record_all(self, batch):
        """Record a result for each claim and update the model. A claim always has the same result."""
        results = [
            build_outcome_result(claim, self.outcomes.setdefault(get_key(claim), outcome))
            for claim, outcome in batch.items()
        ]
        valid = [result for result in results if self.is_held(result.claim)]
        assert record_results(results, self.workers[0]) == len(valid)
        for result in results:
            self.expect_attempts(result)
        for result in valid:
            del self.holders[result.claim.trial_id]
            self.check_outcome(result)

    def expect_attempts(self, result):
        """Expect one attempt per call: with its outcome while the claim is held, as late after that."""
        for call in result.calls:
            key = (*get_key(result.claim), call["call"])
            if self.is_held(result.claim):
                self.calls[key] = (call["outcome"], call.get("cost_usd"))
            elif self.calls.get(key, ("lost",))[0] == "lost":
                self.calls[key] = ("late", call.get("cost_usd"))

    def check_outcome(self, result):
        trial = Trial.objects.select_related("run").get(pk=result.claim.trial_id)
        if trial.run.status == "cancelled" and result.status in ("pending", "cancelled"):
            assert trial.status == "cancelled"
        else:
            assert trial.status == result.status
        assert trial.attempts == result.claim.attempts - result.released


def pick_rows(rows, picks):
    """Return the distinct rows that these numbers select."""
    return list(dict.fromkeys(rows[pick % len(rows)] for pick in picks))


def get_key(claim):
    return claim.trial_id, claim.token


@pytest.fixture
def design(transactional_db, monkeypatch):
    """Two conditions of one item: few trials, so that many events affect each."""
    for name in (
        "enqueue_drains",
        "write_manifest",
    ):  # No drain runs here, and manifests take most of the time of a launch.
        monkeypatch.setattr(f"runs_app.run_control.{name}", lambda *_, **__: None)
    priced = {"max_output_tokens": 10, "input_price": 0, "output_price": PRICE}
    return factories.make_experiment(
        "life",
        dataset=factories.make_dataset("one", 1),
        models=[factories.make_model("small", **priced), factories.make_model("big", **priced)],
        max_attempts=MAX_ATTEMPTS,
        stop_after_attempts=3,
        stop_failure_rate=0.2,
    )


def test_no_event_order_loses_or_duplicates_a_trial_or_exceeds_the_budget(design):
    run_state_machine_as_test(
        TrialMachine,
        settings=settings(
            max_examples=DEEPER or 40,
            stateful_step_count=25,
            derandomize=not DEEPER,
            phases=[Phase.generate, Phase.shrink] if DEEPER else [Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
