"""Rating sessions: the stored rows after a rating, an undo and a resume."""

import pytest
from django.db import IntegrityError, connection, transaction

from grading_app.grading.rating import queues, session
from grading_app.models import Rating, RatingQueue
from grading_app.models.rating import QueueError
from tests import factories
from tests.factories.queues import make_queue, make_rater, rate_all, sign_in

pytestmark = pytest.mark.django_db


def test_every_item_is_rated_exactly_once():
    queue = make_queue(items=7)
    rater = make_rater(queue, started=True)
    rate_all(rater)
    keys = [rating.item.key for rating in rater.ratings.given()]
    assert sorted(keys) == [f"thing-{number}" for number in range(7)]
    rater.refresh_from_db()
    assert rater.finished_at
    assert rater.find_next_rating() is None


def test_two_raters_see_the_same_items_in_different_orders():
    queue = make_queue(items=30)
    orders = [list(make_rater(queue, started=True).ratings.values_list("item", flat=True)) for _ in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])


def test_starting_a_session_is_idempotent():
    queue = make_queue()
    rater = make_rater(queue, started=True)
    rate_all(rater)
    before = list(rater.ratings.values())
    assert session.start_session(rater)
    assert list(rater.ratings.values()) == before


def test_a_rating_sent_twice_is_recorded_once():
    rater = make_rater(make_queue(), started=True)
    assert session.rate(rater, position=1, value=3, seconds=2)
    assert not session.rate(rater, position=1, value=5, seconds=2)
    assert [rating.value for rating in rater.ratings.given()] == [3]


def test_a_rating_out_of_turn_is_refused():
    rater = make_rater(make_queue(), started=True)
    assert not session.rate(rater, position=4, value=3, seconds=2)
    assert not rater.ratings.given().exists()


@pytest.mark.parametrize("value", [0, 8, -1, 10**9])
def test_a_value_outside_the_scale_is_refused(value):
    rater = make_rater(make_queue(), started=True)
    with pytest.raises(session.RatingError, match="scale"):
        session.rate(rater, position=1, value=value, seconds=2)


def test_the_database_refuses_a_value_outside_the_scale():
    rater = make_rater(make_queue(), started=True)
    with pytest.raises(IntegrityError, match="not on the scale from 1 to 7"), transaction.atomic():
        rater.ratings.filter(position=1).update(value=8, seconds=1, rated_at=rater.started_at)


def test_undo_makes_the_last_rating_due_again_and_counts_the_revision():
    rater = make_rater(make_queue(), started=True)
    for position in (1, 2):
        session.rate(rater, position=position, value=3, seconds=2)
    assert session.undo(rater)
    assert rater.find_next_rating().position == 2
    assert session.rate(rater, position=2, value=6, seconds=1)
    last = rater.ratings.get(position=2)
    assert (last.value, last.revisions) == (6, 1)


def test_undo_works_back_to_the_first_rating():
    rater = make_rater(make_queue(), started=True)
    for position in (1, 2):
        session.rate(rater, position=position, value=3, seconds=2)
    assert [session.undo(rater) for _ in range(3)] == [True, True, False]
    assert rater.find_next_rating().position == 1


def test_undoing_the_last_rating_reopens_the_session():
    rater = make_rater(make_queue(), started=True)
    rate_all(rater)
    assert session.undo(rater)
    rater.refresh_from_db()
    assert rater.finished_at is None
    assert rater.find_next_rating().position == 6


def test_practice_items_are_first_and_checks_are_mixed_in():
    queue = make_queue(items=9, practice_items=2, attention_checks={"thing-8": [7]})
    rater = make_rater(queue, started=True)
    kinds = list(rater.ratings.values_list("kind", "item__key"))
    assert kinds[:2] == [("practice", "thing-0"), ("practice", "thing-1")]
    assert kinds.count(("check", "thing-8")) == 1
    assert [kind for kind, _ in kinds].count("item") == 6


# --- number of raters of an item -------------------------------------------------------------------------------------


def test_an_item_never_gets_more_raters_than_requested():
    queue = make_queue(items=4, raters_wanted=2)
    makes = [session.start_session(make_rater(queue)) for _ in range(3)]
    assert makes == [True, True, False]
    assert Rating.objects.filter(assignment__queue=queue).count() == 8


def test_with_a_limit_for_each_rater_items_get_equal_numbers_of_ratings():
    queue = make_queue(items=6, raters_wanted=2, items_per_rater=3)
    for _ in range(4):
        assert session.start_session(make_rater(queue))
    assert not session.start_session(make_rater(queue))
    counts = [queue.dataset.items.get(pk=pk).ratings.count() for pk in queue.dataset.items.values_list("pk", flat=True)]
    assert counts == [2] * 6


