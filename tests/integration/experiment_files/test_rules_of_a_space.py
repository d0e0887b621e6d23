"""Stopping rules of a dataset's space as the adaptive rule of an experiment, set by file or by form."""

import pytest
import yaml
from django.urls import reverse

from grading_app.grading.adaptive_decisions import find_rule
from grading_app.grading.judging.grader_specs import create_experiment
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.experiment_files.spec_reader import SpecError, read_spec
from runs_app.models import Experiment
from runs_app.planning import spec_io
from runs_app.planning.cost_estimate import estimate
from runs_app.planning.design import Design
from runs_app.planning.parametric_spaces import read_space_rules
from tests import factories
from tests.factories.parametric import make_parametric_dataset
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
SPACE = """
name: mixed
precision: {some: {count: 4, targetci: 0.2, maximum: 12}}
tasks:
  - name: arithmetic
    params: {length: [4, 8]}
    targetci: 0.1
    abortht: 0.5
  - name: swaps
    task: shuffle
    params: {length: 3}
"""
SAME = """
name: same
precision: {some: {count: 4, targetci: 0.2, targetciht: 0.3, backoffht: 0.1, minci: 0.05, maximum: 12}}
tasks:
  - {name: arithmetic, params: {length: [4, 8]}}
  - {name: shuffle, params: {length: 3}}
"""
PLAIN = "name: plain\nprecision: {some: {count: 4}}\ntasks: [{name: arithmetic}]"
SWAPS = {"round": 4, "max": 12, "targetci": 0.2}


def build_content(dataset, **more):
    return {"experiment": "study", "dataset": str(dataset), "models": ["m"], "prompts": ["p"], **more}


def create(dataset, **more):
    factories.make_model("m")
    factories.make_prompt("p")
    owner = factories.make_team().owner
    return create_experiment(read_spec(build_content(dataset, **more)), by=owner, trusted=True)


def test_each_task_keeps_its_own_rule():
    rules = read_space_rules(make_parametric_dataset(SPACE))
    assert (rules["by"], rules["scorer"]) == ("point", "final_answer")
    assert rules["tasks"] == {"arithmetic": {**SWAPS, "targetci": 0.1, "abortht": 0.5}, "swaps": SWAPS}


def test_equal_rules_of_all_tasks_are_one_rule():
    rules = read_space_rules(make_parametric_dataset(SAME))
    assert "tasks" not in rules
    expected = {**SWAPS, "targetciht": 0.3, "backoffht": 0.1, "minci": 0.05}
    assert {name: rules[name] for name in expected} == expected


def test_adaptive_dataset_in_a_file_uses_the_rules_and_the_scorer_of_the_space():
    experiment = create(make_parametric_dataset(SPACE), adaptive="dataset")
    assert experiment.adaptive == read_space_rules(experiment.dataset)
    assert experiment.scorers == ["final_answer"]
    reread = read_spec(yaml.safe_load(spec_io.to_yaml(experiment))).adaptive
    assert reread.content == experiment.adaptive


def test_every_point_of_the_space_has_the_limits_of_its_task():
    design = Design.load(create(make_parametric_dataset(SPACE), adaptive="dataset"))
    assert design.find_problems() == []
    assert [(point.label, point.items, point.get_max_cases(design.adaptive, 1)) for point in design.points] == [
        ("arithmetic_length-4", 12, 12),
        ("arithmetic_length-8", 12, 12),
        ("shuffle_length-3", 12, 12),
    ]
    assert estimate(design.experiment).trials == 36


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: make_parametric_dataset(PLAIN), "adaptive: the space of reasoning@1 has no stopping rules"),
        (lambda: factories.make_dataset("plain"), "adaptive: plain@1 was not generated from a parametric space"),
    ],
)
def test_a_dataset_without_rules_is_refused_with_the_reason(make, problem):
    with pytest.raises(SpecError, match=problem):
        create(make(), adaptive="dataset")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"adaptive": "space"}, "adaptive: "),
        ({"tasks": {"arithmetic": {"targetci": 7}}}, "adaptive: tasks.arithmetic: targetci lies between 0 and 1"),
        ({"tasks": {"swaps": {"round": 600}}}, "adaptive: tasks.swaps: a round of 600 is above the maximum of 512"),
        ({"tasks": {"swaps": {"target": 0.1}}}, "adaptive.tasks.swaps.target: unknown key; did you mean targetci?"),
        ({"tasks": {"swaps": {"max": 40}}, "by": ["length"]}, "adaptive: tasks requires by: category or by: point"),
    ],
)
def test_the_error_of_an_invalid_task_rule_names_the_task(change, problem):
    settings = change.get("adaptive", {"by": "point", "scorer": "final_answer", "targetci": 0.1, **change})
    with pytest.raises(SpecError) as caught:
        read_spec({"experiment": "x", "dataset": "d", "models": ["m"], "prompts": ["p"], "adaptive": settings})
    assert problem in str(caught.value)


