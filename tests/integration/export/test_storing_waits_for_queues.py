"""An action on a queue that waits while the rows of its experiment move to a file is refused after that."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from grading_app.grading.rating import queues
from grading_app.models import RaterAssignment, RatingQueue
from grading_app.models.rating import QueueError
from grading_app.study_import import stored_rows
from grading_app.study_import.stored_rows import bring_back, store_rows
from tests.integration.export.test_stored_experiments import make_archived, read_rows
from tests.integration.rating.test_concurrent_raters import run_concurrently, wait_for_a_blocked_session

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_opening_and_an_exclusion_during_the_move_are_refused(monkeypatch, plain_pictures):
    archived = make_archived()
    before, compare = read_rows(), stored_rows._compare_with_file
    queue = archived.rating_queues.get(name="old-reading")
    rater = queue.assignments.get(number=1)
    actions = [
        lambda: queues.open_queue(queue, by="test", reason="more"),
        lambda: rater.exclude(by="test", reason="bad"),
    ]
    waiting = []

    def refuse(action):
        with pytest.raises(QueueError, match="the rows of old are in a file"):
            action()
        return "refused"

    with ThreadPoolExecutor(1) as pool:

        def compare_while_they_wait(*arguments, **options):
            compare(*arguments, **options)
            waiting.append(pool.submit(run_concurrently, refuse, actions))
            wait_for_a_blocked_session(len(actions))

        monkeypatch.setattr(stored_rows, "_compare_with_file", compare_while_they_wait)
        store_rows(archived, by="test")
        assert waiting[0].result(timeout=60) == ["refused", "refused"]
    monkeypatch.undo()
    assert RatingQueue.objects.get(pk=queue.pk).status == "closed"
    assert RaterAssignment.objects.get(pk=rater.pk).excluded_at is None
    bring_back(archived, by="test")
    assert read_rows() == before
