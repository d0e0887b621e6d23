"""Aggregates over the verdicts of one grade condition, cached until a verdict that counts is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from evalsite.lib.text.hashing import content_hash
from grading_app.models import GradeCondition, Grading, Preference
from grading_app.reports.cached_aggregates import Aggregate, Cached, get_aggregates
from runs_app.models import Experiment

ValueT = TypeVar("ValueT")
GradeConditions = Sequence[GradeCondition]
"""All grade conditions of an experiment."""

VERSION = 3  # Increase it when the same verdicts are added up differently.
MOST_AT_ONCE = 10_000
"""The maximum number of verdicts that are summed while the page waits: 10 ms, 100 with answer lengths, 200 in pairs."""


@dataclass(frozen=True, slots=True)
class VerdictQuery:
    """The verdicts of one condition, among all conditions of its experiment."""

    condition: GradeCondition
    among: GradeConditions


def make_verdict_aggregate(
    name: str,
    value_type: Any,
    read: Callable[[Sequence[GradeCondition], GradeConditions], Mapping[int, ValueT]],
    rests_on: Callable[[GradeCondition, GradeConditions], Collection[int]],
) -> Aggregate[VerdictQuery, ValueT]:
    """Return an aggregate over verdicts.

    `read` returns the values of some conditions by their keys. `rests_on` returns the keys of the conditions whose
    verdicts enter the value of one condition.
    """

    def fingerprint(query: VerdictQuery) -> str:
        changes = {one.pk: one.changes for one in query.among}
        return content_hash(sorted((pk, changes.get(pk, 0)) for pk in rests_on(query.condition, query.among)))

    def is_large(queries: Sequence[VerdictQuery]) -> bool:
        return _has_many_verdicts({pk for query in queries for pk in rests_on(query.condition, query.among)})

    def compute(queries: Sequence[VerdictQuery], _tell: Any) -> list[ValueT]:
        read_ = read([query.condition for query in queries], queries[0].among)
        return [read_[query.condition.pk] for query in queries]

    return Aggregate(
        name=name,
        value_type=lambda: value_type,
        dump=lambda query: query.condition.pk,
        load=_load,
        fingerprint=fingerprint,
        is_large=is_large,
        compute=compute,
        version=VERSION,
        steps=("adding up",),
    )


def get_by_condition(
    aggregate: Aggregate[VerdictQuery, ValueT], conditions: Sequence[GradeCondition], among: GradeConditions
) -> dict[int, Cached[ValueT]]:
    """Return the values of these conditions by their keys. `among` are all conditions of their experiment."""
    if not conditions:
        return {}
    queries = [VerdictQuery(condition, among) for condition in conditions]
    found = get_aggregates(aggregate, conditions[0].experiment_id, queries)
    return {query.condition.pk: value for query, value in zip(queries, found, strict=True)}


def _load(experiment: Experiment, key: int) -> VerdictQuery | None:
    among = list(experiment.grade_conditions.select_related("rubric").order_by("pk"))
    condition = next((one for one in among if one.pk == key), None)
    return VerdictQuery(condition, among) if condition else None


def _has_many_verdicts(conditions: Collection[int]) -> bool:
    """Return True for more than MOST_AT_ONCE verdicts; counting stops there."""
    verdicts = (model.objects.filter(condition__in=conditions).order_by() for model in (Grading, Preference))
    return sum(rows[: MOST_AT_ONCE + 1].count() for rows in verdicts) > MOST_AT_ONCE
