"""Aggregates over the answers of an experiment, cached until a trial ends or a grade is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from django.db.models import Sum

from grading_app.reports.cached_aggregates import Aggregate, StepReporter
from grading_app.reports.frame_cache import fingerprint_results
from runs_app.models import Experiment, Wave


class AnswerQuery(Protocol):
    """A query over the answers of an experiment, in one wave or in all."""

    @property
    def experiment(self) -> Experiment: ...
    @property
    def wave(self) -> Wave | None: ...


QueryT = TypeVar("QueryT", bound=AnswerQuery)
ValueT = TypeVar("ValueT")
MOST_AT_ONCE = 20_000
"""So many answers are added up while a page waits: about 50 ms."""


def has_many_answers(experiment: Experiment, wave: Wave | None) -> bool:
    """Return True if the answers are too many to be added up during a request. Read from the counters of runs."""
    runs = experiment.runs.generating().filter(wave=wave) if wave else experiment.runs.generating()
    return (runs.aggregate(n=Sum("n_done"))["n"] or 0) > MOST_AT_ONCE


def make_answer_aggregate(
    name: str,
    value_type: Any,
    compute: Callable[[QueryT], ValueT],
    *,
    dump: Callable[[QueryT], list[Any]],
    load: Callable[[Experiment, Wave | None, list[Any]], QueryT | None],
    step: str,
    kept: int = 20,
    version: int = 1,
    is_large: Callable[[Sequence[QueryT]], bool] | None = None,
    fingerprint: Callable[[QueryT], str] | None = None,
) -> Aggregate[QueryT, ValueT]:
    """Return an aggregate over answers. `compute` returns the value of one query.

    dump, load: the values of a query besides its experiment and wave, as JSON, and back. `load` is not called if the
    wave is gone. is_large, fingerprint: by default, of all answers in the wave.
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
        return any(has_many_answers(one.experiment, one.wave) for one in queries)

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
        kept=kept,
    )
