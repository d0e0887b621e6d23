"""Comparison of many answers by a worker: the pages show progress, the time of the numbers, and newer data."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from grading_app.models import CachedAggregate, Grading, StoredDisagreement
from grading_app.models.gradings import allow_superseding
from grading_app.results import cached_aggregates
from grading_app.results.raters import agreement_cache, disagreements
from grading_app.results.raters import rating_selection as query_module
from grading_app.results.raters.agreement_cache import assign_roles, compare_raters
from grading_app.results.raters.rating_selection import RatingSelectionForm
from grading_app.results.raters.unit_counts import load_unit_counts
from grading_app.tasks import compute_aggregates
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings, make_scale_rubric
from tests.factories.queues import make_queue, make_rater, rate_all
from tests.factories.tampering import allow_deletions
from tests.page_text import page_text

pytestmark = pytest.mark.django_db


@pytest.fixture
def queued_tasks(monkeypatch):
    """Return the list of enqueued tasks. Requests compute nothing themselves."""
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: tasks.append((name, arguments)))
    monkeypatch.setattr(agreement_cache, "MAX_ANSWERS_PER_REQUEST", 0)
    return tasks


@pytest.fixture
def experiment():
    created, rubric, draw = make_answered_experiment(samples=3), make_scale_rubric(), random.Random(4)
    for name in ("judge-a", "judge-bb"):
        make_gradings(created, name, lambda trial: draw.choice([1, 2, 2.5, 7]), rubric=rubric)
    return created


def run_queued_tasks(queued_tasks):
    """Run all enqueued tasks, as a worker does."""
    while queued_tasks:
        name, arguments = queued_tasks.pop(0)
        assert name == "grading_app.tasks.compute_aggregates"
        compute_aggregates(*arguments)


def open_page(client, experiment, page="agreement", query=""):
    client.force_login(experiment.owner)
    return client.get(f"{reverse(f'experiment_{page}', args=[experiment.slug])}?{query}")


def read_selection(experiment, query=""):
    return RatingSelectionForm(QueryDict(query), experiment).get_selection()


@pytest.mark.slow
def test_a_page_requests_one_computation_and_shows_its_result(client, experiment, queued_tasks):
    for _ in range(2):
        page = open_page(client, experiment)
        assert page.context["result"] is None
        assert "step 1 of 3: waiting for a worker" in page.content.decode()
        assert 'hx-trigger="every 3s"' in page.content.decode()
    assert len(queued_tasks) == 1
    run_queued_tasks(queued_tasks)
    page = open_page(client, experiment)
    assert page.context["result"].report.shared == 36
    assert "Includes all ratings" in page.content.decode()
    assert 'hx-trigger="every' not in page.content.decode()
    assert queued_tasks == []


@pytest.mark.slow
def test_a_worker_computes_the_same_numbers_as_a_page(client, experiment, queued_tasks, monkeypatch):
    open_page(client, experiment)
    run_queued_tasks(queued_tasks)
    one = read_selection(experiment)
    result = open_page(client, experiment).context["result"]
    assert result == compare_raters(one, assign_roles(one, {}), load_unit_counts(one))
    CachedAggregate.objects.all().delete()
    monkeypatch.setattr(agreement_cache, "MAX_ANSWERS_PER_REQUEST", 10**6)
    assert open_page(client, experiment).context["result"] == result
    assert not CachedAggregate.objects.exists()


@pytest.mark.slow
def test_outdated_numbers_are_marked_and_recomputed(client, experiment, queued_tasks):
    open_page(client, experiment)
    run_queued_tasks(queued_tasks)
    long_ago = timezone.now() - timedelta(hours=2)
    CachedAggregate.objects.update(requested_at=long_ago, ended_at=long_ago)
    with allow_superseding():
        Grading.objects.filter(pk=Grading.objects.first().pk).update(score=4.75)
    page = open_page(client, experiment)
    assert page.context["result"] is not None
    assert "A worker is calculating newer results (step 1 of 3" in page.content.decode()
    run_queued_tasks(queued_tasks)
    page = open_page(client, experiment)
    assert "Includes all ratings" in page.content.decode()
    assert 4.75 in page.context["result"].report.confusion.categories


def test_a_steady_stream_of_ratings_does_not_cause_constant_recomputation(client, experiment, queued_tasks):
    open_page(client, experiment)
    run_queued_tasks(queued_tasks)
    with allow_superseding():
        Grading.objects.filter(pk=Grading.objects.first().pk).update(score=4.75)
    page = open_page(client, experiment)
    assert "Out of date" in page.content.decode()
    assert queued_tasks == []


@pytest.mark.slow
def test_another_choice_of_raters_is_computed_and_cached_separately(client, experiment, queued_tasks):
    first, second = experiment.grade_conditions.order_by("pk")
    open_page(client, experiment)
    run_queued_tasks(queued_tasks)
    turned = f"first=g{second.pk}&second=g{first.pk}"
    assert open_page(client, experiment, query=turned).context["result"] is None
    run_queued_tasks(queued_tasks)
    assert open_page(client, experiment, query=turned).context["result"].report.confusion.rows == f"g{second.pk}"
    assert open_page(client, experiment).context["result"].report.confusion.rows == f"g{first.pk}"
    assert queued_tasks == []


def test_a_comparison_of_deleted_raters_shows_a_message(client, experiment, queued_tasks):
    open_page(client, experiment)
    with allow_deletions():
        experiment.grade_conditions.all().delete()
    run_queued_tasks(queued_tasks)
    row = CachedAggregate.objects.get()
    assert "no longer exists" in row.problem


def test_a_failed_computation_is_reported_on_the_page(client, experiment, queued_tasks, monkeypatch):
    open_page(client, experiment)
    monkeypatch.setattr(agreement_cache, "load_unit_counts", lambda _: 1 / 0)
    row = CachedAggregate.objects.get()
    with pytest.raises(ZeroDivisionError):
        run_queued_tasks(queued_tasks)
    row.refresh_from_db()
    assert (row.step, row.problem) == ("", "the worker stopped with an error; see its log")


def test_the_computation_of_a_lost_worker_is_requested_again(client, experiment, queued_tasks):
    open_page(client, experiment)
    CachedAggregate.objects.update(requested_at=timezone.now() - cached_aggregates.CLAIM_TIMEOUT - timedelta(seconds=1))
    open_page(client, experiment)
    assert len(queued_tasks) == 2


@pytest.mark.parametrize("by", ["range", "variance"])
def test_stored_disagreements_equal_those_computed_page_by_page(experiment, queued_tasks, monkeypatch, by):
    monkeypatch.setattr(disagreements, "PAGE_SIZE", 7)
    selection = read_selection(experiment)
    row = CachedAggregate.objects.create(experiment=experiment, name="disagreements", key="x", query="")
    row.value = disagreements.store_disagreements(row, selection)
    pages = {"after": "", "before": ""}
    for way in ("after", "before"):
        while True:
            expected = disagreements.list_disagreements(selection, by=by, **pages)
            assert disagreements.list_disagreements(selection, by=by, aggregate=row, **pages) == expected
            for one in expected.disagreements:
                assert disagreements.find_position(selection, one.unit, by, row) == disagreements.find_position(
                    selection, one.unit, by
                )
            cursor = getattr(expected, way)
            if not cursor:
                break
            pages = {"after": "", "before": "", way: cursor}
        pages = {"after": "", "before": expected.before or expected.disagreements[0].cursor}
    assert row.value == disagreements.count_disagreements(selection) == StoredDisagreement.objects.count() > 14


@pytest.mark.slow
def test_the_list_of_disagreements_also_waits_for_a_worker(client, experiment, queued_tasks):
    page = open_page(client, experiment, "disagreements")
    assert "waiting for a worker" in page.content.decode()
    run_queued_tasks(queued_tasks)
    page = open_page(client, experiment, "disagreements")
    assert len(page.context["rows"]) == disagreements.PAGE_SIZE
    unit = page.context["rows"][0]["disagreement"].unit
    message = client.get(reverse("disagreement", args=["pilot", unit])).content.decode()
    assert f"Disagreement 1 of {StoredDisagreement.objects.count()}" in message


def test_old_comparisons_are_deleted_with_their_disagreements(client, experiment, queued_tasks, monkeypatch):
    monkeypatch.setattr(agreement_cache, "DISAGREEMENTS", replace(agreement_cache.DISAGREEMENTS, max_rows=1))
    for query in ("", "category=odd"):
        open_page(client, experiment, "disagreements", query)
        run_queued_tasks(queued_tasks)
    assert set(StoredDisagreement.objects.values_list("aggregate", flat=True)) == {CachedAggregate.objects.get().pk}


@pytest.mark.slow
def test_deleting_an_experiment_deletes_its_comparisons(client, experiment, queued_tasks):
    for page in ("agreement", "disagreements"):
        open_page(client, experiment, page)
        run_queued_tasks(queued_tasks)
    assert StoredDisagreement.objects.exists()
    with allow_deletions():
        experiment.runs.all().delete()
    with allow_deletions():
        type(experiment).objects.filter(pk=experiment.pk).delete()
    assert not CachedAggregate.objects.exists()
    assert not StoredDisagreement.objects.exists()


@pytest.mark.slow
@pytest.mark.parametrize("page", ["agreement", "disagreements"])
def test_the_number_of_queries_does_not_grow_with_answers(client, queued_tasks, page):
    def count_queries(slug, items):
        created, rubric = make_answered_experiment(slug, items=items), make_scale_rubric()
        for name, off in (("judge-a", 0), ("judge-bb", 1)):
            make_gradings(created, name, lambda trial, off=off: 1 + (off * trial.pk) % 5, rubric=rubric)
        open_page(client, created, page)
        run_queued_tasks(queued_tasks)
        with CaptureQueriesContext(connection) as tasks:
            assert open_page(client, created, page).status_code == 200
        return len(tasks)

    count_queries("first", 4)  # Django caches some lookups.
    assert count_queries("small", 6) == count_queries("larger", 60) <= 34


@pytest.mark.slow
def test_a_worker_compares_many_human_ratings_and_omitted_raters_are_reported(
    client, queued_tasks, experiment, monkeypatch
):
    monkeypatch.setattr(agreement_cache, "MAX_ANSWERS_PER_REQUEST", 10**6)
    valence = factories.make_dimension("valence")
    experiment.dimensions.add(valence)
    queue = make_queue(dataset=experiment.dataset, dimensions=[valence])
    for value in (2, 5, 6):
        rate_all(make_rater(queue, started=True), value=value)
    query = f"units=items:valence&rater=q{queue.pk}-{valence.pk}"
    assert len(open_page(client, experiment, query=query).context["result"].report.coverage) == 3
    assert not queued_tasks
    monkeypatch.setattr(agreement_cache, "MAX_RATINGS_PER_REQUEST", 3 * 12 - 1)
    monkeypatch.setattr(query_module, "MAX_RATERS", 2)
    open_page(client, experiment, query=query)
    run_queued_tasks(queued_tasks)
    page = open_page(client, experiment, query=query)
    assert len(page.context["result"].report.coverage) == 2
    text = page_text(page)
    assert "At most 2 raters are compared at a time; 1 selected rater is left out." in text
    assert "1 selected rater is left out" in page_text(open_page(client, experiment, "disagreements", query))
