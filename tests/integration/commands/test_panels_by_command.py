"""`grader create-panel`, `list-panels` and `show-panel`: panels of judges from files."""

import json

import pytest
import yaml

from grading_app.grading.judging import panels
from grading_app.models import Panel
from runs_app.models import LanguageModel
from runs_app.planning.work import PlanError
from tests import factories
from tests.factories.judges import make_grader, make_rubric

FILE = {"name": "three", "graders": ["judge-c", "judge-a", "judge-b"], "rule": "median", "quorum": 2}


@pytest.fixture
def graders(db):
    rubric = make_rubric()
    return [
        make_grader(f"judge-{letter}", rubric=rubric, model=factories.make_model(f"model-{letter}")) for letter in "abc"
    ]


@pytest.fixture
def create_panel(manage, operator, tmp_path):
    def create_from_file(content):
        path = tmp_path / "panel.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return manage("grader", "create-panel", path)

    return create_from_file


def test_a_file_becomes_a_panel_that_is_listed_and_shown_as_a_file_again(manage, operator, graders, create_panel):
    result = create_panel(FILE)
    assert (result.code, result.out.strip()) == (0, "three was created")
    panel = Panel.objects.get()
    assert (panel.name, panel.rule, panel.quorum, panel.created_by) == ("three", "median", 2, operator)
    assert set(panel.graders.all()) == set(graders)
    output = manage("grader", "show-panel", "three").out
    assert yaml.safe_load(output) == {**FILE, "graders": sorted(FILE["graders"])}
    assert "already has this content" in create_panel(output).out
    assert Panel.objects.count() == 1
    assert "judge-a, judge-b, judge-c" in manage("grader", "list-panels").out
    (facts,) = json.loads(manage("grader", "list-panels", "--json").out)
    assert facts == json.loads(manage("grader", "show-panel", "three", "--json").out)
    assert (facts["quorum"], facts["created_by"]) == (2, operator.username)


def test_a_panel_created_by_command_combines_the_scores_of_its_judges(graders, create_panel):
    create_panel({"name": "three", "graders": FILE["graders"]})
    experiment = factories.make_experiment("pilot")
    with pytest.raises(PlanError, match="did not judge pilot yet"):
        panels.add_panel(experiment, Panel.objects.get(name="three"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graders": ["judge-a"]}, "panel.graders: a panel needs at least two graders"),
        ({"graders": ["judge-a", "nobody"]}, "panel.graders[1]: there is no grader nobody in use; `grader list`"),
        ({"graders": ["judge-a", "judge-b", "judge-a"]}, "panel.graders[2]: judge-a is named twice"),
        ({"graders": ["judge-a", "judge-ten"]}, "panel.graders: the rubrics of a panel must have the same scale"),
        ({"graders": ["judge-a", "judge-duel"]}, "panel.graders: a panel combines scores"),
        ({"graders": ["judge-a", "judge-twin"]}, "judge-a and judge-twin send the same requests to the same model"),
        ({"quorum": 4}, "panel.quorum: the panel has 3 graders"),
        ({"quorum": 0}, "panel.quorum: "),
        ({"rule": "mode"}, "panel.rule: "),
        ({"name": "Not A Slug"}, "panel.name: "),
        ({"judges": []}, "panel.judges: unknown key"),
    ],
)
def test_an_invalid_file_exits_with_2_names_the_key_and_creates_nothing(graders, create_panel, change, message):
    small = LanguageModel.objects.get(name="model-a")
    make_grader("judge-ten", rubric=make_rubric("ten", scale_max=10), model=small)
    make_grader("judge-duel", rubric=make_rubric("duel", "pairwise"), model=small)
    make_grader("judge-twin", rubric=graders[0].rubric, model=small)
    result = create_panel(FILE | change)
    assert result.code == 2
    assert message in result.err
    assert not Panel.objects.exists()


def test_another_panel_of_the_same_name_is_refused(graders, create_panel):
    create_panel(FILE)
    result = create_panel(FILE | {"rule": "mean"})
    assert result.code == 2
    assert "panel.name: another panel three exists; choose a different name" in result.err
    assert Panel.objects.get().rule == "median"


def test_an_unknown_panel_exits_with_2(manage, operator):
    result = manage("grader", "show-panel", "nobody")
    assert (result.code, "`grader list-panels` lists them" in result.err) == (2, True)
