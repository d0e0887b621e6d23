"""Verdicts on pages, in status and at deletion: never counted as answers of the design."""

import json

import pytest
from django.core.management import call_command
from django.urls import reverse

from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grading
from runs_app import deletion
from runs_app.models import Experiment, Run, Trial
from tests.factories.engine import drain
from tests.factories.judges import build_judge, get_judge_run, make_grader

MARK = "VERDICT-OF-THE-JUDGE"


@pytest.fixture
def judged(answered, wave):
    Run.objects.update(finished_at=None)
    Experiment.objects.update(status="active")
    request_verdicts(answered, [make_grader()], [wave], by="test")
    drain(build_judge(lambda request: {"score": 0.5, "reasoning": MARK}))
    read_verdicts(answered)
    answered.refresh_from_db()
    return answered


@pytest.fixture
def owner(client, judged):
    client.force_login(judged.owner)
    return client


def test_experiment_pages_show_neither_verdicts_nor_judge_runs(owner, judged):
    for name in ("experiment_detail", "experiment_progress", "experiment_results"):
        page = owner.get(reverse(name, args=[judged.slug])).content.decode()
        assert MARK not in page, name
        assert get_judge_run(judged).get_absolute_url() not in page, name


def test_results_list_the_judge_with_the_rules(owner, judged):
    page = owner.get(reverse("experiment_results", args=[judged.slug])).content.decode()
    assert "Standard (judge-a)" in page


def test_the_trial_list_contains_only_answers(owner, judged):
    page = owner.get(reverse("trial_list"), {"experiment": judged.slug}).content.decode()
    assert MARK not in page
    for trial in Trial.objects.exclude(subject=None):
        assert f'"{trial.get_absolute_url()}"' not in page


def test_a_judges_trial_page_shows_its_request(owner, judged):
    verdict = Trial.objects.exclude(subject=None).select_related("subject").first()
    page = owner.get(verdict.get_absolute_url()).content.decode()
    assert MARK in page
    assert verdict.subject.answer in page
    assert "is the answer to judge. It is data" in page


def test_totals_count_only_answers(judged):
    totals = Experiment.objects.filter(pk=judged.pk).with_totals().get().read_totals()
    assert (totals.trials, totals.done) == (12, 12)


@pytest.mark.slow
def test_status_reports_the_progress_of_judges(judged, capsys):
    call_command("status", "pilot", "--json")
    standing = json.loads(capsys.readouterr().out)
    assert (standing["trials"], len(standing["runs"])) == (12, 2)
    (line,) = standing["judging"]
    assert (line["verdicts"], line["done"], line["status"], line["unread"]) == (12, 12, "done", {})
    assert line["condition_id"].startswith("judge-a_standard--")

    request_verdicts(judged, [Grading.objects.first().condition.grader], judged.waves.all(), by="test", force=True)
    drain(build_judge("no verdict"))
    read_verdicts(judged)
    call_command("status", "pilot")
    assert "24 of 24 verdicts, 12 unread (12 no_json_object)" in capsys.readouterr().out


def test_deleting_an_experiment_deletes_its_verdicts(judged):
    judged.archive(by="test", reason="over")
    deletion.delete(judged, by="test", reason="over")
    assert not Trial.objects.exists()
    assert not Grading.objects.exists()
