"""Repeated grading without new answers: it compares counts and reads no answer."""

import re

import pytest
from django.db import connection, transaction

from grading_app.grading import scoring
from grading_app.grading.judging import verdict_reader
from grading_app.grading.scoring import grade
from grading_app.models import GradeCondition
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment():
    created = factories.make_experiment(scorers=["numeric"])
    (run,) = factories.make_runs(created)
    factories.plan_trials(run, answer=lambda item, *_: "" if item.key == "item-1" else item.target)
    return created


@pytest.mark.parametrize(("on_empty", "graded"), [("keep", 3), ("skip", 2)])
def test_grading_again_reads_no_answers(experiment, on_empty, graded, monkeypatch):
    experiment.on_empty = on_empty
    experiment.save()
    (first,) = grade(experiment, by="test")
    monkeypatch.setattr(scoring, "iterate_key_ranges", lambda *_: pytest.fail("the answers were walked"))
    (repeated,) = grade(experiment, by="test")
    assert (first.graded, repeated.graded, repeated.graded_before) == (graded, 0, graded)


def test_earlier_grades_of_blank_answers_do_not_hide_new_answers(experiment):
    grade(experiment, by="test")
    experiment.on_empty = "skip"
    experiment.save()
    for wave in factories.make_runs(experiment, wave=1):
        factories.plan_trials(wave, answer=lambda item, *_: item.target if item.key == "item-0" else None)
    (repeated,) = grade(experiment, by="test")
    assert (repeated.graded, repeated.graded_before) == (1, 2)


JUDGED = verdict_reader.REPLIES.format(
    unread=verdict_reader.UNREAD.replace("FROM runs_app_trial v", verdict_reader.WITH_SUBJECT, 1)
)


@pytest.mark.parametrize(
    ("statement", "subject"), [(scoring.ANSWERS + scoring.UNGRADED, "t.id"), (JUDGED, "v.subject_id")]
)
def test_the_query_looks_up_the_grade_of_each_answer_separately(experiment, statement, subject):
    """Check the plan, because without statistics a join would compare each answer with all grades of the condition."""
    grade(experiment, by="a test")
    run, condition = experiment.runs.first(), GradeCondition.objects.first()
    arguments = {"run": run.pk, "condition": condition.pk, "with_empty": True, "low": 5, "high": 9, "quotable": "x"}
    with transaction.atomic(), connection.cursor() as cursor:
        for setting in ("seqscan", "bitmapscan"):
            cursor.execute(f"SET LOCAL enable_{setting} = off")
        if connection.get_database_version() >= (18,):  # The server may have analyzed the few rows of another test.
            for table in ("runs_app_trial", "grading_app_grading"):
                cursor.execute("SELECT pg_clear_relation_stats('public', %s)", [table])
        cursor.execute("EXPLAIN " + statement, arguments)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    (grades,) = re.findall(r"grading_app_grading.*\n\s+Index Cond: (.*)", plan)
    assert f"(trial_id = {subject})" in grades
    assert "SubPlan" in plan
