"""Numbers over all waves say which waves they pool, and whether these differ."""

import io

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.urls import reverse

from grading_app.grading.scoring import grade
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
POOLED = "pool 2 waves: first wave, May."


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_two_waves(right):
    """Return an experiment of 40 items that `right[wave]` answers were right on, in wave 0 and in May."""
    experiment = factories.make_experiment("quiz", dataset=factories.make_dataset("things", 40), scorers=["numeric"])
    factories.make_wave(experiment, 1, "May")
    for number, n in enumerate(right):
        for run in factories.make_runs(experiment, wave=number, status="done"):
            factories.plan_trials(run, answer=lambda item, *_, n=n: item.target if item.position < n else "-1")
    grade(experiment, by="test")
    return experiment


def open_page(client, experiment, name):
    client.force_login(experiment.owner)
    return page_text(client.get(reverse(name, args=[experiment.slug])))


@pytest.mark.parametrize(
    "name", ["experiment_results", "experiment_analysis", "experiment_matrix", "experiment_grading"]
)
def test_a_page_names_the_scores_that_changed_between_the_waves_it_pools(client, name):
    text = open_page(client, make_two_waves((35, 18)), name)
    assert POOLED in text
    assert "Scores changed significantly from first wave to May: Number within tolerance, " in text
    assert "87.5 % to 45.0 %" in text


def test_agreement_names_the_waves_that_it_pools_unless_one_is_chosen(client):
    experiment = make_two_waves((20, 21))
    make_gradings(experiment, "judge", lambda trial: 1.0, rubric=make_scale_rubric("strict", low=0, high=1))
    assert POOLED in open_page(client, experiment, "experiment_agreement")
    chosen = client.get(reverse("experiment_agreement", args=[experiment.slug]), {"wave": experiment.waves.last().pk})
    assert "pool" not in page_text(chosen)


def test_waves_without_drift_are_pooled_with_a_note(client):
    text = open_page(client, make_two_waves((20, 21)), "experiment_results")
    assert POOLED in text
    assert "No score differs significantly between first wave and May." in text


def test_one_wave_has_no_note(client):
    experiment = make_two_waves((35,))
    assert "pool" not in open_page(client, experiment, "experiment_results")
    client.force_login(experiment.owner)
    page = client.get(reverse("experiment_results", args=[experiment.slug]), {"wave": 0})
    assert "pool" not in page_text(page)


def test_commands_and_the_report_say_which_waves_they_pool(capsys, tmp_path):
    experiment = make_two_waves((35, 18))
    complaints = io.StringIO()
    call_command("status", experiment.slug, stdout=io.StringIO(), stderr=complaints)
    assert "the scores pool 2 waves (first wave, May)" in complaints.getvalue()
    complaints = io.StringIO()
    call_command("analyse", experiment.slug, table="descriptives", out=str(tmp_path / "a.md"), stderr=complaints)
    assert f"These numbers {POOLED} Scores changed significantly from first wave to May" in complaints.getvalue()
    assert reverse("experiment_waves", args=[experiment.slug]) in complaints.getvalue()
    complaints = io.StringIO()
    call_command(
        "analyse", experiment.slug, wave="May", table="descriptives", out=str(tmp_path / "b"), stderr=complaints
    )
    assert "pool" not in complaints.getvalue()
    path = tmp_path / "report.html"
    call_command("report", experiment.slug, out=str(path))
    text = " ".join(path.read_text().split())
    assert "was asked once in each of 2 waves (first wave and May)" in text
    assert "Scores changed significantly from first wave to May" in text


def test_lists_and_compare_say_which_waves_they_pool(client):
    experiment = make_two_waves((35, 18))
    client.force_login(experiment.owner)
    for address in (reverse("experiment_list"), reverse("home")):
        assert "2 waves pooled" in page_text(client.get(address))
    key = experiment.conditions.get().pk
    sides = {"a": f"{experiment.slug}:{key}", "b": f"{experiment.slug}:{key}"}
    text = page_text(client.get(reverse("compare"), sides))
    assert text.count(POOLED) == 1
    assert reverse("experiment_waves", args=[experiment.slug]) in text
    sides = {"a": f"{experiment.slug}:{key}:0", "b": f"{experiment.slug}:{key}:1"}
    assert "pool" not in page_text(client.get(reverse("compare"), sides))
