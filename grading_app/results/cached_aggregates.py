"""Cached aggregates: values over many rows, computed during the request if the rows are few, else by a worker.

To add one:

1. Define a module constant `NAME = Aggregate(...)` beside its computation, and list it in `AGGREGATES` below. For
   answers or verdicts, use `make_answer_aggregate` or `make_verdict_aggregate`.
2. Call `get_aggregate(NAME, experiment.pk, query)` in the view. It returns a `Cached`: the value, its time, and whether
   a worker is computing a newer one.
3. Include `grading_app/partials/aggregate_state.html` in the template, with `cached` as the result.

A value is valid while its fingerprint equals the fingerprint of the rows. Fingerprints are read from counters, in a
constant number of queries. If rows change during the computation, the value is out of date at once. Django's cache
holds small values, in each process. One `CachedAggregate` row for each query holds the last large value. It also holds
the last small one if the aggregate is shared, or if a worker computed it in `store_all_values`. Pages show an outdated
large value with its time while a worker computes the next one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from django.core.cache import cache
from django.db import OperationalError, transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, Max, Q, QuerySet, Sum, Value
from django.db.models.functions import Greatest
from django.utils import timezone
from django.utils.module_loading import import_string

from evalsite.lib.text.hashing import hash_content
from grading_app.models import CachedAggregate, GradeCondition
from runs_app.models import Experiment, Point, Run, Wave

QueryT = TypeVar("QueryT")
ValueT = TypeVar("ValueT")
# Import paths by name, for workers. The modules are imported only when needed, because some need numpy.
AGGREGATES = {
    "analysis": "grading_app.results.analysis.stored.ANALYSIS",
    "item_scores": "grading_app.results.stored_results.ITEM_SCORES",
    "scores": "grading_app.results.raters.verdict_stats.SCORES",
    "judge_checks": "grading_app.results.raters.judge_checks.JUDGE_CHECKS",
    "lengths": "grading_app.results.raters.length_bias.LENGTHS",
    "pairs": "grading_app.results.raters.pairwise_stats.PAIRS",
    "results": "grading_app.results.stored_results.RESULTS",
    "row_counts": "grading_app.results.status_report.ROW_COUNTS",
    "calibration": "grading_app.results.figures.calibration.CALIBRATION",
    "agreement": "grading_app.results.raters.agreement_cache.AGREEMENT",
    "disagreements": "grading_app.results.raters.agreement_cache.DISAGREEMENTS",
    "point_counts": "grading_app.results.parametric.point_counts.POINT_COUNTS",
    "report": "grading_app.publish.report.build.REPORT",
    "answer_lengths": "grading_app.results.parametric.answer_views.ANSWER_LENGTHS",
    "answer_texts": "grading_app.results.parametric.answer_texts.ANSWER_TEXTS",
}
TASK = "grading_app.tasks.compute_aggregates"
CACHE_SECONDS = 24 * 3600
WAITING = "waiting for a worker"
WORKER_FAILED = "the worker stopped with an error; see its log"
QUERY_INVALID = "a selected rater, condition or wave no longer exists"
# While rows change, pause between two computations: PAUSE_FACTOR times the last duration, but at least MIN_PAUSE_S.
MIN_PAUSE_S, PAUSE_FACTOR = 30.0, 10.0
CLAIM_TIMEOUT = timedelta(minutes=15)
_stores_all = ContextVar("_stores_all", default=False)  # True within `store_all_values`.
StepReporter = Callable[[str], None]
"""Reports the current step of a computation."""
MAX_ANSWERS_PER_REQUEST = 20_000
"""The maximum number of answers that are summed while the page waits, about 50 ms."""
RESULTS_VERSION = 9  # Increase it when figures look different or show other numbers. This outdates browsers' copies.


@dataclass(frozen=True, slots=True)
class Aggregate(Generic[QueryT, ValueT]):
    """One kind of aggregate. A query selects what to aggregate, for example a grade condition or a set of raters.

    value_type: return the type of a value for pydantic, made of plain dataclasses.
    dump, load: convert a query to JSON and back. `load` returns None if an object that the query names was deleted.
    fingerprint: return a text that changes whenever a relevant row changes.
    is_large: return True if the rows of these queries are too many for a request.
    compute: return the values of these queries, in their order.
    version: increase it when the same rows give another value.
    steps: the steps that `compute` reports. The first one is reported before `compute` is called.
    max_rows: how many rows to keep for each experiment, the most recently computed ones; None for all.
    write: compute the value and store further rows that belong to the cached row, in one transaction.
    is_shared: store small values, too, so that other web processes need not compute them.
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
    max_rows: int | None = None
    write: Callable[[CachedAggregate, QueryT], ValueT] | None = None
    is_shared: bool = False

    def key(self, query: QueryT) -> str:
        return hash_content([self.name, self.version, self.dump(query)])


