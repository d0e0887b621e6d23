"""Cached aggregates: values over many rows, computed during the request if the rows are few, else by a worker.

To add one:

1. Define a module constant `NAME = Aggregate(...)` beside its computation, and list it in `AGGREGATES` below. Over
   answers or verdicts, use `make_answer_aggregate` or `make_verdict_aggregate`.
2. Call `get_aggregate(NAME, experiment.pk, query)` in the view. It returns a `Cached`: the value, its time, and whether
   a worker computes a newer one.
3. Include `grading_app/partials/aggregate_state.html` in the template, with `cached` as the result.

A value is valid while its fingerprint is that of the rows. A fingerprint is read from counters, in a constant number of
queries. Rows that change during the computation outdate the value. The cache of this process holds small values, and
one `CachedAggregate` row for each query holds the last large value. An outdated large value is shown with its time
while a worker computes the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.core.cache import cache
from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, Q, QuerySet, Value
from django.db.models.functions import Greatest
from django.utils import timezone
from django.utils.module_loading import import_string

from evalsite.lib.text.hashing import content_hash
from grading_app.models import CachedAggregate
from runs_app.models import Experiment

QueryT = TypeVar("QueryT")
ValueT = TypeVar("ValueT")
# By name: where a worker finds them. They are imported only when needed, because some need numpy.
AGGREGATES = {
    "analysis": "grading_app.analysis.stored.ANALYSIS",
    "item_scores": "grading_app.reports.stored_scores.ITEM_SCORES",
    "scores": "grading_app.reports.verdict_stats.SCORES",
    "lengths": "grading_app.reports.length_bias.LENGTHS",
    "pairs": "grading_app.reports.pairwise_stats.PAIRS",
    "leaderboard": "grading_app.reports.leaderboard.LEADERBOARD",
    "results": "grading_app.reports.stored_results.RESULTS",
    "agreement": "grading_app.comparison.agreement_cache.AGREEMENT",
    "disagreements": "grading_app.comparison.agreement_cache.DISAGREEMENTS",
    "point_counts": "grading_app.surfaces.point_counts.POINT_COUNTS",
    "report": "grading_app.study_report.build.REPORT",
    "answer_lengths": "grading_app.surfaces.answer_lengths.ANSWER_LENGTHS",
    "answer_texts": "grading_app.surfaces.answer_texts.ANSWER_TEXTS",
}
TASK = "grading_app.tasks.compute_aggregates"
KEPT_SECONDS = 24 * 3600
WAITING = "waiting for a worker"
WORKER_FAILED = "the worker gave up; its log says why"
QUERY_INVALID = "something that was chosen is not there any more"
# While rows change, wait at least PAUSE_S seconds, or PAUSE_SHARE times the last duration.
PAUSE_S, PAUSE_SHARE = 30.0, 10.0
LOST_AFTER = timedelta(minutes=15)
StepReporter = Callable[[str], None]
"""Reports the present step of a computation."""


@dataclass(frozen=True, slots=True)
class Aggregate(Generic[QueryT, ValueT]):
    """One kind of aggregate. A query says what to aggregate, for example a grade condition or a choice of raters.

    value_type: the type of a value for pydantic, made of plain dataclasses.
    dump, load: a query as JSON, and back. `load` returns None if something that it names is gone.
    fingerprint: a text that changes whenever a row that counts changes.
    is_large: True if the rows of these queries are too many for a request.
    compute: the values of these queries, in their order.
    version: increase it when the same rows give another value.
    steps: the steps that `compute` reports; the first one is reported for it.
    kept: how many rows stay for each experiment, the most recently computed ones; None for all.
    write: stores further rows that belong to the cached row, in the transaction that stores the value.
    """

    name: str
    value_type: Callable[[], Any]
    dump: Callable[[QueryT], Any]
    load: Callable[[Experiment, Any], QueryT | None]
    fingerprint: Callable[[QueryT], str]
    is_large: Callable[[Sequence[QueryT]], bool]
    compute: Callable[[Sequence[QueryT], StepReporter], Sequence[ValueT]]
    version: int = 1
    steps: tuple[str, ...] = ("computing",)
    kept: int | None = None
    write: Callable[[CachedAggregate, QueryT], ValueT] | None = None

    def key(self, query: QueryT) -> str:
        return content_hash([self.name, self.version, self.dump(query)])


@dataclass(frozen=True, slots=True)
class Cached(Generic[ValueT]):
    """The last value of a query.

    value: None before the first result. fingerprint: of the rows behind the value. is_fresh: True if no row that counts
    changed since. row: the stored row; None if the value was computed during a request.
    """

    value: ValueT | None
    fingerprint: str
    is_fresh: bool = True
    row: CachedAggregate | None = None
    steps: tuple[str, ...] = ()

    @property
    def as_of(self) -> datetime | None:
        """Return when the rows behind the value were read; None if that was during the request."""
        return self.row.computed_at if self.row else None

    @property
    def is_under_way(self) -> bool:
        """Return whether a worker was asked for a newer value."""
        return bool(self.row and self.row.step)

    @property
    def step(self) -> str:
        """Return a text such as `2 of 3: measuring`."""
        all_steps = (WAITING, *self.steps)
        step = self.row.step if self.row else ""
        return f"{all_steps.index(step) + 1} of {len(all_steps)}: {step}" if step in all_steps else ""


def get_aggregate(aggregate: Aggregate[QueryT, ValueT], experiment_id: int, query: QueryT) -> Cached[ValueT]:
    """Return the value of one query. Compute it now if it is missing and small; else ask a worker."""
    return get_aggregates(aggregate, experiment_id, [query])[0]


def get_aggregates(
    aggregate: Aggregate[QueryT, ValueT], experiment_id: int, queries: Sequence[QueryT]
) -> list[Cached[ValueT]]:
    """Return the values of several queries in their order. The number of SQL queries is constant."""
    return get_aggregates_across(aggregate, [(experiment_id, query) for query in queries])


def get_aggregates_across(
    aggregate: Aggregate[QueryT, ValueT], queries_by_experiment: Sequence[tuple[int, QueryT]]
) -> list[Cached[ValueT]]:
    """Return the values of queries over several experiments, each with its experiment's key, in their order.

    The number of SQL queries is constant if `fingerprint` and `is_large` read nothing.
    """
    keys = [aggregate.key(query) for _, query in queries_by_experiment]
    by_key = {key: query for key, (_, query) in zip(keys, queries_by_experiment, strict=True)}
    experiments = {key: experiment for key, (experiment, _) in zip(keys, queries_by_experiment, strict=True)}
    prints = {key: aggregate.fingerprint(query) for key, query in by_key.items()}
    found = _load_from_memory(prints)
    rows = _load_rows(aggregate, experiments, [key for key in by_key if key not in found])
    fresh = {key for key, row in rows.items() if row.computed_at and row.fingerprint == prints[key]}
    stale = [key for key in by_key if key not in found and key not in fresh]
    if stale and not aggregate.is_large([by_key[key] for key in stale]):
        values = aggregate.compute([by_key[key] for key in stale], lambda _: None)
        new = dict(zip(stale, values, strict=True))
        cache.set_many({_memory_key(key, prints[key]): value for key, value in new.items()}, KEPT_SECONDS)
        found |= {key: Cached(value, prints[key]) for key, value in new.items()}
    elif stale:
        rows |= _request(aggregate, experiments, {key: by_key[key] for key in stale})
    stored = {key: _decode_row(aggregate, row, key in fresh) for key, row in rows.items()}
    return [(stored | found)[key] for key in keys]


def _load_from_memory(prints: Mapping[str, str]) -> dict[str, Cached[Any]]:
    keys = {_memory_key(key, fingerprint): key for key, fingerprint in prints.items()}
    return {keys[name]: Cached(value, prints[keys[name]]) for name, value in cache.get_many(keys).items()}


def _memory_key(key: str, fingerprint: str) -> str:
    return f"aggregate:{key}:{fingerprint}"


def _load_rows(
    aggregate: Aggregate[Any, Any], experiments: Mapping[str, int], keys: Sequence[str]
) -> dict[str, CachedAggregate]:
    if not keys:
        return {}
    wanted = {experiments[key] for key in keys}
    rows = CachedAggregate.objects.filter(experiment__in=wanted, name=aggregate.name, key__in=keys)
    return {row.key: row for row in rows}


def _decode_row(aggregate: Aggregate[Any, ValueT], row: CachedAggregate, is_fresh: bool) -> Cached[ValueT]:
    value = None if row.computed_at is None else _make_adapter(aggregate).validate_python(row.value)
    return Cached(value, row.fingerprint, is_fresh, row, aggregate.steps)


def _make_adapter(aggregate: Aggregate[Any, Any]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(aggregate.value_type())


def _request(
    aggregate: Aggregate[QueryT, Any], experiments: Mapping[str, int], queries: Mapping[str, QueryT]
) -> dict[str, CachedAggregate]:
    """Ask one worker for these values, unless another one is at them. Return their rows."""
    from django_q.tasks import async_task

    new = [
        CachedAggregate(experiment_id=experiments[key], name=aggregate.name, key=key, query=aggregate.dump(query))
        for key, query in queries.items()
    ]
    CachedAggregate.objects.bulk_create(new, ignore_conflicts=True)
    wanted = {experiments[key] for key in queries}
    rows = CachedAggregate.objects.filter(experiment__in=wanted, name=aggregate.name, key__in=queries)
    if keys := claim_rows(rows):
        async_task(TASK, keys)
    return {row.key: row for row in rows.all()}


def claim_rows(rows: QuerySet[CachedAggregate]) -> list[int]:
    """Claim the rows that need a worker, and return their keys. Concurrent callers claim different rows.

    Only one worker computes a row at a time. After a result there is a pause, because rows may keep changing. A first
    result does not wait for it.
    """
    now = timezone.now()
    is_idle = Q(asked_at=None) | Q(ended_at__gte=F("asked_at")) | Q(asked_at__lt=now - LOST_AFTER)
    pause = Greatest(Value(PAUSE_S), PAUSE_SHARE * F("took_s")) * Value(timedelta(seconds=1))
    rested_at = ExpressionWrapper(F("ended_at") + pause, output_field=DateTimeField())
    has_rested = Q(ended_at=None) | Q(rested_at__lt=now) | Q(computed_at=None, problem="")
    with transaction.atomic():
        due = rows.annotate(rested_at=rested_at).filter(is_idle, has_rested)
        keys = list(due.select_for_update(skip_locked=True).values_list("pk", flat=True))
        CachedAggregate.objects.filter(pk__in=keys).update(asked_at=now, step=WAITING, problem="")
    return keys


def compute_rows(keys: Sequence[int], *, seconds: float) -> list[int]:
    """Compute these rows, at least one, until the time is over. Return the keys that are left."""
    end = time.monotonic() + seconds
    for at, key in enumerate(keys):
        if at and time.monotonic() >= end:
            return list(keys[at:])
        row = CachedAggregate.objects.select_related("experiment").filter(pk=key).first()
        if row is not None:
            _compute(row)
    return []


def _compute(row: CachedAggregate) -> None:
    """Compute one row, and store the end of the work even if it fails."""
    started, problem = time.monotonic(), WORKER_FAILED
    aggregate: Aggregate[Any, Any] = import_string(AGGREGATES[row.name])
    try:
        query = aggregate.load(row.experiment, row.query)
        if query is not None:
            _store(aggregate, row, query)
        problem = QUERY_INVALID if query is None else ""
    finally:
        _update(row, ended_at=timezone.now(), step="", problem=problem, took_s=time.monotonic() - started)
    if aggregate.kept is not None:
        _delete_old_rows(aggregate, row.experiment)


def _store(aggregate: Aggregate[QueryT, Any], row: CachedAggregate, query: QueryT) -> None:
    fingerprint, read_at = aggregate.fingerprint(query), timezone.now()
    _update(row, step=aggregate.steps[0])
    with transaction.atomic() if aggregate.write else nullcontext():
        if aggregate.write:
            value = aggregate.write(row, query)
        else:
            (value,) = aggregate.compute([query], lambda step: _update(row, step=step))
        stored = _make_adapter(aggregate).dump_python(value, mode="json")
        _update(row, value=stored, fingerprint=fingerprint, computed_at=read_at)


def _delete_old_rows(aggregate: Aggregate[Any, Any], experiment: Experiment) -> None:
    """Delete all but the last values, because other rows may belong to each."""
    rows = CachedAggregate.objects.filter(experiment=experiment, name=aggregate.name)
    ended = rows.filter(computed_at__isnull=False, step="").order_by("-ended_at").values_list("pk", flat=True)
    for old in ended[aggregate.kept :]:
        CachedAggregate.objects.filter(pk=old).delete()


def _update(row: CachedAggregate, **columns: Any) -> None:
    CachedAggregate.objects.filter(pk=row.pk).update(**columns)
