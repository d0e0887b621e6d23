"""Adaptive stopping with real workers and a provider over HTTP: it saves budget, and a kill -9 changes no decision."""

import json
import os
import signal
from decimal import Decimal

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.models import Endpoint, Point, Run, Trial
from runs_app.monitoring.point_status import compute_savings, list_point_lines
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.system.processes.workers import IN_FLIGHT, drain_process, wait_until

LEASE_S = 6.0
ADAPTIVE = {"by": "category", "scorer": "exact_match", "round": 16, "max": 160, "targetci": 0.09}

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def questions(tmp_path):
    """Return 320 questions in two categories, and a file with their answers for the simulated models."""
    rows = [
        {
            "key": f"q{number}",
            "input": f"Say the word number {number:04}.",
            "target": f"word{number}",
            "category": "ab"[number % 2],
        }
        for number in range(320)
    ]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"text": row["input"], "target": row["target"]}) + "\n" for row in rows))
    return rows, answers


def launch_experiment(url, rows, **fields):
    """Launch an experiment with a model that answers nearly all questions and a model that answers half."""
    factories.make_team()
    endpoint = factories.make_endpoint("rehearsal", base_url=url, max_concurrency=2 * IN_FLIGHT)
    models = [
        factories.make_model(name, endpoint=endpoint, model=name, max_output_tokens=50) for name in ("sharp", "dull")
    ]
    experiment = factories.make_experiment(
        "rounds",
        dataset=factories.make_dataset("words", rows),
        models=models,
        prompts=[factories.make_prompt("ask", user="{{input}} End with ANSWER: and the word.")],
        adaptive=ADAPTIVE,
        scorers=["exact_match"],
        lease_s=LEASE_S,
        cache=False,
        **fields,
    )
    run_control.launch(experiment, by=experiment.owner)
    return experiment


def check_points(experiment):
    """Check that each decision used all trials of its point, and that no trial was planned or counted twice."""
    for run in Run.objects.all():
        assert (run.status, run.n_failed, run.n_done) == ("done", 0, sum(p.n_planned for p in run.points.all()))
    for point in Point.objects.all():
        # One decision after each round of sixteen: none is lost or repeated.
        assert [entry["asked"] for entry in point.rounds] == list(range(16, point.n_planned + 1, 16))
        assert point.status == ("enough" if point.half_width <= 0.09 else "exhausted")
        trials = Trial.objects.filter(run=point.run_id, item__in=point.items)
        assert set(trials.values_list("item", flat=True)) == set(point.items[: point.n_planned])
        assert point.n_total + point.n_unread == point.n_planned
    assert find_differences() == []


def test_a_worker_stops_early_and_pays_only_for_its_calls(questions):
    rows, answers = questions
    config = SimulatorConfig(latency_ms=5, answers=(answers,), skills={"sharp": 0.99, "dull": 0.5})
    with simulator_process(config) as provider:
        experiment = launch_experiment(provider.url, rows, max_usd=Decimal(5))
        with drain_process() as worker:
            assert worker.wait(timeout=300) == 0
        requests = provider.counters()["requests"]

    check_points(experiment)
    experiment.refresh_from_db()
    savings = compute_savings(list_point_lines(experiment))
    assert requests == Trial.objects.count() == savings.asked < savings.most == 640
    sharp = Point.objects.filter(run__condition__model__name="sharp")
    assert {point.status for point in sharp} == {"enough"}
    assert max(point.n_planned for point in sharp) <= 96
    # Only the calls were paid for: the rest of the budget is available.
    assert experiment.reserved_usd == 0
    assert experiment.spent_usd == sum(trial.cost_usd for trial in Trial.objects.all())
    assert savings.saved_usd > 0


def test_a_killed_worker_loses_and_repeats_no_stopping_decision(questions):
    rows, answers = questions
    config = SimulatorConfig(latency_ms=20, answers=(answers,), skills={"sharp": 0.99, "dull": 0.5})
    with simulator_process(config) as provider:
        experiment = launch_experiment(provider.url, rows, max_usd=None)
        with drain_process() as killed, drain_process() as survivor:
            wait_until(lambda: Trial.objects.filter(status="done").count() >= 100)
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
            claimed = Trial.objects.filter(status="running").count()
            assert survivor.wait(timeout=300) == 0
        requests = provider.counters()["requests"]

    check_points(experiment)
    assert Trial.objects.count() <= requests <= Trial.objects.count() + claimed
    assert Endpoint.objects.get().in_flight == 0
