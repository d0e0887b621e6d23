"""Results of a queue: progress, means, agreement, exported rows and norms, compared with hand computations."""

import csv
import io
from statistics import mean, stdev

import pytest

from datasets_app.models import Norm
from evalsite.lib.text.hashing import hash_content
from grading_app.grading.rating import queue_results, session
from grading_app.models.rating import QueueError
from grading_app.statistics.agreement_coefficients import krippendorff_alpha
from grading_app.statistics.ratings import Ratings
from tests import factories
from tests.factories.queues import make_queue, make_rater, rate_all, sign_in
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
# Ratings of things 1 to 4 by three raters. Thing 0 is practice; thing 5 is an attention check that expects 7.
TABLE = {"thing-1": (1, 2, 1), "thing-2": (4, 4, 5), "thing-3": (7, 6, 7), "thing-4": (3, 3, 3)}


@shared_rows
def queue():
    """Return a queue whose three raters have finished."""
    rated = make_queue(practice_items=1, attention_checks={"thing-5": [7]})
    for column in range(3):
        rate_all(make_rater(rated, started=True), value=lambda rating, column=column: _choose_value(rating, column))
    return rated


def _choose_value(rating, column):
    if rating.item.key in TABLE:
        return TABLE[rating.item.key][column]
    return 7 if column < 2 else 2


def test_means_exclude_practice_and_checks(queue):
    keys = dict(queue.dataset.items.values_list("pk", "key"))
    means = {keys[line.item]: (line.n, line.mean, line.sd) for line in queue_results.list_item_means(queue)}
    assert means == {
        key: (3, pytest.approx(mean(values)), pytest.approx(stdev(values))) for key, values in TABLE.items()
    }


def test_agreement_equals_the_agreement_of_the_table(queue):
    (line,) = queue_results.list_question_results(queue)
    expected = krippendorff_alpha(Ratings.from_table(list(TABLE.values())), "ordinal").estimate
    assert line.alpha.estimate == pytest.approx(expected)
    assert 0.8 < line.icc.estimate < 1
    assert (line.n, line.items, line.raters) == (12, 4, 3)
    assert line.mean == pytest.approx(mean(mean(values) for values in TABLE.values()))


def test_constant_ratings_have_zero_agreement_without_an_interval():
    queue = make_queue()
    for value in (2, 5):
        rate_all(make_rater(queue, started=True), value=value)
    (line,) = queue_results.list_question_results(queue)
    assert line.icc.estimate == 0
    assert line.icc.low is None
    assert sign_in(queue.owner).get("/ratings/queues/study/").status_code == 200


def test_a_single_rater_has_no_agreement():
    queue = make_queue()
    rate_all(make_rater(queue, started=True))
    (line,) = queue_results.list_question_results(queue)
    assert line.alpha is None
    assert line.icc is None


def test_more_raters_are_requested_until_their_shares_cover_all_items():
    """Use six items with two raters each and four items for each rater, which needs three raters."""
    queue = make_queue(raters_wanted=2, items_per_rater=4, practice_items=0)
    assert queue_results.count_missing_raters(queue, 6) == 3
    queue.invite(1, by=queue.owner)
    first = make_rater(queue, started=True)
    assert queue_results.count_missing_raters(queue, 6) == 1
    make_rater(queue)
    assert queue_results.count_missing_raters(queue, 6) == 0
    assert "has enough ratings" not in read_page(queue)
    session.rate(first, position=1, value=4, seconds=1.0)
    first.release(by=queue.owner, reason="had to go")
    assert queue_results.count_missing_raters(queue, 6) == 1


def test_the_owner_sees_when_no_ratings_are_missing():
    queue = make_queue(raters_wanted=1)
    rate_all(make_rater(queue, started=True))
    assert "has enough ratings" in read_page(queue)
    queue.close(by=queue.owner, reason="enough")
    assert "has enough ratings" not in read_page(queue)


def read_page(queue):
    return sign_in(queue.owner).get(queue.get_absolute_url()).content.decode()


def test_passed_checks_and_progress_are_reported_for_each_rater(queue):
    late = make_rater(make_queue("other", dimensions=[factories.make_dimension("arousal")]))
    lines = queue_results.list_rater_progress(queue)
    assert [(line.passed, line.checked) for line in lines] == [(1, 1), (1, 1), (0, 1)]
    assert [(line.done, line.total, line.seconds) for line in lines] == [(6, 6, 1.5)] * 3
    assert [(line.done, line.total) for line in queue_results.list_rater_progress(late.queue)] == [(0, 0)]


