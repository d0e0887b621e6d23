"""Aggregates over the answers of an experiment, cached until a trial ends or a grade is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from django.db.models import Max, Sum

from evalsite.lib.text.hashing import hash_content
from grading_app.models import GradeCondition
from grading_app.results.cached_aggregates import Aggregate, StepReporter
from runs_app.models import Experiment, Point, Run, Wave


class AnswerQuery(Protocol):
    """A query over the answers of an experiment, in one wave or in all."""

    @property
    def experiment(self) -> Experiment: ...
    @property
    def wave(self) -> Wave | None: ...


QueryT = TypeVar("QueryT", bound=AnswerQuery)
ValueT = TypeVar("ValueT")
MAX_ANSWERS_PER_REQUEST = 20_000
"""The maximum number of answers that are summed while the page waits, about 50 ms."""
RESULTS_VERSION = 8  # Increase it when figures look different or show other numbers. This outdates browsers' copies.


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
    compute: Callable[[QueryT], ValueT],
    *,
    dump: Callable[[QueryT], list[Any]],
    load: Callable[[Experiment, Wave | None, list[Any]], QueryT | None],
    step: str,
    max_rows: int = 20,
    version: int = 1,
    is_large: Callable[[Sequence[QueryT]], bool] | None = None,
    fingerprint: Callable[[QueryT], str] | None = None,
) -> Aggregate[QueryT, ValueT]:
    """Return an aggregate over answers. `compute` returns the value of one query.

    dump, load: convert the values of a query, apart from its experiment and wave, to JSON and back. `load` is not
    called if the wave was deleted. is_large, fingerprint: by default, of all answers in the wave.
    """

    def dump_query(query: QueryT) -> list[Any]:
        return [query.experiment.pk, query.wave.number if query.wave else None, *dump(query)]

    def load_query(experiment: Experiment, content: list[Any]) -> QueryT | None:
        _, number, *values = content
        wave = experiment.waves.filter(number=number).first() if number is not None else None
        return None if number is not None and wave is None else load(experiment, wave, values)

    def compute_all(queries: Sequence[QueryT], _: StepReporter) -> list[ValueT]:
        return [compute(query) for query in queries]

    def has_large(queries: Sequence[QueryT]) -> bool:
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
    )
