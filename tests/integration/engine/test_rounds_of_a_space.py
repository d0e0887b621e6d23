"""Adaptive rounds over a parametric space: a rule per task, separate truncation counts, correction for guessing."""

import pytest
from django.urls import reverse

from grading_app.grading.consistency_check import find_differences
from grading_app.results.parametric.surface import list_recovered_cells
from runs_app import run_control
from runs_app.models import Point
from runs_app.planning.parametric_spaces import read_space_rules
from runs_app.simulator.responses import count_tokens
from runs_app.simulator.skill_profiles import parse_profiles
from tests import factories
from tests.factories.engine import build_reply, drain
from tests.factories.parametric import ask, make_answerer, make_parametric_dataset
from tests.page_text import page_text

SPACE = """
name: rounds
precision: {some: {count: 8, targetci: 0.2, maximum: 40}}
tasks:
  - name: arithmetic
    params: {length: [4, 40]}
    abortht: 0.4
  - name: boolean
    params: {length: 4, format: T_F}
    maximum: 24
"""
PROFILES = {
    "small": {
        "arithmetic": {"start": 5, "tokens": 30, "grows": {"length": 0.06}, "spread": 0.2},
        "boolean": {"start": 0},
    }
}


@pytest.fixture
def run_space(transactional_db):
    """Return a function that runs the space on a simulated model until every point is decided."""

    def run(limit=150, scorers=("final_answer",)):
        dataset = make_parametric_dataset(SPACE)
        models = make_answerer(dataset, PROFILES, seed=5)
        rules = read_space_rules(dataset)
        experiment = factories.make_experiment(
            "rounds", dataset=dataset, adaptive=rules, max_usd=None, cache=False,
            scorers=list(scorers), models=[factories.make_model("small", model="small")],
        )  # fmt: skip

        async def call(request):
            answer = ask(models, request.messages[-1]["content"], "small", max_tokens=limit)
            return build_reply(
                answer.content, finish_reason=answer.finish_reason, output_tokens=count_tokens(answer.content)
            )

        run_control.launch(experiment, by=experiment.owner)
        drain(call)
        return experiment

    return run


def list_points():
    return {point.label: point for point in Point.objects.all()}


def test_each_point_stops_by_the_rule_of_its_task_and_states_the_reason(run_space):
    experiment = run_space()
    points_by_label = list_points()
    easy, hard, guessed = (points_by_label[name] for name in ("arithmetic_length-4", "arithmetic_length-40",
                                                    "boolean_format-T_F_length-4"))  # fmt: skip
    assert (easy.status, easy.n_planned, easy.n_correct) == ("enough", 8, 8)
    assert (hard.status, hard.n_planned) == ("aborted", 8)
    assert hard.n_truncated / 8 > 0.4
    assert hard.n_truncated + hard.n_total == 8
    assert "answers were truncated" in hard.reason
    assert (guessed.status, guessed.n_planned) == ("exhausted", 24)
    assert guessed.reason.endswith("after 24 cases, the maximum; the target is ±0.2")
    assert guessed.guess_chances == 12
    assert 12 < guessed.n_correct < 24
    assert guessed.interval(0.95, "mapped").margin == pytest.approx(guessed.half_width)
    assert {point.rounds[-1]["status"] for point in points_by_label.values()} == {"enough", "aborted", "exhausted"}
    assert find_differences() == []
    assert len(list_recovered_cells(experiment, parse_profiles(PROFILES))) == 3


def test_a_context_limit_counts_longer_answers_as_truncated_in_the_rounds(run_space):
    run_space(scorers=["final_answer:40"], limit=4000)
    points_by_label = list_points()["arithmetic_length-4"]
    assert not points_by_label.run.trials.filter(truncated=True).exists()
    longer = points_by_label.run.trials.filter(item__in=points_by_label.items, output_tokens__gt=40).count()
    assert 0 < longer == points_by_label.n_truncated
    assert points_by_label.n_unread == 0
    assert points_by_label.n_total == points_by_label.n_planned - longer
    hard = list_points()["arithmetic_length-40"]
    assert (hard.status, hard.n_truncated) == ("aborted", 8)
    assert find_differences() == []


@pytest.mark.slow
def test_the_points_page_shows_the_coverage_of_each_tasks_rule(run_space, client):
    experiment = run_space()
    client.force_login(experiment.owner)
    text = page_text(client.get(reverse("experiment_points", args=["rounds"])))
    assert "The coverage of each task's rule was simulated on its own." in text
    for task in ("arithmetic", "boolean"):
        assert f"{task}: with rounds of 8 and ±0.15 (the nearest simulated setting)" in text
    assert "the interval is" in text