def test_a_rule_for_an_unknown_task_is_a_problem_of_the_design():
    experiment = create(make_parametric_dataset(SPACE), adaptive="dataset")
    experiment.adaptive = {**experiment.adaptive, "tasks": {"sorting": {"max": 40}}, "targetci": 0.1}
    problem = "adaptive.tasks.sorting: no item has this category; the items have arithmetic, swaps"
    assert problem in Design.load(experiment).find_problems()


def test_points_of_a_space_need_generated_items():
    experiment = factories.make_experiment(adaptive={"by": "point", "scorer": "exact_match", "targetci": 0.1})
    assert any("belong to no parametric point" in problem for problem in Design.load(experiment).find_problems())


def test_settings_of_a_task_override_those_of_the_design_only_for_that_task():
    spec = AdaptiveSpec.model_validate(
        {"by": "category", "scorer": "numeric", "targetci": 0.1, "max": 64, "abortht": 0.5,
         "tasks": {"hard": {"max": 256}}}
    )  # fmt: skip
    rules = {task: spec.for_point({"category": task}).rule(999) for task in ("hard", "easy")}
    assert (rules["hard"].maximum, rules["easy"].maximum) == (256, 64)
    assert (rules["hard"].targetci, rules["hard"].abortht) == (0.1, 0.5)


def test_a_design_that_ignores_the_stopping_rules_of_its_space_has_a_warning():
    experiment = create(make_parametric_dataset(SPACE))
    warnings = Design.load(experiment).find_warnings()
    assert any("has stopping rules, and this design runs every case" in warning for warning in warnings)
    experiment.adaptive = read_space_rules(experiment.dataset)
    assert Design.load(experiment).find_warnings() == []


@pytest.fixture
def edit(client):
    """Return a function that posts the form of a draft over the space with these changes."""
    experiment = create(make_parametric_dataset(SPACE))
    client.force_login(experiment.owner)
    form = client.get(reverse("experiment_edit", args=["study"])).context["form"]
    settings = {name: form[name].value() for name in form.fields}
    settings |= {f"adaptive-{name}": form.adaptive[name].value() for name in form.adaptive.fields}
    fields = {
        name: value
        for name, value in {**settings, "dataset": experiment.dataset_id}.items()
        if value not in (None, False)
    }
    return lambda **changes: client.post(reverse("experiment_edit", args=["study"]), {**fields, **changes})


def test_the_form_can_use_the_rules_of_the_dataset(edit):
    assert edit(**{"adaptive-from_dataset": "on"}).status_code == 302
    experiment = Experiment.objects.get()
    assert experiment.adaptive == read_space_rules(experiment.dataset)
    assert experiment.scorers == ["final_answer"]


def test_a_context_limit_in_the_form_applies_to_the_scorer_of_the_rounds(edit):
    assert edit(**{"adaptive-from_dataset": "on", "rules": "final_answer:2000"}).status_code == 302
    experiment = Experiment.objects.get()
    assert experiment.scorers == [{"name": "final_answer", "limit": "2000"}]
    assert find_rule(experiment, AdaptiveSpec.model_validate(experiment.adaptive)).text == "final_answer:2000"


def test_the_form_refuses_a_dataset_without_rules(edit):
    plain = factories.make_dataset("plain")
    answer = edit(**{"adaptive-from_dataset": "on", "dataset": plain.pk})
    assert "plain@1 was not generated from a parametric space" in page_text(answer)


@pytest.mark.slow
def test_the_form_saves_and_shows_rules_per_task(edit, client):
    rule = {"adaptive-by": "point", "adaptive-scorer": "final_answer", "adaptive-targetci": "0.1", "adaptive-max": "99"}
    assert edit(**rule, **{"adaptive-tasks": "swaps: {targetci: 0.3, max: 40}\n"}).status_code == 302
    saved = Experiment.objects.get().adaptive
    assert (saved["by"], saved["tasks"]) == ("point", {"swaps": {"targetci": 0.3, "max": 40}})
    form = client.get(reverse("experiment_edit", args=["study"])).context["form"].adaptive
    assert yaml.safe_load(form["tasks"].value()) == saved["tasks"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("swaps: {targetci: 7}", "targetci lies between 0 and 1"),
        ("swaps: {max: many}", "Rules per task: swaps.max: "),
        ("swaps: {", "Rules per task: "),
    ],
)
def test_the_form_reports_an_invalid_rule_per_task(edit, text, problem):
    rule = {
        "adaptive-by": "point",
        "adaptive-scorer": "final_answer",
        "adaptive-targetci": "0.1",
        "adaptive-tasks": text,
    }
    answer = edit(**rule)
    assert answer.status_code == 200
    assert problem in page_text(answer)


def test_the_design_page_shows_the_rule_of_each_task(client):
    experiment = create(make_parametric_dataset(SPACE), adaptive="dataset")
    client.force_login(experiment.owner)
    text = page_text(client.get(reverse("experiment_detail", args=["study"])))
    assert "Each point of arithmetic runs in rounds of 4 cases, up to 12 cases" in text
    assert "Each point of swaps runs in rounds of 4 cases, up to 12 cases" in text
    assert "3 by point: rules per task by Final answer" in text
