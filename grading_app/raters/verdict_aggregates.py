"""Cached aggregates over the verdicts of one grade condition, valid until a relevant verdict is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from evalsite.lib.text.hashing import hash_content
from grading_app.models import GradeCondition, Grading, Preference
from grading_app.results.cached_aggregates import Aggregate, Cached, StepReporter, get_aggregates
from runs_app.models import Experiment

ValueT = TypeVar("ValueT")
GradeConditions = Sequence[GradeCondition]
"""All grade conditions of an experiment."""

VERSION = 5  # Increase it when the same verdicts give another value.
MAX_VERDICTS_PER_REQUEST = 10_000
"""The maximum number of verdicts that are summed while the page waits: 10 ms, 100 with answer lengths, 200 in pairs."""


@dataclass(frozen=True, slots=True)
class VerdictQuery:
    """The verdicts of one condition, among all conditions of its experiment."""

    condition: GradeCondition
    among: GradeConditions


def make_verdict_aggregate(
    name: str,
    value_type: Any,
    compute_values: Callable[[Sequence[GradeCondition], GradeConditions], Mapping[int, ValueT]],
    list_sources: Callable[[GradeCondition, GradeConditions], Collection[int]],
) -> Aggregate[VerdictQuery, ValueT]:
    """Return an aggregate over verdicts.

    compute_values: return the values of these conditions by their keys.
    list_sources: return the keys of the conditions whose verdicts enter the value of one condition.
    """

    def fingerprint(query: VerdictQuery) -> str:
        changes = {condition.pk: condition.changes for condition in query.among}
        return hash_content(sorted((pk, changes.get(pk, 0)) for pk in list_sources(query.condition, query.among)))

    def is_large(queries: Sequence[VerdictQuery]) -> bool:
        # Counting stops at MAX_VERDICTS_PER_REQUEST.
        conditions = {pk for query in queries for pk in list_sources(query.condition, query.among)}
        verdicts = (model.objects.filter(condition__in=conditions).order_by() for model in (Grading, Preference))
        return sum(rows[: MAX_VERDICTS_PER_REQUEST + 1].count() for rows in verdicts) > MAX_VERDICTS_PER_REQUEST

    def compute(queries: Sequence[VerdictQuery], _: StepReporter) -> list[ValueT]:
        values = compute_values([query.condition for query in queries], queries[0].among)
        return [values[query.condition.pk] for query in queries]

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


def get_aggregates_by_condition(
    aggregate: Aggregate[VerdictQuery, ValueT], conditions: Sequence[GradeCondition], among: GradeConditions
) -> dict[int, Cached[ValueT]]:
    """Return the values of these conditions by their keys. among: all conditions of their experiment."""
    if not conditions:
        return {}
    queries = [VerdictQuery(condition, among) for condition in conditions]
    values = get_aggregates(aggregate, conditions[0].experiment_id, queries)
    return {query.condition.pk: value for query, value in zip(queries, values, strict=True)}


def _load(experiment: Experiment, key: int) -> VerdictQuery | None:
    among = list(experiment.grade_conditions.select_related("rubric").order_by("pk"))
    condition = next((candidate for candidate in among if candidate.pk == key), None)
    return VerdictQuery(condition, among) if condition else None
