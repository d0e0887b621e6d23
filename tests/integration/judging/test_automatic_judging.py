"""Judges of a design: they start when a wave's answers are complete, and their replies become gradings."""

from decimal import Decimal

import pytest

from grading_app.grading.judging.judge_plan import ask_judges, request_verdicts
from grading_app.grading.judging.judging_costs import forecast_judging
from grading_app.models import Grading
from grading_app.tasks import grade_experiment
from runs_app.models import Attempt, Experiment, LanguageModel, Run, Trial
from runs_app.planning.cost_estimate import estimate
from runs_app.run_control import launch
from tests import factories
from tests.factories.engine import drain
from tests.factories.judges import build_judge, get_judge_run, make_grader


@pytest.fixture
def judged_design(answered):
    make_grader()
    Experiment.objects.update(graders=["judge-a"])
    answered.refresh_from_db()
    return answered


@pytest.mark.slow
def test_a_finished_wave_is_judged_and_graded_exactly_once(judged_design):
    grade_experiment(judged_design.pk)
    assert get_judge_run(judged_design).status == "running"
    drain(build_judge(1))
    (graded,) = grade_experiment(judged_design.pk).values()
    assert graded == 12

    grade_experiment(judged_design.pk)
    assert Grading.objects.count() == 12
    assert get_judge_run(judged_design).n_trials == 12


def test_a_running_wave_is_not_judged(judged_design):
    Run.objects.filter(pk=judged_design.runs.first().pk).update(status="running")
    grade_experiment(judged_design.pk)
    assert not Trial.objects.exclude(subject=None).exists()


@pytest.mark.slow
def test_the_engine_enqueues_judging_when_generation_ends(transactional_db, settings, monkeypatch):
    """Run from launch to gradings with only the tasks that were enqueued."""
    requests = []
    monkeypatch.setattr(
        "django_q.tasks.async_task", lambda name, *arguments, **options: requests.append((name, arguments))
    )
    make_grader()
    experiment = factories.make_experiment("alone", graders=["judge-a"], max_usd=None)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    drain(build_judge(0.25))
    while requests:
        name, arguments = requests.pop()
        if name == "grading_app.tasks.grade_experiment":
            grade_experiment(*arguments)
        elif name == "runs_app.tasks.drain":
            drain(build_judge(0.25))
    assert Grading.objects.filter(score=0.25, judged_by__status="done").count() == 3
    assert Attempt.objects.count() == 6


def test_a_judge_that_cannot_start_does_not_block_the_rules(judged_design, caplog):
    Experiment.objects.update(scorers=["numeric"])
    judged_design.refresh_from_db()
    LanguageModel.objects.filter(name="judge").update(output_price=None)
    grade_experiment(judged_design.pk)
    assert Grading.objects.filter(condition__scorer="numeric").count() == 12
    assert "judge judge-a did not start: unknown price" in caplog.text


def test_the_launch_estimate_includes_the_cost_of_judges(transactional_db):
    grader = make_grader()
    sampler = factories.make_sampler("short", max_tokens=50)
    without = factories.make_experiment("without", samplers=[sampler], samples=2)
    experiment = factories.make_experiment("with", samplers=[sampler], samples=2, graders=["judge-a"])
    alone, judged = estimate(without), estimate(experiment)

    assert (judged.trials, judged.verdicts, alone.verdicts) == (6, 6, 0)
    assert judged.ceiling_usd - alone.ceiling_usd >= 6 * Decimal("0.0004")  # 200 tokens at 2 dollars a million, each.
    assert {price.model for price in judged.prices} == {"small", "judge"}
    assert judged.problems == []

    type(grader.rubric).objects.update(status="archived")
    LanguageModel.objects.filter(name="judge").update(input_price=None)
    judged = estimate(experiment)
    assert judged.ceiling_usd is None
    assert any("rubric standard@1 is archived" in problem for problem in judged.problems)
    assert any("model judge has no price" in problem for problem in judged.problems)


def test_manifests_record_the_prices_of_initial_and_added_judges(transactional_db):
    grader = make_grader()
    experiment = factories.make_experiment("with", max_usd=None, graders=["judge-a"])
    launch(experiment, by="test")
    (judge_a,) = experiment.manifests.order_by("-pk").first().content["judges"]
    assert judge_a["id"] == grader.grade_condition_id
    assert (judge_a["grader"], judge_a["rubric"]["name"], judge_a["texts"]) == ("judge-a", "standard@1", None)
    assert judge_a["rubric"]["hash"] == grader.rubric.content_hash
    assert (judge_a["model"]["name"], judge_a["model"]["endpoint"]) == ("judge", "lab")
    model = LanguageModel.objects.get(name="judge")
    assert (judge_a["prices"]["input"], judge_a["prices"]["output"]) == (
        str(model.input_price),
        str(model.output_price),
    )

    Run.objects.update(status="done")
    factories.plan_trials(factories.make_runs(experiment, wave=1, status="done")[0], answer=lambda *_: "4")
    other = make_grader("judge-b", rubric=grader.rubric, model=factories.make_model("dear", input_price=Decimal(30)))
    request_verdicts(experiment, [other], list(experiment.waves.all()), by="test")
    later = {
        one["grader"]: one["prices"]["input"] for one in experiment.manifests.order_by("-pk").first().content["judges"]
    }
    assert {name: Decimal(price) for name, price in later.items()} == {"judge-a": 1, "judge-b": 30}


@pytest.mark.slow
def test_the_estimate_excludes_verdicts_that_were_already_requested(judged_design):
    assert estimate(judged_design).verdicts == 12
    grade_experiment(judged_design.pk)
    drain(build_judge(1))
    assert estimate(judged_design).verdicts == 0


def test_no_verdict_reserves_more_than_the_forecast(transactional_db):
    """Check that the ceiling computed before generation covers the request with the longest answer."""
    make_grader()
    experiment = factories.make_experiment("with", max_usd=None, graders=["judge-a"])
    (run,) = factories.make_runs(experiment, status="done")
    foreseen = forecast_judging(experiment, "", 3, 50)
    factories.plan_trials(run, answer=lambda *_: "x" * 150)
    assert ask_judges(experiment, by="test") == 3
    reserve = get_judge_run(experiment).reserve_usd
    assert foreseen.ceiling_usd / 3 * Decimal("0.9") < reserve <= foreseen.ceiling_usd / 3 + Decimal("1e-8")
