"""The consistency check recomputes the counters of decided points from their rows."""

import pytest
from django.core.management import call_command
from django.db.models import F
from django.urls import reverse

from grading_app.grading import adaptive_decisions, scoring
from grading_app.grading.adaptive_decisions import decide_due, describe_earlier_rule
from grading_app.grading.consistency_check import find_differences
from grading_app.models import GradeCondition, Grading
from grading_app.models.gradings import allow_superseding
from runs_app.models import Experiment, Point, Run, Trial
from runs_app.scorers import scoring_rules
from tests.factories.engine import build_reply, drain
from tests.factories.tampering import allow_deletions
from tests.integration.engine.test_adaptive_rounds import (
    answer_by_rule,
    is_answered_right,
    launch,
    make_questions,
    make_rounds_experiment,
)
from tests.integration.engine.test_rounds_of_ratings import answer_ratings, launch_ratings, spread_by_dimension


@pytest.fixture
def decided_run(transactional_db):
    run = launch(make_rounds_experiment(make_questions(40, "easy") + make_questions(40, "hard")))
    drain(answer_by_rule(is_answered_right))
    assert find_differences() == []
    return run


def test_reconcile_names_each_changed_counter(decided_run):
    point = decided_run.points.get(key={"category": "easy"})
    for counter in ("n_planned", "n_correct", "n_truncated", "n_failed", "n_rated_items"):
        before = getattr(point, counter)
        Point.objects.filter(pk=point.pk).update(**{counter: F(counter) + 1})
        assert [str(difference) for difference in find_differences()] == [
            f"point {point.pk}: {counter} is {before + 1}, the rows say {before}"
        ]
        Point.objects.filter(pk=point.pk).update(**{counter: before})
    Point.objects.filter(pk=point.pk).update(n_total=7)
    assert [str(difference) for difference in find_differences()] == [f"point {point.pk}: answers is 7, the rows say 8"]


def test_reconcile_finds_changed_or_deleted_rows_of_a_point(decided_run):
    point = decided_run.points.get(key={"category": "easy"})
    with allow_superseding():
        Grading.objects.filter(trial__item__category="easy").update(score=0)
    assert [(difference.counter, difference.counted, difference.in_rows) for difference in find_differences()] == [
        ("n_correct", 8, 0)
    ]
    with allow_deletions():
        Trial.objects.filter(item_id=point.items[0]).delete()
    assert ("n_planned", 8, 7) in {
        (difference.counter, difference.counted, difference.in_rows) for difference in find_differences()
    }


@pytest.mark.slow
@pytest.mark.parametrize("counter", ["mean", "spread", "n_rated_items"])
def test_reconcile_names_a_changed_mean(transactional_db, counter):
    run = launch_ratings()
    drain(answer_ratings(spread_by_dimension))
    assert find_differences() == []
    point = run.points.get(dimension__name="arousal")
    Point.objects.filter(pk=point.pk).update(**{counter: F(counter) + 1})
    assert [(difference.row, difference.counter) for difference in find_differences()] == [
        (f"point {point.pk}", counter)
    ]


def test_blank_answers_graded_after_the_decision_do_not_count(transactional_db):
    from grading_app.grading.scoring import grade

    experiment = make_rounds_experiment(make_questions(8, "easy"), on_empty="skip")
    run = launch(experiment)

    async def answer_blank(request):
        return build_reply("")

    drain(answer_blank)
    assert (run.points.get().n_unread, run.points.get().n_total) == (8, 0)
    Experiment.objects.update(on_empty="keep")
    grade(Experiment.objects.get(), by="a curator")
    assert Grading.objects.count() == 8
    assert find_differences() == []


def raise_the_version(monkeypatch):
    version = scoring_rules.RULES_VERSION + 1
    for module in (scoring_rules, adaptive_decisions):
        monkeypatch.setattr(module, "RULES_VERSION", version)


@pytest.mark.slow
@pytest.mark.parametrize("says_its_rule", [True, False])
def test_points_of_an_earlier_rule_version_are_checked_by_that_version_and_reported(
    decided_run, client, monkeypatch, capsys, says_its_rule
):
    """The next rule version grades every answer as wrong; decisions by the earlier version do not change."""
    if not says_its_rule:
        Point.objects.update(rounds=[{"asked": 8}])
    easy = decided_run.points.get(key={"category": "easy"})
    raise_the_version(monkeypatch)
    for graded_again in (False, True):
        if graded_again:
            scoring.grade(decided_run.experiment, by="a test")
            with allow_superseding():
                Grading.objects.order_by("-pk").filter(condition=GradeCondition.objects.last()).update(score=0)
        call_command("reconcile")
        output = capsys.readouterr().out
        assert "counters and ledger agree with the rows" in output
        assert "note: rounds: 2 points were decided by an earlier version of the rule than exact_match--" in output
    with allow_superseding():
        Grading.objects.filter(condition=GradeCondition.objects.first(), trial__item__category="easy").update(score=0)
    assert [(difference.row, difference.counter) for difference in find_differences()] == [
        (f"point {easy.pk}", "n_correct")
    ]
    client.force_login(decided_run.experiment.owner)
    page = client.get(reverse("experiment_points", args=["rounds"])).content.decode()
    assert "2 points were decided by an earlier version of the rule" in page


def test_a_reopened_point_is_decided_by_the_current_rule_version(transactional_db, monkeypatch):
    run = launch(make_rounds_experiment(make_questions(40, "easy")))
    drain(answer_by_rule(is_answered_right))
    first = run.points.get().rounds[-1]["graded_by"]
    assert first == GradeCondition.objects.get().grade_condition_id
    raise_the_version(monkeypatch)
    assert describe_earlier_rule(run.experiment).startswith("1 point was decided")
    Point.objects.update(status="open")
    assert decide_due() == 0  # The run has ended: its decisions stay.
    Run.objects.update(status="running")
    assert decide_due() == 1
    assert run.points.get().rounds[-1]["graded_by"] != first
    assert (describe_earlier_rule(run.experiment), find_differences()) == ("", [])
