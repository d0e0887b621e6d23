"""Raters who start at once never give an item more raters than it wants; a double tap is one rating."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.db.models import Count

from grading_app.models import Rating
from grading_app.rating import sessions
from tests.rating.world import make_queue, make_rater

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(work, arguments):
    def one(argument):
        try:
            return work(argument)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(one, arguments))


def test_items_never_get_more_raters_than_they_want():
    queue = make_queue(items=12, raters_wanted=2, items_per_rater=6)
    raters = [make_rater(queue) for _ in range(8)]
    started = at_once(sessions.start, raters)
    assert started.count(True) == 4
    counts = Rating.objects.values("item").annotate(n=Count("pk")).values_list("n", flat=True)
    assert list(counts) == [2] * 12


def test_one_rater_who_starts_twice_has_one_session():
    queue = make_queue(items=5)
    rater = make_rater(queue)
    again = type(rater).objects.get(pk=rater.pk)
    assert at_once(sessions.start, [rater, again]) == [True, True]
    assert rater.ratings.count() == 5


def test_a_double_tap_is_one_rating():
    rater = make_rater(make_queue(), started=True)
    recorded = at_once(lambda value: sessions.rate(rater, position=1, value=value, seconds=1), [2, 3, 4, 5])
    assert recorded.count(True) == 1
    assert rater.ratings.given().count() == 1
