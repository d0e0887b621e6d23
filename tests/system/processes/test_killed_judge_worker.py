"""Two workers judge 400 answers; one is killed with -9. Each verdict is recorded once in every reply format."""

import os
import random
import signal
from collections import Counter

import pytest

from grading_app.grading.consistency_check import find_differences
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grading
from runs_app.models import Attempt, Run, Trial, Worker
from runs_app.prompt_preview import rebuild_turns
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.judge_behaviour import RequestedVerdict
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.factories.judges import make_grader, write_ledger
from tests.system.processes.workers import IN_FLIGHT, MAX_CLAIMS, drain_process, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

SEED = 7
ANSWERS = 400


def make_judged_experiment(base_url):
    endpoint = factories.make_endpoint("rehearsal", base_url=base_url, max_concurrency=2 * IN_FLIGHT, is_free=True)
    experiment = factories.make_experiment(
        "judged", dataset=factories.make_dataset("many", 40), samples=10, lease_s=6.0, max_usd=None, max_concurrency=32
    )
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(run, answer=lambda item, dimension, index: f"{item.key} says {index}")
    write_ledger(experiment)
    model = factories.make_model("judge", endpoint=endpoint)
    (report,) = request_verdicts(experiment, [make_grader(model=model)], [experiment.waves.get()], by="test")
    assert report.added == ANSWERS
    return experiment, report.run


def compute_expected_code(trial):
    """Return the error code of the reply that the simulated judge gave to this request."""
    text = "\n\n".join(turn.text for turn in rebuild_turns(trial).turns)
    dice = random.Random(f"{SEED}\x1f{trial.run.condition.model.model}\x1f{text}")
    return RequestedVerdict("score").vary_format((0, 1), dice)[1]


def test_no_verdict_is_lost_or_duplicated_and_every_format_gets_its_code():
    with simulator_process(SimulatorConfig(latency_ms=50, seed=SEED, judge="assorted")) as provider:
        experiment, run = make_judged_experiment(provider.url)
        with drain_process() as killed, drain_process() as survivor:
            wait_until(lambda: Worker.objects.count() == 2 and Run.objects.get(pk=run.pk).n_done >= 60)
            victim = Worker.objects.get(pid=killed.pid)
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
            claimed = Trial.objects.filter(status="running", worker=victim).count()
            survivor.wait(timeout=300)
        requests = provider.counters()["requests"]

    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", ANSWERS, 0)
    assert requests <= ANSWERS + IN_FLIGHT
    assert claimed <= MAX_CLAIMS
    assert Attempt.objects.filter(run=run, outcome="ok").count() == ANSWERS
    assert find_differences() == []

    (report,) = read_verdicts(experiment)
    assert report.read == Grading.objects.count() == ANSWERS
    rows = Grading.objects.select_related(
        "judged_by__run__condition__model__endpoint", "judged_by__run__experiment", "judged_by__run__wave",
        "judged_by__item__image", "judged_by__dimension", "judged_by__subject",
    )  # fmt: skip
    codes = Counter()
    for row in rows:
        assert row.parse_error == compute_expected_code(row.judged_by), row.judged_by.answer
        codes[row.parse_error] += 1
    assert codes == Counter({**report.unread, "": ANSWERS - report.unread.total()})
    assert len(codes) >= 5
