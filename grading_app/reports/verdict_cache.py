"""Sums over verdicts: few are added up at once and cached; for many, a worker's last result is shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.cache import cache
from django.db.models import Q
from django.utils import timezone

from evalsite.lib.text.hashing import content_hash
from grading_app.models import GradeCondition, Grading, Preference, Sums
from grading_app.reports.background_results import claimed, tell

T = TypeVar("T")
Among = Sequence[GradeCondition]
"""All grade conditions of an experiment."""

WORK_OUT = "grading_app.tasks.work_out_sums"
ADDING_UP = "adding up"
VERSION = 2  # Increase it when the same verdicts are added up differently.
KEPT_SECONDS = 24 * 3600
MOST_AT_ONCE = 10_000
"""So many verdicts are added up while the page waits: 10 ms, but 100 with their answers' lengths, 200 in pairs."""


@dataclass(frozen=True, slots=True)
class Aggregate(Generic[T]):
    """One kind of sum over verdicts. kind: the class of the result, made of plain fields.

    read: returns the results of some grade conditions by their keys, given all conditions of the experiment.
    rests_on: returns the keys of the conditions whose verdicts enter the result of one condition.
    """

    name: str
    kind: Callable[[GradeCondition], Any]
    read: Callable[[Sequence[GradeCondition], Among], Mapping[int, T]]
    rests_on: Callable[[GradeCondition, Among], Collection[int]]


@dataclass(frozen=True, slots=True)
class CachedAggregate(Generic[T]):
    """The sum of one grade condition.

    value: None before the first result. row: the row with a worker's result; None if everything was added up at once.
    is_fresh: True if no verdict was written since.
    """

    value: T | None
    row: Sums | None = None
    is_fresh: bool = True

    @property
    def is_under_way(self) -> bool:
        return bool(self.row and self.row.step)


def kept(part: Aggregate[T], conditions: Sequence[GradeCondition], among: Among) -> dict[int, CachedAggregate[T]]:
    """Return the sums by the keys of these conditions, in a constant number of queries.

    `among` are all conditions of the experiment. A missing or outdated sum is computed now if few verdicts count.
    Otherwise a worker is asked for it.
    """
    states = {one.pk: state_of(part, one, among) for one in conditions}
    found = _at_hand(part, states)
    rows = {row.condition_id: row for row in _rows(part, [pk for pk in states if pk not in found])}
    fresh = {pk for pk, row in rows.items() if row.state == states[pk]}
    stale = [one for one in conditions if one.pk not in found and one.pk not in fresh]
    if stale and not _are_many({pk for one in stale for pk in part.rests_on(one, among)}):
        read = part.read(stale, among)
        cache.set_many({_key(part, pk, states[pk]): value for pk, value in read.items()}, KEPT_SECONDS)
        return (
            found | _of_rows(part, conditions, rows, fresh) | {pk: CachedAggregate(value) for pk, value in read.items()}
        )
    if stale:
        rows |= _asked(part, stale)
    return found | _of_rows(part, conditions, rows, fresh)


def state_of(part: Aggregate[Any], condition: GradeCondition, among: Among) -> str:
    """Return a text that changes whenever a verdict that counts is written."""
    changes = {one.pk: one.changes for one in among}
    counted = sorted((pk, changes.get(pk, 0)) for pk in part.rests_on(condition, among))
    return content_hash([VERSION, part.name, counted])


def read_by_worker(row: Sums, part: Aggregate[Any], among: Among) -> str:
    """Add up and store the sum. Verdicts written meanwhile outdate it. Return the reason for no result, or ""."""
    condition = next(one for one in among if one.pk == row.condition_id)
    state, read_at = state_of(part, condition, among), timezone.now()
    tell(row, ADDING_UP)
    result = _adapter(part, condition).dump_python(part.read([condition], among)[condition.pk], mode="json")
    Sums.objects.filter(pk=row.pk).update(result=result, state=state, computed_at=read_at)
    return ""


def _at_hand(part: Aggregate[T], states: Mapping[int, str]) -> dict[int, CachedAggregate[T]]:
    keys = {_key(part, pk, state): pk for pk, state in states.items()}
    return {keys[key]: CachedAggregate(value) for key, value in cache.get_many(keys).items()}


def _key(part: Aggregate[Any], condition: int, state: str) -> str:
    return f"sums:{part.name}:{condition}:{state}"


def _rows(part: Aggregate[Any], conditions: Collection[int]) -> list[Sums]:
    return list(Sums.objects.filter(part=part.name, condition__in=conditions)) if conditions else []


def _are_many(conditions: Collection[int]) -> bool:
    """Return True for more than MOST_AT_ONCE verdicts; counting stops there."""
    said = (model.objects.filter(condition__in=conditions).order_by() for model in (Grading, Preference))
    return sum(rows[: MOST_AT_ONCE + 1].count() for rows in said) > MOST_AT_ONCE


def _asked(part: Aggregate[Any], stale: Sequence[GradeCondition]) -> dict[int, Sums]:
    from django_q.tasks import async_task

    Sums.objects.bulk_create([Sums(condition=one, part=part.name) for one in stale], ignore_conflicts=True)
    rows = Sums.objects.filter(part=part.name, condition__in=stale)
    if keys := claimed(rows, at_once=Q(computed_at=None, problem="")):
        async_task(WORK_OUT, keys)
    return {row.condition_id: row for row in rows.all()}


def _of_rows(
    part: Aggregate[T], conditions: Sequence[GradeCondition], rows: Mapping[int, Sums], fresh: Collection[int]
) -> dict[int, CachedAggregate[T]]:
    shown = [(one, rows[one.pk]) for one in conditions if one.pk in rows]
    return {one.pk: CachedAggregate(_value(part, one, row), row, one.pk in fresh) for one, row in shown}


def _value(part: Aggregate[T], condition: GradeCondition, row: Sums) -> T | None:
    if row.result is None:
        return None
    value: T = _adapter(part, condition).validate_python(row.result)
    return value


def _adapter(part: Aggregate[Any], condition: GradeCondition) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(part.kind(condition))
