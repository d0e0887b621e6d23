"""The scores of two sides over their common items, and the result of their comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalsite.lib.sql import fetch_rows
from grading_app.comparison.condition_sides import ConditionSide
from grading_app.reports.cached_aggregates import Cached
from grading_app.reports.score_matrix import Measure
from grading_app.reports.stored_scores import EncodedScores, get_item_scores
from grading_app.statistics.condition_pairs import ALIKE, ConditionPair, compare_conditions
from grading_app.statistics.intervals import SHARE_BOUNDS, Bounds
from grading_app.statistics.item_scores import Floats, ItemScores, Whole

A, B = 0, 1
# What a model and a rule see of an item. Other fields may differ between datasets.
SAME_ITEMS = """SELECT a.id, b.id,
        (a.input, a.image_id, a.target, a.choices, a.grading_scheme)
            IS NOT DISTINCT FROM (b.input, b.image_id, b.target, b.choices, b.grading_scheme)
    FROM datasets_app_item a JOIN datasets_app_item b ON b.key = a.key
    WHERE a.dataset_id = %(a)s AND b.dataset_id = %(b)s"""


@dataclass(frozen=True, eq=False)
class PairedScores:
    """The scores of two sides. Rows are the items that both datasets have, in A's order; columns are A and B.

    items_b: the primary keys of the same items in B's dataset. only_a, only_b: items that have a score on one side
    alone. unlike: items that have one key in both datasets, but another text, image or target; they are left out.
    missing_a, missing_b: answers without a score.
    """

    scores: ItemScores
    items_b: Whole
    bounds: Bounds | None
    only_a: int
    only_b: int
    unlike: int
    missing_a: int
    missing_b: int

    @property
    def is_share(self) -> bool:
        """True if all scores are 0 or 1, so that their means are shares of right answers."""
        return self.scores.is_binary and self.bounds in (None, SHARE_BOUNDS)

    @property
    def differences(self) -> Floats:
        """B minus A by item; NaN without a score on one side."""
        difference: Floats = self.scores.mean[:, B] - self.scores.mean[:, A]
        return difference

    @property
    def pair(self) -> ConditionPair | None:
        return compare_conditions(self.scores, A, B, SHARE_BOUNDS if self.is_share else self.bounds)

    def select(self, name: str) -> NDArray[np.intp]:
        """Return the rows of a filter, by the size of their change and then in the order of the dataset."""
        change = self.differences
        mean = self.scores.mean
        known = ~np.isnan(change)
        chosen = {
            "all": known,
            "gained": known & (np.nan_to_num(change) > ALIKE),
            "lost": known & (np.nan_to_num(change) < -ALIKE),
            "both_right": known & (mean[:, A] == 1) & (mean[:, B] == 1),
            "both_wrong": known & (mean[:, A] == 0) & (mean[:, B] == 0),
            "equal": known & (np.abs(np.nan_to_num(change)) <= ALIKE),
        }[name]
        rows = np.flatnonzero(chosen)
        return rows[np.argsort(-np.abs(change[rows]), kind="stable")]


def get_side_scores(
    a: ConditionSide, b: ConditionSide, measures: tuple[Measure, Measure]
) -> list[Cached[EncodedScores]]:
    """Return the stored scores of both sides; a value is None until a worker has computed the first one.

    `measures` are the same measure in both experiments.
    """
    return [get_item_scores(one.experiment, measure, one.wave) for one, measure in zip((a, b), measures, strict=True)]


def pair_scores(
    a: ConditionSide,
    b: ConditionSide,
    measure: Measure,
    scores: tuple[ItemScores, ItemScores],
    *,
    missing_is_wrong: bool,
) -> PairedScores:
    """Return the scores of both sides over their common items. `scores` are those of both experiments."""
    one, other = _select_side(a, scores[0]), _select_side(b, scores[1])
    low = measure.low if measure.low is not None else 0.0
    missing = int(one.missing.sum()), int(other.missing.sum())
    if missing_is_wrong:
        one, other = one.fill_missing(low), other.fill_missing(low)
    one, other = one.pool(), other.pool()
    at_a, at_b, unlike = _match_items(a, b, one.items, other.items)
    joined = ItemScores(
        items=one.items[at_a],
        conditions=np.array([A, B]),
        n=np.hstack([one.n[at_a], other.n[at_b]]),
        missing=np.hstack([one.missing[at_a], other.missing[at_b]]),
        mean=np.hstack([one.mean[at_a], other.mean[at_b]]),
        within=np.hstack([one.within[at_a], other.within[at_b]]),
        is_binary=one.is_binary and other.is_binary,
    )
    both = int(((joined.n[:, A] > 0) & (joined.n[:, B] > 0)).sum())
    return PairedScores(
        joined,
        other.items[at_b],
        None if measure.low is None or measure.high is None else (measure.low, measure.high),
        int((one.n > 0).sum()) - both,
        int((other.n > 0).sum()) - both,
        unlike,
        *missing,
    )


def _select_side(side: ConditionSide, scores: ItemScores) -> ItemScores:
    keys = [one.pk for one in side.conditions if one.pk in scores.conditions]
    if not keys:
        return ItemScores.from_rows([], [], [side.conditions[0].pk], is_binary=scores.is_binary)
    return scores.select_conditions(keys)


def _match_items(
    a: ConditionSide, b: ConditionSide, items_a: Whole, items_b: Whole
) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """Return the places of the common items in both arrays, in A's order, and the number of unlike items."""
    if a.experiment.dataset_id == b.experiment.dataset_id:
        _, at_a, at_b = np.intersect1d(items_a, items_b, assume_unique=True, return_indices=True)
        order = np.argsort(at_a)
        return at_a[order], at_b[order], 0
    keys = {"a": a.experiment.dataset_id, "b": b.experiment.dataset_id}
    rows = {one: (other, is_same) for one, other, is_same in fetch_rows(SAME_ITEMS, keys)}
    place = {int(key): at for at, key in enumerate(items_b)}
    found = [(at, place.get(rows[int(key)][0]), rows[int(key)][1]) for at, key in enumerate(items_a) if key in rows]
    same = [(at, other) for at, other, is_same in found if is_same and other is not None]
    unlike = sum(not is_same and other is not None for _, other, is_same in found)
    pairs = np.array(same, dtype=np.intp).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1], unlike