@dataclass(frozen=True, slots=True)
class Cached(Generic[ValueT]):
    """The last value of a query.

    value: None before the first result. fingerprint: of the rows behind the value. is_fresh: True if no relevant row
    has changed since. row: the stored row; None if the value was computed during a request.
    """

    value: ValueT | None
    fingerprint: str
    is_fresh: bool = True
    row: CachedAggregate | None = None
    steps: tuple[str, ...] = ()

    @property
    def as_of(self) -> datetime | None:
        """The time at which the rows behind the value were read; None if this request read them."""
        return self.row.computed_at if self.row else None

    @property
    def is_under_way(self) -> bool:
        """True while a worker is to compute a newer value."""
        return bool(self.row and self.row.step)

    @property
    def step(self) -> str:
        """The current step, such as `2 of 3: measuring`; empty if no worker is to compute a value."""
        steps = (WAITING, *self.steps)
        step = self.row.step if self.row else ""
        return f"{steps.index(step) + 1} of {len(steps)}: {step}" if step in steps else ""


def get_aggregate(aggregate: Aggregate[QueryT, ValueT], experiment_id: int, query: QueryT) -> Cached[ValueT]:
    """Return the value of one query. If it is missing, compute it now if it is small; otherwise enqueue it."""
    return get_aggregates(aggregate, experiment_id, [query])[0]


def get_aggregates(
    aggregate: Aggregate[QueryT, ValueT], experiment_id: int, queries: Sequence[QueryT]
) -> list[Cached[ValueT]]:
    """Return the values of several queries in their order. The number of SQL queries is constant."""
    return get_aggregates_across(aggregate, [(experiment_id, query) for query in queries])


def get_aggregates_across(
    aggregate: Aggregate[QueryT, ValueT], queries_by_experiment: Sequence[tuple[int, QueryT]]
) -> list[Cached[ValueT]]:
    """Return the values of queries over several experiments, in their order.

    Each query comes with the primary key of its experiment. The number of SQL queries is constant if `fingerprint` and
    `is_large` read nothing.
    """
    keys = [aggregate.key(query) for _, query in queries_by_experiment]
    by_key = {key: query for key, (_, query) in zip(keys, queries_by_experiment, strict=True)}
    experiment_ids = {key: experiment_id for key, (experiment_id, _) in zip(keys, queries_by_experiment, strict=True)}
    fingerprints = {key: aggregate.fingerprint(query) for key, query in by_key.items()}
    by_cache_key = {_make_cache_key(key, fingerprint): key for key, fingerprint in fingerprints.items()}
    cached = {
        by_cache_key[cache_key]: Cached(value, fingerprints[by_cache_key[cache_key]])
        for cache_key, value in cache.get_many(by_cache_key).items()
    }
    rows = _load_rows(aggregate, experiment_ids, [key for key in by_key if key not in cached])
    fresh = {key for key, row in rows.items() if row.computed_at and row.fingerprint == fingerprints[key]}
    missing = [key for key in by_key if key not in cached and key not in fresh]
    small: dict[str, Any] = {}
    if missing and not aggregate.is_large([by_key[key] for key in missing]):
        read_at = timezone.now()
        values = aggregate.compute([by_key[key] for key in missing], lambda _: None)
        small = dict(zip(missing, values, strict=True))
        if aggregate.is_shared or _stores_all.get():
            queries = {key: by_key[key] for key in missing}
            with suppress(OperationalError):  # Of a full disk. This process has the values all the same.
                _keep(aggregate, queries, small, experiment_ids, fingerprints, read_at)
    elif missing and _stores_all.get():
        cached |= {key: Cached(None, fingerprints[key]) for key in missing}
    elif missing:
        rows |= _enqueue_computation(aggregate, experiment_ids, {key: by_key[key] for key in missing})
    for key, row in rows.items():
        if key not in cached and key not in small:
            value = None if row.computed_at is None else _make_adapter(aggregate).validate_python(row.value)
            if key in fresh and row.requested_at is None:  # Another request computed it.
                small[key] = value
            else:
                cached[key] = Cached(value, row.fingerprint, key in fresh, row, aggregate.steps)
    if small:
        cache.set_many({_make_cache_key(key, fingerprints[key]): value for key, value in small.items()}, CACHE_SECONDS)
        cached |= {key: Cached(value, fingerprints[key]) for key, value in small.items()}
    return [cached[key] for key in keys]


