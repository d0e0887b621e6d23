"""Concurrent raters: an item never gets more raters than requested, and a double tap is one rating."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction
from django.db.models import Count

from grading_app.grading.rating import session
from grading_app.models import Rating, RatingQueue
from tests.factories.queues import make_queue, make_rater

pytestmark = pytest.mark.django_db(transaction=True)


def run_concurrently(work, arguments):
    def run_one(argument):
        try:
            return work(argument)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(run_one, arguments))


def test_concurrent_starts_never_exceed_the_requested_raters():
    queue = make_queue(items=12, raters_wanted=2, items_per_rater=6)
    raters = [make_rater(queue) for _ in range(8)]
    started = run_concurrently(session.start_session, raters)
    assert started.count(True) == 4
    counts = Rating.objects.values("item").annotate(n=Count("pk")).values_list("n", flat=True)
    assert list(counts) == [2] * 12


def test_concurrent_starts_of_one_rater_create_one_session():
    queue = make_queue(items=5)
    rater = make_rater(queue)
    reloaded = type(rater).objects.get(pk=rater.pk)
    assert run_concurrently(session.start_session, [rater, reloaded]) == [True, True]
    assert rater.ratings.count() == 5


def test_a_double_tap_records_one_rating():
    rater = make_rater(make_queue(), started=True)
    recorded = run_concurrently(lambda value: session.rate(rater, position=1, value=value, seconds=1), [2, 3, 4, 5])
    assert recorded.count(True) == 1
    assert rater.ratings.given().count() == 1


def test_a_rating_during_a_release_waits_without_an_error():
    queue = make_queue()
    rater = make_rater(queue, started=True)
    with ThreadPoolExecutor(1) as pool, transaction.atomic():  # Commits before it waits for the pool.
        RatingQueue.objects.select_for_update().get(pk=queue.pk)
        rating = pool.submit(run_concurrently, lambda _: session.rate(rater, position=1, value=4, seconds=1), [0])
        wait_for_a_blocked_session()
        type(rater).objects.get(pk=rater.pk).release(by=queue.owner, reason="went home")
    assert rating.result(timeout=60) == [False]
    assert not rater.ratings.exists()


def wait_for_a_blocked_session(number=1):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            if cursor.fetchone()[0] >= number:
                return
        time.sleep(0.01)
    pytest.fail("nobody waited for the queue")
