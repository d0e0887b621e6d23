"""`manage.py grade` with judges: cost output, refusals and results."""

from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command

from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grader, Grading, Panel
from runs_app.models import Experiment, LanguageModel, Manifest, Trial
from tests import factories
from tests.factories.engine import drain
from tests.factories.judges import build_judge, get_judge_run, make_grader, make_rubric


def run_grade(*arguments):
    call_command("grade", "pilot", *arguments, "--no-wait")


def test_the_command_prints_the_cost_requests_verdicts_and_reads_the_replies(answered, capsys):
    make_grader()
    run_grade("--grader", "judge-a")
    output = capsys.readouterr().out
    assert "12 trials, 12 to do" in output
    assert "cost: at most $" in output
    assert "12 verdicts requested" in output
    drain(build_judge(0.5))

    call_command("grade", "pilot", "--grader", "judge-a")  # All verdicts are already requested.
    assert "12 verdicts read" in capsys.readouterr().out
    assert set(Grading.objects.values_list("score", flat=True)) == {0.5}
    assert Manifest.objects.get().content["launch"]["estimate"]["to_do"] == 12


def test_the_command_counts_the_verdicts_that_a_worker_stored_first(answered, monkeypatch, capsys):
    make_grader()
    make_grader("judge-b", model=factories.make_model("other"))
    run_grade("--grader", "judge-b")

    def wait(command, runs):
        drain(build_judge(0.5))
        read_verdicts(answered)

    monkeypatch.setattr("grading_app.management.commands.grade.wait_for", wait)
    capsys.readouterr()
    call_command("grade", "pilot", "--grader", "judge-a")
    output = capsys.readouterr().out
    assert "12 verdicts read" in output
    assert "judge-b" not in output
    call_command("grade", "pilot", "--grader", "judge-a")
    assert ": 0 verdicts read" in capsys.readouterr().out


def test_a_cost_above_the_limit_needs_confirmation_before_any_call(answered):
    make_grader()
    Experiment.objects.update(confirm_above_usd=Decimal("0.0001"))
    with pytest.raises(CommandError) as caught:
        run_grade("--grader", "judge-a")
    assert caught.value.returncode == 3
    assert not Trial.objects.exclude(subject=None).exists()
    run_grade("--grader", "judge-a", "--yes")
    assert get_judge_run(answered).n_pending == 12


def test_a_cost_above_the_remaining_budget_exits_with_4(answered):
    make_grader()
    Experiment.objects.update(max_usd=Decimal("0.002"))
    with pytest.raises(CommandError) as caught:
        run_grade("--grader", "judge-a")
    assert caught.value.returncode == 4


def test_an_unknown_price_is_refused_under_a_budget(answered):
    make_grader()
    LanguageModel.objects.filter(name="judge").update(input_price=None)
    with pytest.raises(CommandError, match="unknown price: model judge has no price") as caught:
        run_grade("--grader", "judge-a")
    assert caught.value.returncode == 2


def test_a_rubric_that_is_not_approved_is_refused(answered):
    make_grader(rubric=make_rubric(status="draft"))
    with pytest.raises(CommandError, match="a curator must approve it"):
        run_grade("--grader", "judge-a")


def test_a_judge_with_another_rubric_is_created_only_once(answered):
    make_grader()
    make_rubric("strict", scale_max=10)
    for _ in range(2):
        run_grade("--grader", "judge-a", "--rubric", "strict")
    assert sorted(Grader.objects.values_list("name", "rubric__name")) == [
        ("judge-a", "standard"),
        ("judge-a-strict-v1", "strict"),
    ]
    assert get_judge_run(answered).n_pending == 12


def test_a_rubric_without_a_judge_selects_all_judges_with_that_rubric(answered):
    rubric = make_rubric("strict")
    make_grader("judge-b", rubric=rubric)
    make_grader("judge-a")
    run_grade("--rubric", "strict")
    assert get_judge_run(answered).condition.condition_id.startswith("judge-b_strict--")


def test_a_judge_of_the_answering_models_family_is_reported(answered, capsys):
    make_grader()
    LanguageModel.objects.filter(name="judge").update(model="vendor/large")
    run_grade("--grader", "judge-a")
    output = capsys.readouterr().err
    assert "judge belongs to the same family as large, small and may prefer their answers" in output


@pytest.mark.slow
def test_the_command_adds_the_scores_of_a_panel(answered, capsys):
    panel = Panel.objects.create(name="both", rule="mean")
    rubric = make_rubric()
    panel.graders.set([make_grader("judge-a", rubric=rubric), make_grader("judge-b", rubric=rubric, longest_answer=99)])
    with pytest.raises(CommandError, match="judge-a, judge-b did not judge pilot yet"):
        run_grade("--panel", "both")
    run_grade("--grader", "judge-a", "--grader", "judge-b", "--yes")
    drain(build_judge(0.5))
    run_grade("--grader", "judge-a", "--grader", "judge-b", "--panel", "both")
    assert Grading.objects.filter(condition__kind="panel", score=0.5).count() == 12


@pytest.mark.django_db
def test_judging_one_condition_uses_the_reservation_of_the_whole_wave(capsys):
    models = [factories.make_model("small"), factories.make_model("large")]
    experiment = factories.make_experiment("pilot", models=models)
    short, long = factories.make_runs(experiment, status="done")
    factories.plan_trials(short, answer=lambda *_: "four")
    factories.plan_trials(long, answer=lambda *_: "four " * 2_000)
    make_grader()
    run_grade("--grader", "judge-a", "--condition", short.condition.condition_id)
    assert "3 trials, 3 to do" in capsys.readouterr().out
    verdicts = Trial.objects.exclude(subject=None)
    assert set(verdicts.values_list("subject__run", flat=True)) == {short.pk}
    reserved = get_judge_run(experiment).reserve_usd
    run_grade("--grader", "judge-a")
    assert (verdicts.count(), get_judge_run(experiment).reserve_usd) == (6, reserved)
