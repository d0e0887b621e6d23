"""What decided points count is proven from their rows."""

import pytest
from django.db.models import F

from grading_app.models import Grading
from runs_app.models import Experiment, Point, Trial
from runs_app.reconciling import differences
from tests.engine.conftest import drain, reply
from tests.engine.test_adaptive_rounds import answering, easy_is_right, launch, make, questions
from tests.engine.test_rounds_of_ratings import alike_or_apart, launched, rating


@pytest.fixture
def decided(transactional_db):
    run = launch(make(questions(40, "easy") + questions(40, "hard")))
    drain(answering(easy_is_right))
    assert differences() == []
    return run


@pytest.mark.parametrize("counter", ["n_planned", "n_correct", "n_truncated", "n_failed", "n_rated_items"])
def test_a_counter_that_was_tampered_with_is_named(decided, counter):
    point = decided.points.get(key={"category": "easy"})
    before = getattr(point, counter)
    Point.objects.filter(pk=point.pk).update(**{counter: F(counter) + 1})
    assert [str(found) for found in differences()] == [
        f"point {point.pk}: {counter} is {before + 1}, the rows say {before}"
    ]


def test_answers_that_are_not_counted_are_found(decided):
    point = decided.points.get(key={"category": "easy"})
    Point.objects.filter(pk=point.pk).update(n_total=7)
    assert [str(found) for found in differences()] == [f"point {point.pk}: answers is 7, the rows say 8"]


def test_rows_that_changed_under_a_point_are_found(decided):
    point = decided.points.get(key={"category": "easy"})
    Grading.objects.filter(trial__item__category="easy").update(score=0)
    assert [(found.counter, found.counted, found.in_rows) for found in differences()] == [("n_correct", 8, 0)]
    Trial.objects.filter(item_id=point.items[0]).delete()
    assert ("n_planned", 8, 7) in {(found.counter, found.counted, found.in_rows) for found in differences()}


@pytest.mark.parametrize("counter", ["mean", "spread", "n_rated_items"])
def test_a_mean_that_was_tampered_with_is_named(transactional_db, counter):
    run = launched()
    drain(rating(alike_or_apart))
    assert differences() == []
    point = run.points.get(dimension__name="arousal")
    Point.objects.filter(pk=point.pk).update(**{counter: F(counter) + 1})
    assert [(found.row, found.counter) for found in differences()] == [(f"point {point.pk}", counter)]


def test_blank_answers_that_are_graded_after_the_decision_make_no_difference(transactional_db):
    from grading_app.grading import grade

    experiment = make(questions(8, "easy"), on_empty="skip")
    run = launch(experiment)

    async def blank(request):
        return reply("")

    drain(blank)
    assert (run.points.get().n_unread, run.points.get().n_total) == (8, 0)
    Experiment.objects.update(on_empty="keep")
    grade(Experiment.objects.get(), by="a curator")
    assert Grading.objects.count() == 8
    assert differences() == []
