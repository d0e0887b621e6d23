"""Addresses, queries and options accept the names that pages show, and errors list the choices."""

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from grading_app.grading.scoring import grade
from runs_app.models import Run
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.factories.judges import make_grader
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def judged():
    """Return answers in two waves with the scores of a rule and a judge."""
    experiment = make_answered_experiment(items=4, models=("a", "b"), scorers=["exact_match"])
    wave = factories.make_wave(experiment, 1, "second")
    for condition in experiment.conditions.all():
        run = Run.objects.create(experiment=experiment, condition=condition, wave=wave, status="running")
        factories.plan_trials(run, answer=lambda item, *cell: item.target)
    grade(experiment, by="test")
    condition = make_gradings(experiment, "strict", lambda trial: trial.pk % 2)
    condition.grader = make_grader("strict-judge", rubric=condition.rubric)
    condition.save()
    return experiment


@pytest.fixture
def client(judged):
    browser = Client()
    browser.force_login(judged.owner)
    return browser


@pytest.mark.parametrize("url_name", ["experiment_analysis", "experiment_matrix", "experiment_figures"])
@pytest.mark.parametrize("name", ["strict-judge", "strict-judge (standard@1)", "Standard (strict-judge)"])
def test_a_page_selects_the_measure_of_this_name(client, judged, url_name, name):
    key = judged.grade_conditions.get(kind="judge").grade_condition_id
    response = client.get(reverse(url_name, args=["pilot"]), {"measure": name, "wave": "second"})
    selected = [option for option in response.content.decode().split("<option") if " selected" in option]
    assert any(f'value="{key}"' in option for option in selected)


@pytest.mark.parametrize("url_name", ["experiment_results", "experiment_points", "experiment_figures"])
def test_a_page_shows_the_wave_of_this_label(client, url_name):
    address = reverse(url_name, args=["pilot"])
    assert client.get(address, {"wave": "second"}).status_code == 200
    assert client.get(address, {"wave": "third"}).status_code == 404


@pytest.mark.parametrize("name", ["strict-judge", "Standard (strict-judge)"])
def test_the_results_show_the_measure_of_this_name_first(client, name):
    address = reverse("experiment_results", args=["pilot"])
    usual = client.get(address).context["screen"]
    response = client.get(address, {"measure": name})
    labels = [screen.first["columns"][1]["label"] for screen in (usual, response.context["screen"])]
    assert labels == ["Exact match", "Standard (strict-judge)"]
    assert 'name="measure"' in response.content.decode()
    assert client.get(address, {"measure": "nosuch"}).status_code == 404


def test_the_compare_page_selects_the_measure_of_this_name(client, judged):
    query = {"a": "pilot", "b": "pilot", "measure": "Exact match"}
    assert client.get(reverse("compare"), query).context["form"].cleaned_data["measure"] == "exact_match"


def test_a_form_error_lists_the_choices(client):
    address = reverse("experiment_analysis", args=["pilot"])
    errors = client.get(address, {"measure": "bleu", "wave": "third", "missing": "50%"}).context["form"].errors
    assert "existing measures: exact_match" in errors["measure"][0]
    assert 'existing waves: 0 "first wave", 1 "second"' in errors["wave"][0]
    assert errors["missing"] == ['50% is not one of the choices. There are wrong "Counted as the lowest score".']


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        (["bundle", "analysis", "pilot", "--query", "measure=bleu"], "existing measures: exact_match"),
        (["bundle", "analysis", "pilot", "--query", "category=plants"], "even, odd"),
        (["bundle", "analysis", "pilot", "--query", "wave=third"], 'existing waves: 0 "first wave", 1 "second"'),
        (["figures", "pilot", "--query", "wave=third"], 'existing waves: 0 "first wave", 1 "second"'),
        (["figures", "pilot", "--query", "measure=bleu"], "existing measures: exact_match"),
        (["export", "pilot", "--filter", "wave=third"], 'existing waves: 0 "first wave", 1 "second"'),
        (["export", "pilot", "--filter", "dimension=joy"], "existing dimensions: none"),
        (["grade", "pilot", "--wave", "third"], 'existing waves: 0 "first wave", 1 "second"'),
        (["grade", "pilot", "--grader", "mild"], "existing graders: strict-judge"),
    ],
)
def test_a_command_lists_the_choices(judged, tmp_path, command, listed):
    name = "out.csv" if command[0] == "export" else "out.zip"
    out = [] if command[0] == "grade" else ["--out", str(tmp_path / name)]
    with pytest.raises(CommandError) as caught:
        call_command(*command, *out)
    assert caught.value.returncode == 2
    assert listed in str(caught.value)


@pytest.mark.parametrize("name", ["strict-judge", "strict-judge (standard@1)", "Standard (strict-judge)", "key"])
def test_the_grade_command_takes_a_judge_by_the_names_of_its_scores(judged, name, capsys):
    key = f"g{judged.grade_conditions.get(kind='judge').pk}"
    with pytest.raises(CommandError) as caught:
        call_command("grade", "pilot", "--grader", key if name == "key" else name)
    assert "rubric standard@1 is draft" in str(caught.value)