def test_raters_are_distributed_evenly_over_dimensions():
    dimensions = [factories.make_dimension(name) for name in ("arousal", "valence")]
    queue = make_queue(dimensions=dimensions, one_dimension_per_rater=True, raters_wanted=2)
    raters = [make_rater(queue, started=True) for _ in range(4)]
    assert [rater.dimension.name for rater in raters] == ["arousal", "valence", "arousal", "valence"]
    assert all(set(rater.ratings.values_list("dimension", flat=True)) == {rater.dimension_id} for rater in raters)
    assert not session.start_session(make_rater(queue))


def test_the_unrated_items_of_a_released_rater_are_reassigned():
    queue = make_queue(items=4, raters_wanted=1)
    first = make_rater(queue, started=True)
    session.rate(first, position=1, value=3, seconds=2)
    first.release(by=queue.owner, reason="went home")
    second = make_rater(queue, started=True)
    rate_all(second)
    assert second.ratings.count() == 3
    assert not set(first.ratings.values_list("item")) & set(second.ratings.values_list("item"))


def test_an_excluded_rater_is_replaced_but_their_ratings_stay():
    queue = make_queue(items=4, raters_wanted=1)
    first = make_rater(queue, started=True)
    rate_all(first)
    first.exclude(by=queue.owner, reason="always 4")
    assert make_rater(queue, started=True).ratings.count() == 4
    assert first.ratings.given().count() == 4
    assert queue.history.get(aspect="excluded").reason == "always 4"


def test_a_rater_excluded_before_the_start_cannot_start():
    queue = make_queue()
    rater, asker = make_rater(queue), sign_in(queue.owner)
    button = f"/ratings/queues/study/raters/{rater.number}/exclude/"
    assert button in asker.get("/ratings/queues/study/").content.decode()
    asker.post(button, {"reason": "the wrong account"})
    with pytest.raises(session.RatingError, match="not open"):
        session.start_session(rater)
    assert sign_in(rater.user).get("/ratings/study/").status_code == 404
    assert button not in asker.get("/ratings/queues/study/").content.decode()


def test_excluding_needs_a_reason():
    queue = make_queue()
    rater = make_rater(queue, started=True)
    with pytest.raises(QueueError, match="enter a reason"):
        rater.exclude(by=queue.owner, reason=" ")


# --- database constraints --------------------------------------------------------------------------------------------


def test_a_closed_queue_refuses_ratings():
    queue = make_queue()
    rater = make_rater(queue, started=True)
    queue.close(by=queue.owner, reason="enough")
    with pytest.raises(session.RatingError, match="not open"):
        session.rate(rater, position=1, value=3, seconds=2)


@pytest.mark.parametrize("change", [{"practice_items": 3}, {"instructions": "Other"}, {"status": "draft"}])
def test_the_design_of_an_open_queue_cannot_change(change):
    queue = make_queue()
    with pytest.raises(IntegrityError, match="was open"), transaction.atomic():
        RatingQueue.objects.filter(pk=queue.pk).update(**change)


def test_the_number_of_requested_raters_can_grow_later():
    queue = make_queue()
    assert RatingQueue.objects.filter(pk=queue.pk).update(raters_wanted=9) == 1


def test_the_dimensions_of_an_open_queue_cannot_change():
    queue = make_queue()
    for change in (queue.dimensions.clear, lambda: queue.dimensions.add(factories.make_dimension("arousal"))):
        with pytest.raises(IntegrityError, match="keeps its dimensions"), transaction.atomic():
            change()


def test_a_given_rating_cannot_be_deleted_or_moved():
    rater = make_rater(make_queue(), started=True)
    rate_all(rater)
    with pytest.raises(IntegrityError, match="it stays"), transaction.atomic():
        rater.ratings.all().delete()
    with pytest.raises(IntegrityError, match="keeps its rater"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE grading_app_rating SET position = position + 100")


def test_a_queue_of_answers_needs_an_experiment():
    queue = make_queue(opened=False)
    with pytest.raises(IntegrityError, match="rating_queue_subject"), transaction.atomic():
        RatingQueue.objects.filter(pk=queue.pk).update(subject="answers")


def test_opening_approves_the_dimensions_and_is_recorded_in_the_history():
    dimension = factories.make_dimension("valence", status="draft")
    queue = make_queue(dimensions=[dimension])
    dimension.refresh_from_db()
    assert dimension.status == "approved"
    assert queue.history.first().reason == "ready"


def test_a_queue_with_nothing_to_rate_does_not_open():
    with pytest.raises(QueueError, match="no item"):
        make_queue(items=2, practice_items=2)


def test_a_queue_over_an_archived_dataset_cannot_open():
    queue = make_queue(opened=False)
    queue.dataset.archive(by=queue.owner, reason="superseded")
    with pytest.raises(QueueError, match="approved datasets"):
        queues.open_queue(queue, by=queue.owner, reason="")
