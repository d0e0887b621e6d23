"""Simultaneous actions of many workers and people: shared limits hold, and no lock waits forever."""

import random
import time
from decimal import Decimal

from django.db import OperationalError

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.engine import outcomes
from runs_app.engine.leases import renew_leases, sweep_expired
from runs_app.engine.recorder import Result, record_results
from runs_app.engine.response_cache import take_cache_keys
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Attempt, Endpoint, Experiment, LanguageModel, Run, Trial
from runs_app.models.cache import purge_cache
from runs_app.planning.work import PlanError
from tests import factories
from tests.factories.engine import admit, build_reply, run_at_once

WORKERS = 8
PRICE = Decimal("0.10")


def build_result(claim, cost=PRICE):
    answer = build_reply(cost_usd=cost)
    return Result(
        claim, "done", outcomes.build_answer_outcome(answer, None).trial, [outcomes.build_attempt_from_reply(answer)]
    )


def make_run(items=40, samples=5, **fields):
    experiment = factories.make_experiment(
        "crowd", dataset=factories.make_dataset("crowd", items), samples=samples, **{"max_usd": None, **fields}
    )
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    Endpoint.objects.update(max_concurrency=1000, adaptive=False)
    Run.objects.update(max_concurrency=1000, reserve_usd=PRICE)
    return run


def test_workers_that_reach_the_budget_simultaneously_never_exceed_it(transactional_db):
    run = make_run(max_usd=Decimal("4.00"))  # Enough for forty of two hundred trials.
    overdrawn = []

    def work():
        worker = WorkerRegistration().worker_id
        done = 0
        while claims := admit(worker, random.randint(1, 7)):
            spent, reserved = Experiment.objects.values_list("spent_usd", "reserved_usd").get()
            if spent + reserved > 4:
                overdrawn.append(spent + reserved)
            done += record_results([build_result(claim) for claim in claims], worker)
        return done

    done = run_at_once(*[work] * WORKERS)
    assert overdrawn == []
    assert sum(done) == Attempt.objects.count() <= 40
    Run.objects.update(status="running")
    (rest,) = run_at_once(work)
    assert sum(done) + rest == 40
    assert Experiment.objects.get().spent_usd == Decimal("4.00")
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_pending) == ("paused", 40, 160)
    assert find_differences() == []


def test_simultaneous_claims_never_exceed_the_slots_of_an_endpoint(transactional_db):
    make_run()
    Endpoint.objects.update(max_concurrency=11)
    workers = [WorkerRegistration().worker_id for _ in range(WORKERS)]
    claims = run_at_once(*[lambda worker=worker: admit(worker, 5) for worker in workers])
    trial_ids = [claim.trial_id for batch in claims for claim in batch]
    assert len(trial_ids) == len(set(trial_ids)) == 11
    assert Endpoint.objects.get().in_flight == 11
    assert find_differences() == []


def test_simultaneous_launches_create_one_row_per_trial(transactional_db):
    models = [factories.make_model(name) for name in ("small", "large")]
    experiment = factories.make_experiment(
        "twice", dataset=factories.make_dataset("twice", 30), models=models, samples=4, max_usd=None
    )
    reports = run_at_once(*[lambda: run_control.launch(Experiment.objects.get(), by="test")] * 4)
    assert sorted(report.trials_added for report in reports) == [0, 0, 0, 240]
    assert Trial.objects.count() == 240
    assert set(Run.objects.values_list("n_pending", "status")) == {(120, "running")}
    assert experiment.waves.count() == 1
    assert find_differences() == []


def test_concurrent_workers_and_people_never_deadlock(transactional_db, monkeypatch):
    """Ten threads repeat every action. A wrong order of locks would deadlock within a second."""
    monkeypatch.setattr("runs_app.run_control.enqueue_drains", lambda *_: None)
    models = [factories.make_model(name, max_output_tokens=9) for name in ("a", "b", "c")]
    models[2].endpoint = factories.make_endpoint("other")
    models[2].save()
    dataset = factories.make_dataset("busy", 10)
    first = factories.make_experiment("busy", dataset=dataset, models=models, samples=1, max_usd=Decimal(50))
    second = factories.make_experiment("two", dataset=dataset, models=models[1:], max_usd=None, sequential=True)
    for experiment in (first, second):
        run_control.launch(experiment, by="test")
    deadline = time.monotonic() + 4

    def is_over():
        return time.monotonic() > deadline and {"ok", "lost"} <= set(Attempt.objects.values_list("outcome", flat=True))

    actions = [
        claim_and_record,
        claim_and_record,
        claim_and_vanish,
        sweep_expired,
        launch,
        launch,
        pause_and_resume,
        retry_failed,
    ]
    actions += [edit_limits_and_prices, use_and_purge_cache]
    deadlocks = run_at_once(*[lambda action=action: repeat(action, is_over) for action in actions])
    assert sum(deadlocks) == 0
    assert set(Trial.objects.values_list("status", flat=True)) >= {"pending", "done"}
    assert {"ok", "lost"} <= set(Attempt.objects.values_list("outcome", flat=True))
    assert find_differences() == []


def repeat(action, is_over):
    """Repeat the action until `is_over()`. Return the number of deadlocks."""
    deadlocks = 0
    while not is_over():
        try:
            action()
        except OperationalError as error:
            if "deadlock" not in str(error):
                raise
            deadlocks += 1
    return deadlocks


def claim_and_record():
    worker = WorkerRegistration().worker_id
    claims = admit(worker, 9)
    renew_leases([claim.trial_id for claim in claims], [claim.token for claim in claims])
    random.shuffle(claims)
    record_results([build_result(claim, Decimal("0.00001")) for claim in claims], worker)


def claim_and_vanish():
    claims = admit(WorkerRegistration().worker_id, 2)
    tokens = [claim.token for claim in claims]
    Trial.objects.filter(token__in=tokens, status="running").update(lease_until="2020-01-01T00:00Z")


def launch():
    experiment = random.choice(list(Experiment.objects.all()))
    Experiment.objects.filter(pk=experiment.pk, samples__lt=300).update(samples=experiment.samples + 1)
    try:
        run_control.launch(Experiment.objects.get(pk=experiment.pk), by="test", wave=random.choice(["", "again"]))
    except PlanError:  # The epochs of the two waves would overlap.
        Experiment.objects.filter(pk=experiment.pk).update(samples=experiment.samples)


def pause_and_resume():
    runs = Run.objects.filter(pk__in=random.choices(Run.objects.values_list("pk", flat=True) or [0], k=2))
    run_control.pause(runs, by="test")
    run_control.resume(runs, by="test")


def retry_failed():
    run_control.retry_failed(Run.objects.all(), by="test")


def edit_limits_and_prices():
    model = random.choice(LanguageModel.objects.all())
    model.input_price = random.randint(0, 9)
    model.save()
    endpoint = random.choice(Endpoint.objects.all())
    endpoint.max_concurrency = random.randint(10, 99)
    endpoint.save()
    random.choice(Run.objects.all()).change_concurrency(random.randint(10, 99), by="test")


def use_and_purge_cache():
    """Take cache keys like two drains with the same questions in another order, and sometimes purge the cache."""
    trials = random.sample(list(Trial.objects.values_list("pk", flat=True)), 9)
    take_cache_keys({trial: f"key {random.randrange(20)}" for trial in trials})
    if random.random() < 0.2:
        purge_cache(by="test")
