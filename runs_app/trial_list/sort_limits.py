"""Suggested filters for a search with too many trials to sort without an index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runs_app.models import Condition, Experiment, Trial
from runs_app.trial_list import trial_order
from runs_app.trial_list.trial_pagination import Search

MAX_OFFERED = 5


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
    return 0 < n <= trial_order.MAX_SORTED
