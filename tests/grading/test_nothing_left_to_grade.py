"""Grading again, with nothing to do, compares counts and reads no answer."""

import re

import pytest
from django.db import connection, transaction

from grading_app import grading
from grading_app.grading import grade
from grading_app.models import GradeCondition
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment():
    made = factories.make_experiment(scorers=["numeric"])
    (run,) = factories.make_runs(made)
    factories.plan_trials(run, answer=lambda item, *_: "" if item.key == "item-1" else item.target)
    return made


@pytest.mark.parametrize(("on_empty", "graded"), [("keep", 3), ("skip", 2)])
def test_it_reads_no_answer_again(experiment, on_empty, graded, monkeypatch):
    experiment.on_empty = on_empty
    experiment.save()
    (first,) = grade(experiment, by="test")
    monkeypatch.setattr(grading, "key_ranges", lambda *_: pytest.fail("the answers were walked"))
    (again,) = grade(experiment, by="test")
    assert (first.graded, again.graded, again.already) == (graded, 0, graded)


def test_blank_answers_graded_before_they_were_left_out_stand_for_no_new_answer(experiment):
    grade(experiment, by="test")
    experiment.on_empty = "skip"
    experiment.save()
    for wave in factories.make_runs(experiment, wave=1):
        factories.plan_trials(wave, answer=lambda item, *_: item.target if item.key == "item-0" else None)
    (again,) = grade(experiment, by="test")
    assert (again.graded, again.already) == (1, 2)


def test_a_page_walks_the_grades_of_its_own_answers_and_not_all_before_them(experiment):
    """By a merge, which the planner takes where answers are many: it reads both sides from where they begin."""
    grade(experiment, by="a test")
    run, condition = experiment.runs.first(), GradeCondition.objects.first()
    wanted = {"run": run.pk, "condition": condition.pk, "with_empty": True, "low": 5, "high": 9}
    with transaction.atomic(), connection.cursor() as cursor:
        for other in ("nestloop", "hashjoin", "seqscan", "bitmapscan"):
            cursor.execute(f"SET LOCAL enable_{other} = off")
        cursor.execute("EXPLAIN " + grading.ANSWERS + grading.UNGRADED_OF_PAGE, wanted)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    (grades,) = re.findall(r"grading_app_grading.*\n\s+Index Cond: (.*)", plan)
    assert f"(condition_id = {condition.pk})" in grades
    assert "(trial_id > 5)" in grades
    assert "(trial_id <= 9)" in grades
