"""`model: {draw: ...}` of a judge in an experiment file: one judge for each drawn model."""

import pytest

from grading_app.grading.judging.grader_specs import create_experiment
from grading_app.models import Grader
from runs_app.experiment_files.spec_reader import SpecError, read_yaml
from runs_app.planning.spec_io import build_spec, to_yaml
from tests import factories

FILE = """
experiment: judged
dataset: questions@1
models: [small]
prompts: [{name: plain, user: "{{input}}"}]
grade:
  graders:
    - name: panelist
      model: {draw: 2, seed: 5, by: family, from: [endpoint:judges]}
      rubric: {name: standard, user: "{{input}} {{answer}}"}
      longest_answer: 900
"""


@pytest.fixture
def curator(db):
    factories.make_dataset("questions")
    factories.make_model("small")
    judges = factories.make_endpoint("judges")
    for name in ("qwen-a", "qwen-b", "llama-a", "llama-b"):
        factories.make_model(name, endpoint=judges)
    return factories.make_user("curator", "Curator", superuser=True)


def test_each_drawn_model_becomes_a_judge_with_the_same_rubric(curator):
    experiment = create_experiment(read_yaml(FILE), by=curator)
    draw = experiment.draws["judges"]["panelist"]
    graders = Grader.objects.filter(name__in=experiment.graders)
    assert experiment.graders == [f"panelist-{name}" for name in draw["drawn"]]
    assert sorted(one["name"] for one in draw["strata"]) == ["llama", "qwen"]
    assert {grader.language_model.name for grader in graders} == set(draw["drawn"])
    assert {(str(grader.rubric), grader.longest_answer) for grader in graders} == {("standard@1", 900)}


def test_the_exported_file_contains_the_judges_and_their_draw(curator):
    experiment = create_experiment(read_yaml(FILE), by=curator)
    factories.make_model("llama-c")
    copy = create_experiment(read_yaml(to_yaml(experiment).replace("judged", "again", 1)), by=curator)
    assert (copy.graders, copy.draws) == (experiment.graders, experiment.draws)
    assert build_spec(copy)["drawn"] == {"judges": experiment.draws["judges"]}
    assert Grader.objects.count() == 2


def test_an_invalid_draw_is_reported_with_the_name_of_its_judge(curator):
    with pytest.raises(SpecError) as caught:
        create_experiment(read_yaml(FILE.replace("draw: 2", "draw: 1")), by=curator)
    assert caught.value.problems == [
        "grade.graders[0].model.draw: 1 cannot hold one of each of 2 strata: llama, qwen; draw more"
    ]
    assert not Grader.objects.exists()


def test_the_design_page_shows_drawn_judges(curator, client):
    experiment = create_experiment(read_yaml(FILE), by=curator)
    client.force_login(curator)
    [draw] = client.get(experiment.get_absolute_url()).context["draws"]
    assert (draw.of, len(draw.lines), draw.added, draw.left_out) == ("panelist", 4, [], [])