@contextmanager
def store_all_values() -> Iterator[None]:
    """Within the block, store each small value that is computed, also of aggregates that are not shared.

    No large value is computed or requested.
    """
    token = _stores_all.set(True)
    try:
        yield
    finally:
        _stores_all.reset(token)


def find_fresh(aggregate: Aggregate[QueryT, ValueT], experiment_id: int, query: QueryT) -> ValueT | None:
    """Return the value of a query if it is stored for the rows as they are, else None. Nothing is computed."""
    key, fingerprint = aggregate.key(query), aggregate.fingerprint(query)
    value: ValueT | None = cache.get(_make_cache_key(key, fingerprint))
    if value is None:
        row = _load_rows(aggregate, {key: experiment_id}, [key]).get(key)
        if row is not None and row.computed_at and row.fingerprint == fingerprint:
            value = _make_adapter(aggregate).validate_python(row.value)
            cache.set(_make_cache_key(key, fingerprint), value, CACHE_SECONDS)
    return value


def _keep(
    aggregate: Aggregate[QueryT, ValueT],
    queries: Mapping[str, QueryT],
    values: Mapping[str, ValueT],
    experiments: Mapping[str, int],
    fingerprints: Mapping[str, str],
    read_at: datetime,
) -> None:
    """Store values that are computed. A worker that computes one of them meanwhile replaces it."""
    now = timezone.now()
    rows = [
        CachedAggregate(
            experiment_id=experiments[key],
            name=aggregate.name,
            key=key,
            query=aggregate.dump(query),
            value=_make_adapter(aggregate).dump_python(values[key], mode="json"),
            fingerprint=fingerprints[key],
            computed_at=read_at,
            ended_at=now,
            duration_s=(now - read_at).total_seconds(),
        )
        for key, query in queries.items()
    ]
    CachedAggregate.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["experiment", "name", "key"],
        update_fields=["value", "fingerprint", "computed_at", "duration_s"],
    )
    if aggregate.max_rows is not None:
        for experiment_id in {row.experiment_id for row in rows}:
            _delete_old_rows(aggregate, experiment_id)


def _make_cache_key(key: str, fingerprint: str) -> str:
    return f"aggregate:{key}:{fingerprint}"


def _load_rows(
    aggregate: Aggregate[Any, Any], experiments: Mapping[str, int], keys: Sequence[str]
) -> dict[str, CachedAggregate]:
    if not keys:
        return {}
    requested = {experiments[key] for key in keys}
    rows = CachedAggregate.objects.filter(experiment__in=requested, name=aggregate.name, key__in=keys)
    return {row.key: row for row in rows}


def prepare_aggregates() -> None:
    """Import all aggregates and prepare the types of their values, before a page needs them."""
    for path in AGGREGATES.values():
        _make_adapter(import_string(path))