def test_excluded_raters_count_only_in_the_export(queue):
    last = queue.assignments.last()
    last.exclude(by=queue.owner, reason="failed the check")
    keys = dict(queue.dataset.items.values_list("pk", "key"))
    assert {keys[line.item]: line.mean for line in queue_results.list_item_means(queue)}["thing-1"] == 1.5
    assert queue_results.count_complete(queue) == (0, 4)
    rows = export_rows(queue)
    assert {row["excluded"] for row in rows if row["rater"] == str(last.number)} == {"true"}


def export_rows(queue):
    return list(csv.DictReader(io.StringIO("".join(queue_results.iterate_csv_lines(queue)))))


def test_the_export_contains_every_rating_and_reproduces_the_means(queue):
    rows = export_rows(queue)
    assert len(rows) == 18
    item_rows = [row for row in rows if row["kind"] == "item"]
    for key, values in TABLE.items():
        assert sorted(int(row["rating"]) for row in item_rows if row["item_key"] == key) == sorted(values)
    assert sorted(row["passed"] for row in rows if row["kind"] == "check") == ["false", "true", "true"]
    assert {row["dataset_hash"] for row in rows} == {queue.dataset.content_hash}


def test_the_export_is_defused_for_spreadsheets():
    dataset = factories.make_dataset("formulas", [{"key": "=1+1", "input": "x", "category": "@now"}])
    queue = make_queue(dataset=dataset)
    rate_all(make_rater(queue, started=True))
    (row,) = export_rows(queue)
    assert (row["item_key"], row["category"]) == ("'=1+1", "'@now")


def test_norms_are_added_to_a_new_draft_and_not_to_the_approved_dataset(queue):
    queue.close(by=queue.owner, reason="")
    draft = queue_results.make_norms(queue, by=queue.owner, reason="norming study")
    assert (draft.slug, draft.version, draft.status) == (queue.dataset.slug, 2, "draft")
    assert not Norm.objects.filter(item__dataset=queue.dataset).exists()
    means = {norm.item.key: (norm.mean, norm.sd, norm.n) for norm in Norm.objects.filter(item__dataset=draft)}
    assert set(means) == set(TABLE)
    assert means["thing-1"] == (pytest.approx(4 / 3), pytest.approx(stdev(TABLE["thing-1"])), 3)
    rows = [row for row in export_rows(queue) if row["kind"] == "item"]
    ratings = sorted([row["item_key"], row["dimension"], int(row["rater"]), float(row["rating"])] for row in rows)
    source = f"12 ratings (hash {hash_content(ratings)[:12]})"
    assert draft.history.get(aspect="norms", reason="norming study").to_value == f"4 means of {source} in study"
    assert queue.history.get(aspect="norms").to_value == f"{source} to {draft}"
    assert queue.find_outdated_norms() is None


def test_new_norms_replace_only_norms_of_the_same_dimension():
    dataset = factories.make_dataset("normed", [{"key": "a", "input": "x", "norms": {"valence": 2.0, "arousal": 3.0}}])
    queue = make_queue(dataset=dataset)
    rate_all(make_rater(queue, started=True), value=6)
    queue.close(by=queue.owner, reason="")
    draft = queue_results.make_norms(queue, by=queue.owner, reason="")
    means = {norm.dimension: (norm.mean, norm.sd, norm.n) for norm in Norm.objects.filter(item__dataset=draft)}
    assert means == {"valence": (6, None, 1), "arousal": (3.0, 1.0, 100)}


def test_norms_cannot_be_created_without_ratings():
    queue = make_queue()
    queue.close(by=queue.owner, reason="")
    with pytest.raises(QueueError, match="no counted ratings yet"):
        queue_results.make_norms(queue, by=queue.owner, reason="")


def test_an_undone_rating_is_not_counted():
    queue = make_queue(items=2)
    rater = make_rater(queue, started=True)
    session.rate(rater, position=1, value=3, seconds=1)
    session.undo(rater)
    assert queue_results.list_item_means(queue) == []
    assert export_rows(queue) == []


def test_the_queue_page_shows_all_results(queue):
    html = page_text(sign_in(queue.owner).get("/ratings/queues/study/"))
    for text in ("4 of 4 items have 3 raters", "0 of 1", "thing-3", "6.67"):
        assert text in html


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_raters(django_assert_max_num_queries):
    queue = make_queue(items=5, raters_wanted=20)
    for _ in range(12):
        rate_all(make_rater(queue, started=True))
    client = sign_in(queue.owner)
    client.get("/ratings/queues/study/")
    with django_assert_max_num_queries(28):
        client.get("/ratings/queues/study/")
