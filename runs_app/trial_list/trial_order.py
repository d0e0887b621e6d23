"""Orders of the trial list other than by key, with keyset pagination. A cursor is a value and a key.

The index of runs and items serves the orders by status and by item at any size. Other orders read every trial of the
search, so the page offers them only for searches with at most MAX_SORTED trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import F, FloatField, OuterRef, Q, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Cast, Coalesce, Length

from runs_app.models import Condition, Experiment, Run, Trial
from runs_app.models.totals import Totals
from runs_app.trial_list.trial_pagination import PAGE, Search, TrialPage, Unnest, collect_keys

MAX_SORTED = 50_000
MAX_OFFERED = 5  # Conditions or experiments to narrow a search to.
INDEXED = {"item": F("item_id"), "status": F("status")}
COLUMNS: dict[str, Any] = {
    "sample_idx": F("sample_idx"),
    "rating": F("rating"),
    "cost_usd": F("cost_usd"),
    "latency": F("latency_ms"),
    "input_tokens": F("input_tokens"),
    "output_tokens": F("output_tokens"),
    "length": Length("answer"),
}
Cursor = tuple[Any, int]


@dataclass(frozen=True)
class TrialOrder:
    """An order by one column. `value` is never NULL. Trials without a value come last in both directions."""

    name: str
    descending: bool
    value: Any

    @property
    def is_indexed(self) -> bool:
        return self.name in INDEXED

    @property
    def parameter(self) -> str:
        return f"-{self.name}" if self.descending else self.name

    def parse_cursor(self, text: str) -> Cursor | None:
        """Return the cursor, or None for an invalid text."""
        value, _, key = text.rpartition("~")
        if not (value and key.isascii() and key.isdigit() and len(key) < 19):
            return None
        if self.name == "status":
            return value, int(key)
        try:
            number = float(value)
        except ValueError:
            return None
        if math.isnan(number) or (self.name == "item" and not (number.is_integer() and 0 <= number < 2**62)):
            return None
        return (int(number) if self.name == "item" else number), int(key)


def read_order(parameter: str, graders: list[int]) -> TrialOrder | None:
    """Return the order that `sort=` names, or None for the order by key. graders: keys of the scores with a column."""
    descending, name = parameter.startswith("-"), parameter.removeprefix("-")
    if name in INDEXED:
        return TrialOrder(name, descending, INDEXED[name])
    if name in COLUMNS:
        return TrialOrder(name, descending, _with_missing_last(COLUMNS[name], descending))
    kind, _, key = name.partition("_")
    if kind == "score" and key.isascii() and key.isdigit() and len(key) < 19 and int(key) in graders:
        grader = int(key)
        model: Any = Trial._meta.get_field("gradings").related_model
        score = Subquery(model.objects.filter(condition=grader, trial=OuterRef("pk")).order_by().values("score")[:1])
        return TrialOrder(name, descending, _with_missing_last(score, descending))
    return None


def _with_missing_last(value: Any, descending: bool) -> Any:
    last = "-Infinity" if descending else "Infinity"
    return Coalesce(Cast(value, FloatField()), Cast(Value(last), FloatField()))


def count_matches(search: Search, totals: Totals | None = None) -> tuple[int | None, int]:
    """Return the number of matching trials and its upper bound.

    The number is None if counting would read more than MAX_SORTED trials. Without an indexed condition, the bound
    comes from the counters of the runs (`totals`, if they are loaded).
    """
    if search.is_indexed:
        bound = search.narrow(_select_trials(search), with_rest=False).order_by()[: MAX_SORTED + 1].count()
        if bound > MAX_SORTED:
            return None, bound
    else:
        bound = _sum_counters(search, totals)
    if not search.rest:
        return bound, bound
    return (search.narrow(_select_trials(search)).order_by().count() if bound <= MAX_SORTED else None), bound


def _select_trials(search: Search) -> QuerySet[Trial]:
    return Trial.objects.filter(run__in=list(search.runs.order_by().values_list("pk", flat=True)))


def _sum_counters(search: Search, totals: Totals | None) -> int:
    names = [search.status] if search.status else Trial.Status.values
    if totals is not None:
        return int(sum(getattr(totals, name) for name in names))
    sums = search.runs.order_by().aggregate(**{name: Sum(f"n_{name}", default=0) for name in names})
    return int(sum(sums.values()))


def find_ordered(
    search: Search, order: TrialOrder, *, after: Cursor | None = None, before: Cursor | None = None, size: int = 0
) -> TrialPage:
    """Return a page in this order: the trials behind `after`, else in front of `before`, else the first ones."""
    size = size or PAGE
    backwards = before is not None and after is None
    cursor = before if backwards else after
    # The cursors of the first trials beyond `cursor`: the first of each run, merged.
    descending = order.descending != backwards
    limit = size + 1

    def sort(trials: QuerySet[Trial, Any]) -> QuerySet[Trial, Any]:
        annotated = trials.annotate(sort_value=order.value)
        return annotated.order_by("-sort_value", "-pk") if descending else annotated.order_by("sort_value", "pk")

    of_run: Any = sort(search.narrow(Trial.objects.filter(run=OuterRef("pk"))))
    parts = [of_run]
    if cursor is not None:
        value, key = cursor
        sign = "lt" if descending else "gt"
        same, beyond = Q(sort_value=value, **{f"pk__{sign}": key}), Q(**{f"sort_value__{sign}": value})
        # The index finds the start of each part. With both in one condition, it would read all rows with this value.
        parts = [of_run.filter(same), of_run.filter(beyond)] if order.is_indexed else [of_run.filter(same | beyond)]

    def merge(runs: QuerySet[Run], per_run: int) -> Any:
        arrays = [collect_keys(part.values("pk")[:per_run]) for part in parts]
        keys = runs.order_by().annotate(trial_id=Unnest(*arrays)).values("trial_id")
        return sort(Trial.objects.filter(pk__in=keys))

    runs = search.runs
    if order.is_indexed and not (search.is_indexed or search.rest):
        # The first trials are in the runs whose own first trials come first.
        runs = runs.filter(pk__in=merge(runs, 1).values("run")[:limit])
    cursors = list(merge(runs, limit).values_list("sort_value", "pk")[:limit])
    has_more, cursors = len(cursors) > size, cursors[:size]
    if backwards:
        cursors.reverse()
    has_next = bool(cursors) if backwards else has_more
    has_previous = has_more if backwards else cursor is not None and bool(cursors)
    return TrialPage(
        [key for _, key in cursors],
        after=_format_cursor(cursors[-1]) if has_next else None,
        before=_format_cursor(cursors[0]) if has_previous else None,
    )


def _format_cursor(cursor: Cursor) -> str:
    return f"{cursor[0]}~{cursor[1]}"


def make_cursor(trial: Trial, order: TrialOrder) -> Cursor:
    """Return the position of this trial in the order."""
    trials = Trial.objects.filter(pk=trial.pk).annotate(sort_value=order.value)
    value: Any = trials.values_list("sort_value", flat=True).get()
    return value, trial.pk


@dataclass(frozen=True, slots=True)
class NarrowerFilter:
    """A filter that leaves few enough trials to sort. trials: their maximum number, from the counters."""

    parameter: str
    value: str
    label: str
    trials: int


def suggest_filters(search: Search, experiment: Experiment | None) -> list[NarrowerFilter]:
    """Return filters that leave at most MAX_SORTED trials, with two queries at any number of runs.

    Statuses come first, then conditions. Without an experiment, experiments replace conditions.
    """
    names = [search.status] if search.status else list(Trial.Status.values)
    rows = list(search.runs.order_by().values("condition", "experiment__slug", *(f"n_{name}" for name in names)))
    by_status = [] if search.status else [(name, sum(row[f"n_{name}"] for row in rows)) for name in names]
    statuses = [NarrowerFilter("status", name, Trial.Status(name).label, n) for name, n in by_status if _is_sortable(n)]
    if experiment is None:
        sums = _sum_by(rows, "experiment__slug", names)
        return [*statuses, *(NarrowerFilter("experiment", slug, slug, n) for slug, n in sums[:MAX_OFFERED])]
    sums = _sum_by(rows, "condition", names)[:MAX_OFFERED]
    conditions = Condition.objects.select_related("model", "prompt", "sampler").in_bulk([pk for pk, _ in sums])
    return [*statuses, *(NarrowerFilter("condition", str(pk), conditions[pk].label, n) for pk, n in sums)]


def _sum_by(rows: Iterable[dict[str, Any]], key: str, names: list[str]) -> list[tuple[Any, int]]:
    sums: dict[Any, int] = {}
    for row in rows:
        sums[row[key]] = sums.get(row[key], 0) + sum(row[f"n_{name}"] for name in names)
    return sorted((value, n) for value, n in sums.items() if _is_sortable(n))


def _is_sortable(n: int) -> bool:
    return 0 < n <= MAX_SORTED
