"""Summary of a dataset: its categories, norms, recipe and related datasets, and the warnings of its import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import Count, Q

from datasets_app.models import Dataset
from evalsite.lib.history import StatusChange

SHOWN_CATEGORIES = 200


class Category(NamedTuple):
    """A category and its number of items. `share` is the length of its bar, in per cent of the largest category."""

    name: str
    total: int
    active: int
    share: float


@dataclass(frozen=True)
class Categories:
    """The first SHOWN_CATEGORIES categories by name, and the total number of categories."""

    rows: list[Category]
    number: int

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.rows]

    @property
    def more(self) -> int:
        return self.number - len(self.rows)


def count_categories(dataset: Dataset) -> Categories:
    """Return the categories of the dataset, counted by the database in one query."""
    counts = list(
        dataset.items.order_by("category")
        .values_list("category")
        .annotate(total=Count("pk"), active=Count("pk", filter=Q(excluded=False)))
    )
    largest = max((total for _, total, _ in counts), default=1)
    rows = [
        Category(name, total, active, round(100 * active / largest, 2))
        for name, total, active in counts[:SHOWN_CATEGORIES]
    ]
    return Categories(rows, len(counts))


def select_warnings(history: list[StatusChange]) -> list[StatusChange]:
    """Return the lines of history that contain warnings of an import."""
    return [change for change in history if change.aspect == "warnings"]