@lru_cache(maxsize=len(AGGREGATES))
def _make_adapter(aggregate: Aggregate[Any, Any]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(aggregate.value_type())


def _enqueue_computation(
    aggregate: Aggregate[QueryT, Any], experiments: Mapping[str, int], queries: Mapping[str, QueryT]
) -> dict[str, CachedAggregate]:
    """Enqueue the computation of these values, except those that a worker has claimed. Return all rows."""
    from django_q.tasks import async_task

    new_rows = [
        CachedAggregate(experiment_id=experiments[key], name=aggregate.name, key=key, query=aggregate.dump(query))
        for key, query in queries.items()
    ]
    CachedAggregate.objects.bulk_create(new_rows, ignore_conflicts=True)
    requested = {experiments[key] for key in queries}
    rows = CachedAggregate.objects.filter(experiment__in=requested, name=aggregate.name, key__in=queries)
    if keys := claim_rows(rows):
        async_task(TASK, keys)
    return {row.key: row for row in rows.all()}


def claim_rows(rows: QuerySet[CachedAggregate]) -> list[int]:
    """Claim the rows that need a worker and return their primary keys. Concurrent callers claim different rows.

    Only one worker computes a row at a time. After each result there is a pause, because rows may keep changing. The
    first result of a row does not wait.
    """
    now = timezone.now()
    is_unclaimed = Q(requested_at=None) | Q(ended_at__gte=F("requested_at")) | Q(requested_at__lt=now - CLAIM_TIMEOUT)
    pause = Greatest(Value(MIN_PAUSE_S), PAUSE_FACTOR * F("duration_s")) * Value(timedelta(seconds=1))
    next_at = ExpressionWrapper(F("ended_at") + pause, output_field=DateTimeField())
    is_due = Q(ended_at=None) | Q(next_at__lt=now) | Q(computed_at=None, problem="")
    with transaction.atomic():
        claimable = rows.annotate(next_at=next_at).filter(is_unclaimed, is_due)
        keys = list(claimable.select_for_update(skip_locked=True).values_list("pk", flat=True))
        CachedAggregate.objects.filter(pk__in=keys).update(requested_at=now, step=WAITING, problem="")
    return keys


def compute_rows(keys: Sequence[int], *, seconds: float) -> list[int]:
    """Compute these rows for at most this many seconds, but at least one row. Return the remaining keys."""
    deadline = time.monotonic() + seconds
    for index, key in enumerate(keys):
        if index and time.monotonic() >= deadline:
            return list(keys[index:])
        row = CachedAggregate.objects.select_related("experiment").filter(pk=key).first()
        if row is not None:
            _compute(row)
    return []


def _compute(row: CachedAggregate) -> None:
    """Compute one row. Store the end of the computation even if it fails."""
    started, problem = time.monotonic(), WORKER_FAILED
    aggregate: Aggregate[Any, Any] = import_string(AGGREGATES[row.name])
    try:
        query = aggregate.load(row.experiment, row.query)
        if query is not None:
            fingerprint, read_at = aggregate.fingerprint(query), timezone.now()
            _update(row, step=aggregate.steps[0])
            with transaction.atomic() if aggregate.write else nullcontext():
                if aggregate.write:
                    value = aggregate.write(row, query)
                else:
                    (value,) = aggregate.compute([query], lambda step: _update(row, step=step))
                stored = _make_adapter(aggregate).dump_python(value, mode="json")
                _update(row, value=stored, fingerprint=fingerprint, computed_at=read_at)
        problem = QUERY_INVALID if query is None else ""
    finally:
        _update(row, ended_at=timezone.now(), step="", problem=problem, duration_s=time.monotonic() - started)
    if aggregate.max_rows is not None:
        _delete_old_rows(aggregate, row.experiment_id)


def _delete_old_rows(aggregate: Aggregate[Any, Any], experiment_id: int) -> None:
    """Delete all but the newest `max_rows` values, one by one, because many other rows may depend on each."""
    rows = CachedAggregate.objects.filter(experiment=experiment_id, name=aggregate.name)
    row_ids = rows.filter(computed_at__isnull=False, step="").order_by("-ended_at").values_list("pk", flat=True)
    for row_id in row_ids[aggregate.max_rows :]:
        CachedAggregate.objects.filter(pk=row_id).delete()


def _update(row: CachedAggregate, **columns: Any) -> None:
    CachedAggregate.objects.filter(pk=row.pk).update(**columns)


class AnswerQuery(Protocol):
    """A query over the answers of an experiment, in one wave or in all."""

    @property
    def experiment(self) -> Experiment: ...
    @property
    def wave(self) -> Wave | None: ...


AnswerQueryT = TypeVar("AnswerQueryT", bound=AnswerQuery)


def has_many_answers(experiment: Experiment, wave: Wave | None) -> bool:
    """Return True if there are too many answers to sum during a request. Reads only the counters of runs."""
    runs = experiment.answer_runs.filter(wave=wave) if wave else experiment.answer_runs
    return (runs.aggregate(n=Sum("n_done"))["n"] or 0) > MAX_ANSWERS_PER_REQUEST


def fingerprint_results(experiment: Experiment, wave: Wave | None) -> str:
    """Return a text that changes whenever trials end, grades are written, or another measure becomes the primary one.

    It is read from counters and indexes, never from trials or gradings. Grade conditions count every write of a
    grading, new or replaced.
    """
    return fingerprint_many_results([experiment], wave)[experiment.pk]


def fingerprint_many_results(experiments: Collection[Experiment], wave: Wave | None = None) -> dict[int, str]:
    """Return the fingerprint of each experiment by its key, in three queries. `wave` is for a single experiment."""
    keys = [experiment.pk for experiment in experiments]
    runs = Run.objects.answering(keys)
    runs = runs.filter(wave=wave) if wave else runs
    counters, grades = defaultdict(list), defaultdict(list)
    columns = ("pk", "n_pending", "n_running", "n_done", "n_failed", "n_cancelled")
    for key, *counts in runs.order_by("pk").values_list("experiment", *columns):
        counters[key].append(tuple(counts))
    graders = GradeCondition.objects.filter(experiment__in=keys)
    for key, *changes in graders.order_by("pk").values_list("experiment", "pk", "changes"):
        grades[key].append(tuple(changes))
    points: Any = Point.objects.filter(run__in=runs.values("pk")).order_by().values_list("run__experiment")
    decided = dict(points.annotate(last=Max("decided_at")))
    content: dict[int, list[Any]] = {
        key: [
            RESULTS_VERSION,
            key,
            wave.pk if wave else None,
            counters[key],
            grades[key],
            last.isoformat() if (last := decided.get(key)) else None,
            primary,
        ]
        for key, primary in ((experiment.pk, experiment.primary_measure) for experiment in experiments)
    }
    return {key: hash_content(parts) for key, parts in content.items()}


def make_answer_aggregate(
    name: str,
    value_type: Any,
    compute: Callable[[AnswerQueryT], ValueT],
    *,
    dump: Callable[[AnswerQueryT], list[Any]],
    load: Callable[[Experiment, Wave | None, list[Any]], AnswerQueryT | None],
    step: str,
    max_rows: int = 20,
    version: int = 1,
    is_large: Callable[[Sequence[AnswerQueryT]], bool] | None = None,
    fingerprint: Callable[[AnswerQueryT], str] | None = None,
    is_shared: bool = False,
) -> Aggregate[AnswerQueryT, ValueT]:
    """Return an aggregate over answers. `compute` returns the value of one query.

    dump, load: convert the values of a query, apart from its experiment and wave, to JSON and back. `load` is not
    called if the wave was deleted. is_large, fingerprint: by default, of all answers in the wave.
    """

    def dump_query(query: AnswerQueryT) -> list[Any]:
        return [query.experiment.pk, query.wave.number if query.wave else None, *dump(query)]

    def load_query(experiment: Experiment, content: list[Any]) -> AnswerQueryT | None:
        _, number, *values = content
        wave = experiment.waves.filter(number=number).first() if number is not None else None
        return None if number is not None and wave is None else load(experiment, wave, values)

    def compute_all(queries: Sequence[AnswerQueryT], _: StepReporter) -> list[ValueT]:
        return [compute(query) for query in queries]

    def has_large(queries: Sequence[AnswerQueryT]) -> bool:
        return any(has_many_answers(query.experiment, query.wave) for query in queries)

    return Aggregate(
        name=name,
        version=version,
        value_type=lambda: value_type,
        dump=dump_query,
        load=load_query,
        fingerprint=fingerprint or (lambda query: fingerprint_results(query.experiment, query.wave)),
        is_large=is_large or has_large,
        compute=compute_all,
        steps=(step,),
        max_rows=max_rows,
        is_shared=is_shared,
    )
