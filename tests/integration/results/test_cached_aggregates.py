"""Cached aggregates: a page computes small values, a worker large ones, and no value looks newer than its rows."""

from dataclasses import dataclass

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evalsite.lib.text.hashing import hash_content
from grading_app.models import CachedAggregate
from grading_app.results import cached_aggregates
from grading_app.results.cached_aggregates import Aggregate, get_aggregate, get_aggregates
from grading_app.tasks import compute_aggregates
from tests.factories import make_experiment

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Total:
    """A value of plain fields."""

    total: int
    parts: tuple[int, ...]


class Rows:
    """Numbers by name, in place of a table, and an aggregate that sums them."""

    def __init__(self):
        self.numbers = {"a": (1, 2), "b": (10,)}
        self.reads = 0
        self.most_at_once = 100
        self.during = lambda: None

    def compute(self, names, tell):
        tell("adding")
        self.reads += 1
        values = [Total(sum(self.numbers[name]), self.numbers[name]) for name in names]
        self.during()
        return values

    def aggregate(self, **more):
        fields = {
            "name": "total",
            "value_type": lambda: Total,
            "dump": lambda name: name,
            "load": lambda _, name: name if name in self.numbers else None,
            "fingerprint": lambda name: hash_content(self.numbers.get(name)),
            "is_large": lambda names: sum(len(self.numbers[name]) for name in names) > self.most_at_once,
            "compute": self.compute,
            "steps": ("reading", "adding"),
        }
        return Aggregate(**(fields | more))


@pytest.fixture
def rows():
    cache.clear()
    return Rows()


@pytest.fixture
def total_aggregate(rows, monkeypatch):
    aggregate = rows.aggregate()
    monkeypatch.setattr(f"{__name__}.REGISTERED", aggregate)
    monkeypatch.setitem(cached_aggregates.AGGREGATES, "total", f"{__name__}.REGISTERED")
    return aggregate


REGISTERED = None


@pytest.fixture
def queued_tasks(monkeypatch, rows):
    """Return the list of enqueued tasks. Every value is too large for a request."""
    values = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: values.append((name, arguments)))
    rows.most_at_once = 0
    return values


def run_queued_tasks(queued_tasks):
    while queued_tasks:
        name, arguments = queued_tasks.pop(0)
        assert name == "grading_app.tasks.compute_aggregates"
        compute_aggregates(*arguments)


@pytest.fixture
def key():
    return make_experiment("pilot").pk


def test_a_small_value_is_recomputed_only_after_its_rows_change(rows, total_aggregate, key):
    for _ in range(2):
        values = get_aggregate(total_aggregate, key, "a")
        assert (values.value, values.is_fresh, values.as_of, values.is_under_way) == (
            Total(3, (1, 2)),
            True,
            None,
            False,
        )
    assert rows.reads == 1
    rows.numbers["a"] = (5,)
    assert get_aggregate(total_aggregate, key, "a").value == Total(5, (5,))
    assert not CachedAggregate.objects.exists()


def test_another_process_reads_a_small_value_that_is_shared(rows, key):
    shared = rows.aggregate(is_shared=True, max_rows=1)
    for numbers, reads in (((1, 2), 1), ((5,), 2)):
        rows.numbers["a"] = numbers
        for _ in range(2):
            cache.clear()  # The cache of another process.
            value = get_aggregate(shared, key, "a")
            assert (value.value, value.is_fresh, value.as_of) == (Total(sum(numbers), numbers), True, None)
        assert rows.reads == reads
    get_aggregate(shared, key, "b")
    assert CachedAggregate.objects.get().query == "b", "older rows than `max_rows` are deleted"


def test_several_small_values_are_read_together_in_the_order_of_the_queries(rows, total_aggregate, key):
    assert [one.value.total for one in get_aggregates(total_aggregate, key, ["b", "a"])] == [10, 3]
    assert rows.reads == 1


def test_a_large_value_is_computed_by_one_worker_and_keeps_the_time_of_its_rows(
    rows, total_aggregate, queued_tasks, key
):
    for _ in range(2):
        waiting = get_aggregate(total_aggregate, key, "a")
        assert (waiting.value, waiting.is_under_way) == (None, True)
        assert waiting.step == "1 of 3: waiting for a worker"
    assert len(queued_tasks) == 1
    run_queued_tasks(queued_tasks)
    values = get_aggregate(total_aggregate, key, "a")
    assert (values.value, values.is_fresh, values.is_under_way) == (Total(3, (1, 2)), True, False)
    assert values.as_of == CachedAggregate.objects.get().computed_at


def test_an_outdated_large_value_is_shown_with_its_time_while_a_worker_computes_the_next(
    rows, total_aggregate, queued_tasks, key
):
    get_aggregate(total_aggregate, key, "a")
    run_queued_tasks(queued_tasks)
    rows.numbers["a"] = (7,)
    CachedAggregate.objects.update(ended_at="2026-01-01T00:00Z", requested_at="2026-01-01T00:00Z")
    values = get_aggregate(total_aggregate, key, "a")
    assert (values.value.total, values.is_fresh, values.is_under_way) == (3, False, True)
    run_queued_tasks(queued_tasks)
    assert get_aggregate(total_aggregate, key, "a").value.total == 7


def test_rows_that_change_during_the_computation_outdate_the_value(rows, total_aggregate, queued_tasks, key):
    rows.during = lambda: rows.numbers.update(a=(1, 2, 3))
    get_aggregate(total_aggregate, key, "a")
    run_queued_tasks(queued_tasks)
    values = get_aggregate(total_aggregate, key, "a")
    assert (values.value.total, values.is_fresh) == (3, False)


def test_a_query_for_a_deleted_object_has_a_problem(rows, total_aggregate, queued_tasks, key):
    get_aggregate(total_aggregate, key, "a")
    del rows.numbers["a"]
    run_queued_tasks(queued_tasks)
    assert "no longer exists" in CachedAggregate.objects.get().problem


def test_a_new_version_does_not_read_values_of_the_previous_version(
    rows, total_aggregate, queued_tasks, key, monkeypatch
):
    get_aggregate(total_aggregate, key, "a")
    run_queued_tasks(queued_tasks)
    newer = rows.aggregate(version=2, value_type=lambda: int)
    assert get_aggregate(newer, key, "a").value is None


def test_the_number_of_queries_does_not_grow_with_values(rows, total_aggregate, queued_tasks, key):
    rows.numbers |= {str(n): (n,) for n in range(20)}
    many = [str(n) for n in range(20)]

    def count_queries(names):
        with CaptureQueriesContext(connection) as values:
            assert all(one.value for one in get_aggregates(total_aggregate, key, names))
        return len(values)

    get_aggregates(total_aggregate, key, [*many, "a"])
    run_queued_tasks(queued_tasks)
    assert count_queries(many) == count_queries(["a"]) == 1
