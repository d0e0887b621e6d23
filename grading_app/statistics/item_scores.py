"""The scores of one measure by item and condition, and statistics that find hard, disputed or unstable items.

`ItemScores` holds the arrays behind results, comparisons and analyses. Its statistics return an array of
shape (items,), in which undefined values are NaN.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grading_app.statistics.clusters import ClusterSums

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
TOLERANCE = 1e-9  # Means that differ by less are equal within the rounding error.


@dataclass(frozen=True, eq=False)
class ItemScores:
    """The scores of one measure, summed over repetitions: arrays of shape (items, conditions).

    items: (items,), primary keys in the order of the dataset. conditions: (conditions,), primary keys in the order of
    the design. n: the number of scores. missing: the number of answers without a score (for example unreadable ones).
    mean: the mean score of a cell, NaN without a score. within: the sum of squared deviations from the cell's mean.
    is_binary: True if every score is 0 or 1. Raise ValueError for arrays of other shapes.
    """

    items: Integers
    conditions: Integers
    n: Integers
    missing: Integers
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
        rows_by_item = {key: cells for cells, key in enumerate(items)}
        columns_by_condition = {key: cells for cells, key in enumerate(conditions)}
        table = np.array(rows, dtype=np.float64).reshape(-1, 6)
        cells = (
            np.array([rows_by_item[row[0]] for row in rows], dtype=np.intp),
            np.array([columns_by_condition[row[1]] for row in rows], dtype=np.intp),
        )
        n, missing, mean, within = np.zeros(shape), np.zeros(shape), np.full(shape, np.nan), np.zeros(shape)
        n[cells], missing[cells], mean[cells] = table[:, 2], table[:, 3], table[:, 4]
        within[cells] = np.nan_to_num(table[:, 5])
        return cls(
            np.asarray(items, dtype=np.int64),
            np.asarray(conditions, dtype=np.int64),
            n.astype(np.int64),
            missing.astype(np.int64),
            mean,
            within,
            is_binary,
        )

    def fill_missing(self, score: float | Sequence[float]) -> ItemScores:
        """Return the scores with this score for each answer that has none, for example 0 for wrong.

        score: one for all conditions, or one for each.
        """
        filled, n_missing, n = np.asarray(score, dtype=np.float64), self.missing, self.n + self.missing
        previous = np.where(self.n > 0, np.nan_to_num(self.mean), filled)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(n > 0, (self.n * previous + n_missing * filled) / n, np.nan)
            within = self.within + np.where(n > 0, self.n * n_missing / n * (previous - filled) ** 2, 0.0)
        still_binary = self.is_binary and bool(np.isin(filled, (0.0, 1.0)).all())
        return replace(self, n=n, missing=np.zeros_like(n_missing), mean=mean, within=within, is_binary=still_binary)

    def select_items(self, selected: NDArray[np.bool_] | NDArray[np.intp]) -> ItemScores:
        """Return only these items. selected: (items,), whether each is selected; or positions, in the wanted order."""
        arrays = {name: getattr(self, name)[selected] for name in ("items", "n", "missing", "mean", "within")}
        return replace(self, **arrays)

    def select_conditions(self, conditions: Sequence[int]) -> ItemScores:
        """Return only these conditions (primary keys), in this order. Raise KeyError for an unknown condition."""
        columns = [self.find_column(key) for key in conditions]
        arrays = {name: getattr(self, name)[:, columns] for name in ("n", "missing", "mean", "within")}
        return replace(self, conditions=self.conditions[columns], **arrays)

    def pool(self) -> ItemScores:
        """Return all conditions pooled, with the key of the first. Each has the same weight in an item's mean."""
        if len(self.conditions) == 1:
            return self
        has_score = self.n > 0
        n = self.n.sum(axis=1, keepdims=True)
        n_conditions = has_score.sum(axis=1, keepdims=True)
        means = np.nan_to_num(self.mean)
        mean = np.where(n_conditions > 0, means.sum(axis=1, keepdims=True) / np.maximum(n_conditions, 1), np.nan)
        between = np.where(has_score, self.n * (means - np.nan_to_num(mean)) ** 2, 0.0)
        within = (self.within + between).sum(axis=1, keepdims=True)
        missing = self.missing.sum(axis=1, keepdims=True)
        return replace(self, conditions=self.conditions[:1], n=n, missing=missing, mean=mean, within=within)

    def average_repetitions(self) -> ItemScores:
        """Return the cell means as single scores, so that each item counts once."""
        return replace(self, n=(self.n > 0).astype(np.int64), within=np.zeros_like(self.within))

    def find_column(self, condition: int) -> int:
        columns = np.flatnonzero(self.conditions == condition)
        if not len(columns):
            raise KeyError(condition)
        return int(columns[0])

    def sum_condition(self, condition: int, is_selected: NDArray[np.bool_] | None = None) -> ClusterSums:
        """Return the sums of one condition, with its items as clusters. is_selected: (items,); None for all items."""
        column = self.find_column(condition)
        is_used = self.n[:, column] > 0
        if is_selected is not None:
            is_used &= is_selected
        n, mean = self.n[is_used, column].astype(np.float64), self.mean[is_used, column]
        origin = float(np.round(mean.mean())) if len(mean) else 0.0
        mean = mean - origin
        totals = n * mean
        return ClusterSums(
            n=float(n.sum()),
            total=float(totals.sum()),
            squares=float((self.within[is_used, column] + n * mean**2).sum()),
            clusters=float(is_used.sum()),
            totals_squared=float((totals**2).sum()),
            sizes_by_totals=float((n * totals).sum()),
            sizes_squared=float((n**2).sum()),
            origin=origin,
        )

    def pair_conditions(self, a: int, b: int) -> tuple[NDArray[np.bool_], Floats]:
        """Return which items have scores in both conditions, (items,), and their differences b - a of cell means."""
        column_a, column_b = self.find_column(a), self.find_column(b)
        has_both = (self.n[:, column_a] > 0) & (self.n[:, column_b] > 0)
        return has_both, self.mean[has_both, column_b] - self.mean[has_both, column_a]

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
        with np.load(io.BytesIO(zlib.decompress(base64.b64decode(text))), allow_pickle=False) as arrays:
            return cls(
                items=arrays["items"],
                conditions=arrays["conditions"],
                n=arrays["n"].astype(np.int64),
                missing=arrays["missing"].astype(np.int64),
                mean=arrays["mean"],
                within=arrays["within"],
                is_binary=bool(arrays["is_binary"]),
            )

    def find_lowest_score(self, low: float | None) -> float:
        """Return the worst score of a missing answer: the low end of the scale, or the lowest item mean."""
        if low is not None:
            return low
        return 0.0 if self.is_binary or not self.n.any() else float(np.nanmin(self.mean))

    def item_means(self) -> Floats:
        """Return the mean of the cell means. Each condition has the same weight, for any number of repetitions."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(self.n > 0, self.mean, 0.0).sum(axis=1) / (self.n > 0).sum(axis=1))

    def disagreement(self) -> Floats:
        """Return the standard deviation of the cell means between conditions; NaN for fewer than two conditions."""
        has_score = self.n > 0
        count = has_score.sum(axis=1)
        deviations = np.where(has_score, self.mean - self.item_means()[:, None], 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count > 1, np.sqrt((deviations**2).sum(axis=1) / (count - 1)), np.nan)

    def repetition_spread(self) -> Floats:
        """Return the standard deviation within cells, pooled over conditions; NaN without repetitions."""
        freedom = np.where(self.n > 1, self.n - 1, 0).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(freedom > 0, np.sqrt(self.within.sum(axis=1) / freedom), np.nan)

    def norm_distance(self, norms: Floats) -> Floats:
        """Return the mean absolute distance of cell means from the human norm. norms: (items,), NaN for no norm."""
        has_score = self.n > 0
        distances = np.where(has_score, np.abs(self.mean - norms[:, None]), 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(distances.sum(axis=1) / has_score.sum(axis=1))

    def find_differing_items(self) -> Mask:
        """Return the items whose mean scores differ between conditions."""
        has_score = self.n > 0
        highest = np.where(has_score, self.mean, -np.inf).max(axis=1, initial=-np.inf)
        lowest = np.where(has_score, self.mean, np.inf).min(axis=1, initial=np.inf)
        return np.asarray(highest - lowest > TOLERANCE)

    def find_failing_items(self) -> Mask:
        """Return the items with an answer that has no score or, if answers are right or wrong, is wrong."""
        failed = self.missing > 0
        if self.is_binary:
            failed |= (self.n > 0) & (self.mean < 1 - TOLERANCE)
        return np.asarray(failed.any(axis=1))

    def find_unsolved_items(self) -> Mask:
        """Return the items that have answers, but no right answer."""
        answered = (self.n + self.missing > 0).any(axis=1)
        return np.asarray(answered & ~((self.n > 0) & (self.mean > TOLERANCE)).any(axis=1))

    def find_items_mostly_answered(self, condition: int, *, right: bool) -> Mask:
        """Return the items that a condition answers right, or wrong, in more than half of its scored repetitions."""
        column = self.find_column(condition)
        mean = np.where(self.n[:, column] > 0, self.mean[:, column], np.nan)
        with np.errstate(invalid="ignore"):
            return np.asarray(mean > 0.5 + TOLERANCE if right else mean < 0.5 - TOLERANCE)

    def find_higher_items(self, a: int, b: int) -> Mask:
        """Return the items whose mean score is higher in condition a than in b."""
        has_both, change = self.pair_conditions(a, b)
        is_higher = np.zeros(len(self.items), dtype=np.bool_)
        is_higher[has_both] = change < -TOLERANCE
        return is_higher


def _shrink_counts(counts: Integers) -> NDArray[np.integer]:
    """Return the counts in the smallest unsigned type that holds them."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


def sort_positions(values: Floats, *, descending: bool = True) -> NDArray[np.intp]:
    """Return the positions sorted by value. Equal values keep their order; items without a value come last."""
    keys = -values if descending else values
    return np.argsort(np.where(np.isnan(keys), np.inf, keys), kind="stable")


SELECTIONS: dict[str, Callable[[ItemScores], Mask]] = {
    "failures": ItemScores.find_failing_items,
    "different": ItemScores.find_differing_items,
    "unsolved": ItemScores.find_unsolved_items,
}
