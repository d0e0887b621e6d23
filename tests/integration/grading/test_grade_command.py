"""`manage.py grade`: output and refusals."""

import pytest
from django.core.management import CommandError, call_command

from grading_app.models import Grading
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment():
    created = factories.make_experiment(scorers=["numeric"])
    for wave in (0, 1):
        (run,) = factories.make_runs(created, wave=wave)
        factories.plan_trials(run, answer=lambda item, *cell: item.target if item.key != "item-1" else "none")
    return created


def test_the_command_reports_graded_answers_and_reasons_for_missing_scores(experiment, capsys):
    call_command("grade", "pilot")
    output = capsys.readouterr().out
    assert "6 graded, 0 graded before; no score from 2 (2 no_number_found)" in output
    call_command("grade", "pilot")
    assert "0 graded, 6 graded before" in capsys.readouterr().out


def test_the_command_grades_one_wave_by_label_or_number(experiment):
    call_command("grade", "pilot", "--wave", "wave-1")
    assert set(Grading.objects.values_list("trial__run__wave__number", flat=True)) == {1}
    call_command("grade", "pilot", "--wave", "0")
    assert Grading.objects.count() == 6


def test_a_design_without_scorers_is_reported(capsys):
    factories.make_experiment("bare")
    call_command("grade", "bare")
    assert "--scorer" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nobody"], "no experiment nobody"),
        (["pilot", "--scorer", "guess"], "exact_match"),
        (["pilot", "--scorer", "regex"], "pattern"),
        (["pilot", "--wave", "spring"], "wave-1"),
        (["pilot", "--grader", "judge-a"], "there is no grader judge-a; existing graders: none"),
        (["pilot", "--rubric", "standard"], "there is no rubric standard"),
        (["pilot", "--panel", "three"], "there is no panel three"),
    ],
)
def test_bad_input_ends_with_two_and_writes_nothing(experiment, arguments, named):
    with pytest.raises(CommandError) as caught:
        call_command("grade", *arguments)
    assert caught.value.returncode == 2
    assert named in str(caught.value)
    assert not Grading.objects.exists()


def test_the_command_grades_one_condition_first_and_the_rest_later():
    models = [factories.make_model(name) for name in ("small", "large")]
    created = factories.make_experiment("both", scorers=["numeric"], models=models)
    for run in factories.make_runs(created):
        factories.plan_trials(run, answer=lambda item, *cell: item.target)
    condition_ids = sorted(created.conditions.values_list("condition_id", flat=True))
    call_command("grade", "both", "--condition", condition_ids[0])
    assert set(Grading.objects.values_list("trial__run__condition__condition_id", flat=True)) == {condition_ids[0]}
    with pytest.raises(CommandError) as caught:
        call_command("grade", "both", "--condition", "nobody")
    assert caught.value.returncode == 2
    assert all(one in str(caught.value) for one in condition_ids)
    call_command("grade", "both")
    assert Grading.objects.count() == 6
