"""A table of ratings, units x raters: the input of every measure of agreement."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Kind = TypeVar("Kind", bound=Hashable)
Rater = TypeVar("Rater", bound=Hashable)


@dataclass(frozen=True, eq=False)
class RowItems:
    """The items of rows that stand for many units with the same ratings.

    units: (kinds of items, rows), the number of units of each row in an item of this kind.
    kind_sizes: (kinds of items,), the number of items of each kind.
    """

    units: Floats
    kind_sizes: Floats

    def select_units(self, is_selected: NDArray[np.bool_]) -> RowItems:
        """Return only these rows. Items without units stay."""
        return RowItems(self.units[:, is_selected], self.kind_sizes)


@dataclass(frozen=True, eq=False)
class Ratings:
    """A table of ratings by unit and rater.

    values: (units, raters), a number for each rating; NaN if a rater did not rate the unit.
    units, raters: the unique names of the rows and the columns.
    labels: if the numbers stand for labels, value v is labels[v]; empty for plain numbers.
    row_items: set if each row stands for all units with the same ratings (`from_counts`); None if each row is one unit.
    Raise ValueError for a table of another shape, a repeated name, or an infinite rating.
    """

    values: Floats
    units: tuple[Hashable, ...]
    raters: tuple[Hashable, ...]
    labels: tuple[str, ...] = ()
    row_items: RowItems | None = None

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.units), len(self.raters)):
            expected = f"{len(self.units)} units x {len(self.raters)} raters"
            raise ValueError(f"the table has the shape {self.values.shape}, not {expected}")
        for names in (self.units, self.raters):
            if len(set(names)) < len(names):
                raise ValueError("a unit or a rater is repeated")
        if np.isinf(self.values).any():
            raise ValueError("a rating is infinite")

    @classmethod
    def from_table(cls, table: ArrayLike) -> Ratings:
        """Return the ratings of a table of units x raters (NaN for none), with units and raters named 0, 1, 2 ..."""
        values = np.array(table, dtype=np.float64)
        if values.ndim != 2:
            raise ValueError(f"ratings must be a table of units x raters, not of {values.ndim} dimensions")
        return Ratings(values, tuple(range(values.shape[0])), tuple(range(values.shape[1])))

    @classmethod
    def from_triples(
        cls, triples: Iterable[tuple[Hashable, Hashable, float | str | None]], labels: Sequence[str] | None = None
    ) -> Ratings:
        """Return the ratings of (unit, rater, value) triples in any order. A value of None or NaN means no rating.

        labels: the values are these labels, numbered 0, 1, 2 ... in this order, which matters for weighted kappa and
        ordinal alpha. Units and raters keep the order in which they first appear. Raise ValueError for a second rating
        of a unit by the same rater, a value that is not a number, or an unknown label.
        """
        codes = None if labels is None else {label: code for code, label in enumerate(labels)}
        values_by_cell: dict[tuple[int, int], float] = {}
        units: dict[Hashable, int] = {}
        raters: dict[Hashable, int] = {}
        for unit, rater, value in triples:
            row, column = units.setdefault(unit, len(units)), raters.setdefault(rater, len(raters))
            if (row, column) in values_by_cell:
                raise ValueError(f"{rater!r} rated {unit!r} twice")
            values_by_cell[row, column] = _convert_value(value, codes, f"the rating of {unit!r} by {rater!r}")
        values = np.full((len(units), len(raters)), np.nan)
        for cell, number in values_by_cell.items():
            values[cell] = number
        return Ratings(values, tuple(units), tuple(raters), tuple(labels or ()))

    @classmethod
    def from_counts(
        cls,
        lines: Iterable[tuple[Hashable, Kind, int]],
        values_by_kind: Mapping[Kind, Mapping[Rater, float]],
        raters: Sequence[Rater],
    ) -> Ratings:
        """Return ratings from counts: lines of (item, kind of unit, number of units of the kind in the item).

        values_by_kind: kind of unit -> rater -> value. A row stands for all units of its kind. Items with the same
        units form one kind of item. So a million units need only as many rows as there are distinct combinations of
        ratings. Raise ValueError in the cases of `Ratings`.
        """
        rows = {kind: row_number for row_number, kind in enumerate(values_by_kind)}
        items: dict[Hashable, int] = {}
        numbered_lines = np.array(
            [(items.setdefault(item, len(items)), rows[kind], n) for item, kind, n in lines], dtype=np.float64
        )
        item, row = numbered_lines.reshape(-1, 3)[:, :2].astype(np.intp).T
        units = np.zeros((len(items), len(rows)))
        np.add.at(units, (item, row), numbered_lines.reshape(-1, 3)[:, 2])
        kinds, kind_sizes = np.unique(units, axis=0, return_counts=True) if units.size else (units, np.ones(len(items)))
        values = np.array(
            [[values.get(rater, np.nan) for rater in raters] for values in values_by_kind.values()], dtype=np.float64
        )
        table = values.reshape(len(rows), len(raters))
        return Ratings(table, tuple(rows), tuple(raters), (), RowItems(kinds, kind_sizes.astype(np.float64)))

    @property
    def given(self) -> NDArray[np.bool_]:
        """True for each rating: (units, raters)."""
        return ~np.isnan(self.values)

    @property
    def per_unit(self) -> Integers:
        """The number of ratings of each unit: (units,)."""
        counts: Integers = self.given.sum(axis=1)
        return counts

    @property
    def times(self) -> Floats:
        """The number of units that each row stands for: (units,)."""
        return np.ones(len(self.units)) if self.row_items is None else self.row_items.kind_sizes @ self.row_items.units

    @property
    def n_units(self) -> int:
        return round(float(self.times.sum()))

    @property
    def n_ratings(self) -> int:
        return round(float(self.times @ self.per_unit))

    @property
    def n_raters(self) -> int:
        """The number of raters who gave at least one rating."""
        return int(self.given.any(axis=0).sum())

    @property
    def categories(self) -> Floats:
        """The distinct ratings, ascending."""
        return np.unique(self.values[self.given])

    @property
    def counts(self) -> Floats:
        """The number of raters who put the unit into the category: (units, categories)."""
        columns = [(self.values == category).sum(axis=1) for category in self.categories]
        return np.array(columns, dtype=np.float64).reshape(len(columns), len(self.units)).T

    def with_at_least(self, ratings: int) -> Ratings:
        """Return only the units with at least this number of ratings."""
        return self.select_units(self.per_unit >= ratings)

    def drop_incomplete(self) -> Ratings:
        """Return only the units that every rater rated."""
        return self.select_units(self.per_unit == len(self.raters))

    def select_raters(self, *raters: Hashable) -> Ratings:
        """Return only these raters, in this order. Raise ValueError for a rater who is not in the table."""
        columns = [self.column(rater) for rater in raters]
        return Ratings(self.values[:, columns], self.units, tuple(raters), self.labels, self.row_items)

    def drop_rater(self, rater: Hashable) -> Ratings:
        """Return all raters but this one. Raise ValueError for a rater who is not in the table."""
        self.column(rater)
        return self.select_raters(*(name for name in self.raters if name != rater))

    def column(self, rater: Hashable) -> int:
        if rater not in self.raters:
            raise ValueError(f"no ratings by {rater!r}")
        return self.raters.index(rater)

    def select_units(self, is_selected: NDArray[np.bool_]) -> Ratings:
        """Return only these units. is_selected: (units,)."""
        units = tuple(unit for unit, is_kept in zip(self.units, is_selected, strict=True) if is_kept)
        row_items = self.row_items and self.row_items.select_units(is_selected)
        return Ratings(self.values[is_selected], units, self.raters, self.labels, row_items)


def _convert_value(value: float | str | None, codes: dict[str, int] | None, subject: str) -> float:
    if value is None:
        return np.nan
    if codes is not None:
        if value not in codes:
            raise ValueError(f"{subject} is {value!r}, which is not among the labels")
        return codes[str(value)]
    if isinstance(value, str):
        raise ValueError(f"{subject} is {value!r}, which is not a number; pass the labels in their order")
    return float(value)
