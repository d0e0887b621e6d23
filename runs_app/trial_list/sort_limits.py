"""Advice on what to narrow where a search has too many trials for an order without an index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runs_app.models import Condition, Experiment, Trial
from runs_app.trial_list import trial_order
from runs_app.trial_list.trial_pagination import Search

MOST_OFFERED = 5


@dataclass(frozen=True, slots=True)
class Narrower:
    """A filter that leaves few enough trials. trials: the most that it leaves, by the counters."""

    parameter: str
    value: str
    label: str
    trials: int


def suggest_narrower(search: Search, experiment: Experiment | None) -> list[Narrower]:
    """Return filters that leave at most MOST_SORTED trials: statuses, then conditions, or experiments without one.

    It takes two queries at any number of runs.
    """
    names = [search.status] if search.status else list(Trial.Status.values)
    rows = list(search.runs.order_by().values("condition", "experiment__slug", *(f"n_{name}" for name in names)))
    by_status = [] if search.status else [(name, sum(row[f"n_{name}"] for row in rows)) for name in names]
    statuses = [Narrower("status", name, Trial.Status(name).label, n) for name, n in by_status if _is_sortable(n)]
    if experiment is None:
        sums = _sum_by(rows, "experiment__slug", names)
        return [*statuses, *(Narrower("experiment", slug, slug, n) for slug, n in sums[:MOST_OFFERED])]
    sums = _sum_by(rows, "condition", names)[:MOST_OFFERED]
    parts = ("model", "prompt", "sampler")
    conditions = Condition.objects.select_related(*parts).in_bulk([pk for pk, _ in sums])
    return [*statuses, *(Narrower("condition", str(pk), conditions[pk].label, n) for pk, n in sums)]


def _sum_by(rows: Iterable[dict[str, Any]], key: str, names: list[str]) -> list[tuple[Any, int]]:
    sums: dict[Any, int] = {}
    for row in rows:
        sums[row[key]] = sums.get(row[key], 0) + sum(row[f"n_{name}"] for name in names)
    return sorted((one, n) for one, n in sums.items() if _is_sortable(n))


def _is_sortable(n: int) -> bool:
    return 0 < n <= trial_order.MOST_SORTED
