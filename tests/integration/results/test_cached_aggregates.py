"""Cached aggregates: a page computes small values, a worker large ones, and no value looks newer than its rows."""

from dataclasses import dataclass

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evalsite.lib.text.hashing import content_hash
from grading_app.models import CachedAggregate
from grading_app.reports import cached_aggregates
from grading_app.reports.cached_aggregates import Aggregate, get_aggregate, get_aggregates
from grading_app.tasks import compute_aggregates
from tests.factories import make_experiment

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Total:
    """A value made of plain fields."""

    total: int
    parts: tuple[int, ...]


class Rows:
    """Numbers by name, as a table would hold them, and an aggregate that adds them up."""

    def __init__(self):
        self.numbers = {"a": (1, 2), "b": (10,)}
        self.reads = 0
        self.most_at_once = 100
        self.during = lambda: None

    def compute(self, names, tell):
        tell("adding")
        self.reads += 1
        found = [Total(sum(self.numbers[name]), self.numbers[name]) for name in names]
        self.during()
        return found

    def aggregate(self, **more):
        fields = {
            "name": "total",
            "value_type": lambda: Total,
            "dump": lambda name: name,
            "load": lambda _, name: name if name in self.numbers else None,
            "fingerprint": lambda name: content_hash(self.numbers.get(name)),
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
def total(rows, monkeypatch):
    made = rows.aggregate()
    monkeypatch.setattr(f"{__name__}.REGISTERED", made)
    monkeypatch.setitem(cached_aggregates.AGGREGATES, "total", f"{__name__}.REGISTERED")
    return made


REGISTERED = None


@pytest.fixture
def asked(monkeypatch, rows):
    """What was asked of workers. Nothing is small."""
    found = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: found.append((name, arguments)))
    rows.most_at_once = 0
    return found


def work(asked):
    while asked:
        name, arguments = asked.pop(0)
        assert name == "grading_app.tasks.compute_aggregates"
        compute_aggregates(*arguments)


@pytest.fixture
def key():
    return make_experiment("pilot").pk


def test_a_small_value_is_recomputed_only_after_its_rows_change(rows, total, key):
    for _ in range(2):
        found = get_aggregate(total, key, "a")
        assert (found.value, found.is_fresh, found.as_of, found.is_under_way) == (Total(3, (1, 2)), True, None, False)
    assert rows.reads == 1
    rows.numbers["a"] = (5,)
    assert get_aggregate(total, key, "a").value == Total(5, (5,))
    assert not CachedAggregate.objects.exists()


def test_several_small_values_are_read_together_in_the_order_of_the_queries(rows, total, key):
    assert [one.value.total for one in get_aggregates(total, key, ["b", "a"])] == [10, 3]
    assert rows.reads == 1


def test_a_large_value_is_computed_by_one_worker_and_keeps_the_time_of_its_rows(rows, total, asked, key):
    for _ in range(2):
        waiting = get_aggregate(total, key, "a")
        assert (waiting.value, waiting.is_under_way) == (None, True)
        assert waiting.step == "1 of 3: waiting for a worker"
    assert len(asked) == 1
    work(asked)
    found = get_aggregate(total, key, "a")
    assert (found.value, found.is_fresh, found.is_under_way) == (Total(3, (1, 2)), True, False)
    assert found.as_of == CachedAggregate.objects.get().computed_at


def test_an_outdated_large_value_is_shown_with_its_time_while_a_worker_computes_the_next(rows, total, asked, key):
    get_aggregate(total, key, "a")
    work(asked)
    rows.numbers["a"] = (7,)
    CachedAggregate.objects.update(ended_at="2026-01-01T00:00Z", asked_at="2026-01-01T00:00Z")
    found = get_aggregate(total, key, "a")
    assert (found.value.total, found.is_fresh, found.is_under_way) == (3, False, True)
    work(asked)
    assert get_aggregate(total, key, "a").value.total == 7


def test_rows_that_change_during_the_computation_outdate_the_value(rows, total, asked, key):
    rows.during = lambda: rows.numbers.update(a=(1, 2, 3))
    get_aggregate(total, key, "a")
    work(asked)
    found = get_aggregate(total, key, "a")
    assert (found.value.total, found.is_fresh) == (3, False)


def test_a_query_for_a_deleted_object_has_a_problem(rows, total, asked, key):
    get_aggregate(total, key, "a")
    del rows.numbers["a"]
    work(asked)
    assert "no longer exists" in CachedAggregate.objects.get().problem


def test_a_new_version_does_not_read_values_of_the_previous_version(rows, total, asked, key, monkeypatch):
    get_aggregate(total, key, "a")
    work(asked)
    newer = rows.aggregate(version=2, value_type=lambda: int)
    assert get_aggregate(newer, key, "a").value is None


def test_the_number_of_queries_does_not_grow_with_values(rows, total, asked, key):
    rows.numbers |= {str(n): (n,) for n in range(20)}
    many = [str(n) for n in range(20)]

    def queries(names):
        with CaptureQueriesContext(connection) as found:
            assert all(one.value for one in get_aggregates(total, key, names))
        return len(found)

    get_aggregates(total, key, [*many, "a"])
    work(asked)
    assert queries(many) == queries(["a"]) == 1
