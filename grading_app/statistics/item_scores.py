"""Scores of one measure by item and condition: the array from which results, comparisons and analyses are computed."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grading_app.statistics.clusters import ClusterSums

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ItemScores:
    """The scores of one measure, with repetitions added up: arrays of shape (items, conditions).

    items: (items,), primary keys in the order of the dataset. conditions: (conditions,), primary keys in the order of
    the design. n: the number of scores. missing: the number of answers without a score (for example unreadable ones).
    mean: the mean score of a cell, NaN without a score. within: the sum of squared deviations from the cell's mean.
    is_binary: True if every score is 0 or 1. Raise ValueError for arrays of other shapes.
    """

    items: Whole
    conditions: Whole
    n: Whole
    missing: Whole
    mean: Floats
    within: Floats
    is_binary: bool

    def __post_init__(self) -> None:
        shape = (len(self.items), len(self.conditions))
        for name in ("n", "missing", "mean", "within"):
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has the shape {getattr(self, name).shape}, not {shape}")

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[tuple[int, int, int, int, float | None, float | None]],
        items: Sequence[int],
        conditions: Sequence[int],
        *,
        is_binary: bool,
    ) -> ItemScores:
        """Return the scores of rows of (item, condition, n, missing, mean, within), in this order of keys.

        A cell without a row has no answers. Raise KeyError for a key that is not listed.
        """
        shape = (len(items), len(conditions))
        row_of = {key: at for at, key in enumerate(items)}
        column_of = {key: at for at, key in enumerate(conditions)}
        table = np.array(rows, dtype=np.float64).reshape(-1, 6)
        at = (
            np.array([row_of[row[0]] for row in rows], dtype=np.intp),
            np.array([column_of[row[1]] for row in rows], dtype=np.intp),
        )
        n, missing, mean, within = np.zeros(shape), np.zeros(shape), np.full(shape, np.nan), np.zeros(shape)
        n[at], missing[at], mean[at] = table[:, 2], table[:, 3], table[:, 4]
        within[at] = np.nan_to_num(table[:, 5])
        return cls(
            np.asarray(items, dtype=np.int64),
            np.asarray(conditions, dtype=np.int64),
            n.astype(np.int64),
            missing.astype(np.int64),
            mean,
            within,
            is_binary,
        )

    def fill_missing(self, score: float) -> ItemScores:
        """Return the scores with each answer without a score counted as this score (for example wrong: 0)."""
        added, n = self.missing, self.n + self.missing
        old = np.where(self.n > 0, np.nan_to_num(self.mean), score)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(n > 0, (self.n * old + added * score) / n, np.nan)
            within = self.within + np.where(n > 0, self.n * added / n * (old - score) ** 2, 0.0)
        still_binary = self.is_binary and score in (0.0, 1.0)
        return replace(self, n=n, missing=np.zeros_like(added), mean=mean, within=within, is_binary=still_binary)

    def select_items(self, chosen: NDArray[np.bool_]) -> ItemScores:
        """Return only these items; chosen is (items,)."""
        parts = {name: getattr(self, name)[chosen] for name in ("items", "n", "missing", "mean", "within")}
        return replace(self, **parts)

    def select_conditions(self, chosen: Sequence[int]) -> ItemScores:
        """Return only these conditions (primary keys), in this order. Raise KeyError for one without a column."""
        at = [self.find_column(key) for key in chosen]
        parts = {name: getattr(self, name)[:, at] for name in ("n", "missing", "mean", "within")}
        return replace(self, conditions=self.conditions[at], **parts)

    def pool(self) -> ItemScores:
        """Return all conditions as one, with the key of the first. Each has the same weight in an item's mean."""
        if len(self.conditions) == 1:
            return self
        known = self.n > 0
        n = self.n.sum(axis=1, keepdims=True)
        several = known.sum(axis=1, keepdims=True)
        means = np.nan_to_num(self.mean)
        mean = np.where(several > 0, means.sum(axis=1, keepdims=True) / np.maximum(several, 1), np.nan)
        apart = np.where(known, self.n * (means - np.nan_to_num(mean)) ** 2, 0.0)
        within = (self.within + apart).sum(axis=1, keepdims=True)
        missing = self.missing.sum(axis=1, keepdims=True)
        return replace(self, conditions=self.conditions[:1], n=n, missing=missing, mean=mean, within=within)

    def find_column(self, condition: int) -> int:
        found = np.flatnonzero(self.conditions == condition)
        if not len(found):
            raise KeyError(condition)
        return int(found[0])

    def sum_condition(self, condition: int, chosen: NDArray[np.bool_] | None = None) -> ClusterSums:
        """Return the sums of one condition, with its items as clusters; if `chosen` is given, over these items only."""
        at = self.find_column(condition)
        use = self.n[:, at] > 0
        if chosen is not None:
            use &= chosen
        n, mean = self.n[use, at].astype(np.float64), self.mean[use, at]
        origin = float(np.round(mean.mean())) if len(mean) else 0.0
        mean = mean - origin
        totals = n * mean
        return ClusterSums(
            n=float(n.sum()),
            total=float(totals.sum()),
            squares=float((self.within[use, at] + n * mean**2).sum()),
            clusters=float(use.sum()),
            totals_squared=float((totals**2).sum()),
            sizes_by_totals=float((n * totals).sum()),
            sizes_squared=float((n**2).sum()),
            origin=origin,
        )

    def pair_conditions(self, a: int, b: int) -> tuple[NDArray[np.bool_], Floats]:
        """Return the items that both conditions have scores of, (items,), and their differences b - a of cell means."""
        one, other = self.find_column(a), self.find_column(b)
        both = (self.n[:, one] > 0) & (self.n[:, other] > 0)
        return both, self.mean[both, other] - self.mean[both, one]

    def encode(self) -> str:
        """Return a compressed text for a JSON column. `decode` reverses it exactly."""
        buffer = io.BytesIO()
        np.savez(
            buffer,
            items=self.items,
            conditions=self.conditions,
            n=_shrink_counts(self.n),
            missing=_shrink_counts(self.missing),
            mean=self.mean,
            within=self.within,
            is_binary=np.array(self.is_binary),
        )
        return base64.b64encode(zlib.compress(buffer.getvalue(), 1)).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> ItemScores:
        with np.load(io.BytesIO(zlib.decompress(base64.b64decode(text))), allow_pickle=False) as found:
            return cls(
                items=found["items"],
                conditions=found["conditions"],
                n=found["n"].astype(np.int64),
                missing=found["missing"].astype(np.int64),
                mean=found["mean"],
                within=found["within"],
                is_binary=bool(found["is_binary"]),
            )


def _shrink_counts(counts: Whole) -> NDArray[np.integer]:
    """Return the counts in the smallest unsigned type that holds them."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))
