"""The scores of two sides over their common items, the result of their comparison, and the answers side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from django.db.models.functions import Left, Length
from django.urls import reverse
from numpy.typing import NDArray

from datasets_app.models import Item
from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.diff import Piece, compare_words
from evalsite.lib.text.number_format import format_score
from grading_app.models import AnswerScore
from grading_app.results import statistic_format
from grading_app.results.cached_aggregates import Cached
from grading_app.results.comparison.condition_sides import ConditionSide
from grading_app.results.scores import ConditionScore, Measure, estimate_pair
from grading_app.results.stored_results import EncodedScores, get_item_scores
from grading_app.statistics.condition_pairs import (
    LEVEL,
    TOLERANCE,
    ConditionPair,
    MissingVerdicts,
    PairOfDesign,
    check_missing,
    compare_conditions,
    correct_pair,
)
from grading_app.statistics.fixed_items import FixedItemsChange, estimate_sides_on_these_items
from grading_app.statistics.item_scores import Floats, Integers, ItemScores
from runs_app.models import Run, Trial

A, B = 0, 1
# The fields that models and rules use. Other fields of an item may differ between datasets.
SAME_ITEMS = """SELECT a.id, b.id,
        (a.input, a.image_id, a.target, a.choices, a.grading_scheme)
            IS NOT DISTINCT FROM (b.input, b.image_id, b.target, b.choices, b.grading_scheme)
    FROM datasets_app_item a JOIN datasets_app_item b ON b.key = a.key
    WHERE a.dataset_id = %(a)s AND b.dataset_id = %(b)s"""
MAX_LENGTH = 1_500
"""The number of characters of an answer that the page shows and compares."""
MAX_QUESTION_LENGTH = 400


@dataclass(frozen=True, eq=False)
class PairedScores:
    """The scores of two sides. Rows are the items that both datasets have, in A's order; columns are A and B.

    measure: the common measure, settled by these scores. items_b: the primary keys of the same items in B's dataset.
    only_a, only_b: the number of items with a score on one side only.
    unlike: the number of items with the same key in both datasets, but another text, image or target. They are
    excluded.
    missing_a, missing_b: the number of answers without a score.
    cells: the scores of A and of B over the same rows, with a column for each of their conditions.
    """

    scores: ItemScores
    measure: Measure
    items_b: Integers
    only_a: int
    only_b: int
    unlike: int
    missing_a: int
    missing_b: int
    cells: tuple[ItemScores, ItemScores]

    @property
    def differences(self) -> Floats:
        """B minus A for each item; NaN if a side has no score."""
        difference: Floats = self.scores.mean[:, B] - self.scores.mean[:, A]
        return difference

    @property
    def pair(self) -> ConditionPair | None:
        return compare_conditions(self.scores, A, B, self.measure.bounds)

    @property
    def sides(self) -> tuple[ConditionScore, ConditionScore]:
        """The means of A and B over their common items."""
        return estimate_pair(self.scores, self.measure, A, B)

    @property
    def on_these_items(self) -> FixedItemsChange | None:
        ends = self.measure.bounds
        return estimate_sides_on_these_items(*self.cells, ends[1] - ends[0] if ends else None)

    def check_missing(self, pair: ConditionPair) -> MissingVerdicts:
        """Return whether the verdict on the pair depends on answers without a score."""
        verdict = pair.change.verdict(LEVEL)
        return check_missing(self.scores, A, B, self.measure.bounds, verdict, at_ends=self.measure.is_rating)

    def select(self, name: str) -> NDArray[np.intp]:
        """Return the rows that match a filter, the largest change first, then in the order of the dataset."""
        change = self.differences
        mean = self.scores.mean
        is_paired = ~np.isnan(change)
        is_selected = {
            "all": is_paired,
            "gained": is_paired & (np.nan_to_num(change) > TOLERANCE),
            "lost": is_paired & (np.nan_to_num(change) < -TOLERANCE),
            "both_right": is_paired & (mean[:, A] == 1) & (mean[:, B] == 1),
            "both_wrong": is_paired & (mean[:, A] == 0) & (mean[:, B] == 0),
            "equal": is_paired & (np.abs(np.nan_to_num(change)) <= TOLERANCE),
        }[name]
        rows = np.flatnonzero(is_selected)
        return rows[np.argsort(-np.abs(change[rows]), kind="stable")]


def get_side_scores(
    a: ConditionSide, b: ConditionSide, measures: tuple[Measure, Measure]
) -> list[Cached[EncodedScores]]:
    """Return the stored scores of both sides. A value is None until a worker has computed the first one.

    measures: the common measure, as A's and as B's experiment has it.
    """
    return [
        get_item_scores(side.experiment, measure, side.wave) for side, measure in zip((a, b), measures, strict=True)
    ]


def pair_scores(
    a: ConditionSide,
    b: ConditionSide,
    measure: Measure,
    scores: tuple[ItemScores, ItemScores],
    *,
    missing_is_wrong: bool,
) -> PairedScores:
    """Return the scores of both sides over their common items. scores: the scores of both experiments."""
    scores_a, scores_b = _select_side(a, scores[0]), _select_side(b, scores[1])
    missing = int(scores_a.missing.sum()), int(scores_b.missing.sum())
    if missing_is_wrong:
        low = measure.lowest
        scores_a, scores_b = scores_a.fill_missing(low), scores_b.fill_missing(low)
    cells_a, cells_b = scores_a, scores_b
    scores_a, scores_b = scores_a.pool(), scores_b.pool()
    at_a, at_b, unlike = _match_items(a, b, scores_a.items, scores_b.items)
    joined = ItemScores(
        items=scores_a.items[at_a],
        conditions=np.array([A, B]),
        n=np.hstack([scores_a.n[at_a], scores_b.n[at_b]]),
        missing=np.hstack([scores_a.missing[at_a], scores_b.missing[at_b]]),
        mean=np.hstack([scores_a.mean[at_a], scores_b.mean[at_b]]),
        within=np.hstack([scores_a.within[at_a], scores_b.within[at_b]]),
        is_binary=scores_a.is_binary and scores_b.is_binary,
    )
    n_common = int(((joined.n[:, A] > 0) & (joined.n[:, B] > 0)).sum())
    return PairedScores(
        joined,
        measure.settle(joined),
        scores_b.items[at_b],
        int((scores_a.n > 0).sum()) - n_common,
        int((scores_b.n > 0).sum()) - n_common,
        unlike,
        *missing,
        cells=(cells_a.select_items(at_a), cells_b.select_items(at_b)),
    )


def correct_for_design(
    a: ConditionSide, b: ConditionSide, measure: Measure, scores: ItemScores, *, missing_is_wrong: bool
) -> PairOfDesign | None:
    """Return the place of a pair of conditions among all pairs of its design, as Analysis and the report test them.

    None unless both sides are single conditions of one experiment and wave. scores: of all conditions.
    """
    keys = a.conditions[0].pk, b.conditions[0].pk
    is_one_design = a.experiment == b.experiment and a.wave == b.wave and not a.is_whole and not b.is_whole
    if not is_one_design or not set(keys) <= set(scores.conditions.tolist()):
        return None
    table = scores.fill_missing(measure.lowest) if missing_is_wrong else scores
    settled = measure.settle(table)
    return correct_pair(replace(table, is_binary=settled.is_share), *keys, settled.bounds)


def _select_side(side: ConditionSide, scores: ItemScores) -> ItemScores:
    keys = [condition.pk for condition in side.conditions if condition.pk in scores.conditions]
    if not keys:
        return ItemScores.from_rows([], [], [side.conditions[0].pk], is_binary=scores.is_binary)
    return scores.select_conditions(keys)


def _match_items(
    a: ConditionSide, b: ConditionSide, items_a: Integers, items_b: Integers
) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """Return the positions of the common items in both arrays, in A's order, and the number of unlike items."""
    if a.experiment.dataset_id == b.experiment.dataset_id:
        _, at_a, at_b = np.intersect1d(items_a, items_b, assume_unique=True, return_indices=True)
        order = np.argsort(at_a)
        return at_a[order], at_b[order], 0
    keys = {"a": a.experiment.dataset_id, "b": b.experiment.dataset_id}
    rows = {item_a: (item_b, is_same) for item_a, item_b, is_same in fetch_rows(SAME_ITEMS, keys)}
    positions_b = {int(key): at for at, key in enumerate(items_b)}
    matches = [
        (at, positions_b.get(rows[int(key)][0]), rows[int(key)][1]) for at, key in enumerate(items_a) if key in rows
    ]
    same_items = [(at, position_b) for at, position_b, is_same in matches if is_same and position_b is not None]
    unlike = sum(not is_same and position_b is not None for _, position_b, is_same in matches)
    pairs = np.array(same_items, dtype=np.intp).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1], unlike


@dataclass(frozen=True)
class ComparedAnswer:
    """One side's answer to an item; with repetitions, the first answer.

    mean: the mean score of all n repetitions. score: the score of this answer; None if it could not be read.
    """

    trial: int | None
    pieces: Sequence[Piece]
    length: int
    score: float | None
    mean: float
    n: int
    cost_usd: Decimal | None
    latency_s: float | None
    is_share: bool
    shown: int = MAX_LENGTH

    @property
    def is_cut(self) -> bool:
        return self.length > MAX_LENGTH

    @property
    def score_text(self) -> str:
        if self.score is None:
            return "No score"
        if self.is_share and self.score in (0, 1):
            return "Right" if self.score else "Wrong"
        return format_score(self.score)

    @property
    def mean_text(self) -> str:
        return statistic_format.format_share(self.mean) if self.is_share else statistic_format.format_number(self.mean)


@dataclass(frozen=True)
class ComparedItem:
    """An item with both answers. change: B minus A, of the means over repetitions."""

    item: Item
    question: str
    change: float
    a: ComparedAnswer
    b: ComparedAnswer
    is_same: bool

    @property
    def sides(self) -> list[tuple[str, ComparedAnswer]]:
        return [("A", self.a), ("B", self.b)]

    @property
    def address(self) -> str:
        """The address of B's answer, or of A's if B has none."""
        return reverse("trial_detail", args=[self.b.trial or self.a.trial])

    @property
    def change_text(self) -> str:
        if abs(self.change) <= TOLERANCE:
            return "Equal"
        if self.a.is_share and abs(self.change) == 1:
            return "Gained: only B is right" if self.change > 0 else "Lost: only A is right"
        text = (
            statistic_format.format_points(self.change)
            if self.a.is_share
            else statistic_format.format_number(self.change)
        )
        return f"B − A: {statistic_format.add_sign(text)}"


def load_compared_items(
    a: ConditionSide, b: ConditionSide, measures: tuple[Measure, Measure], paired: PairedScores, rows: Any
) -> list[Any]:
    """Return the items in these rows of `paired`, in this order, in a constant number of queries."""
    keys_a = [int(paired.scores.items[row]) for row in rows]
    keys_b = [int(paired.items_b[row]) for row in rows]
    questions = Item.objects.annotate(question=Left("input", MAX_QUESTION_LENGTH)).select_related("image", "dataset")
    items: dict[int, Any] = questions.defer("input", "metadata", "grading_scheme").in_bulk(keys_a)
    trials_a, trials_b = _load_first_trials(a, measures[0], keys_a), _load_first_trials(b, measures[1], keys_b)
    compared = []
    for row, key_a, key_b in zip(rows, keys_a, keys_b, strict=True):
        trial_a, trial_b = trials_a.get(key_a), trials_b.get(key_b)
        texts = (trial_a.excerpt if trial_a else "", trial_b.excerpt if trial_b else "")
        pieces = compare_words(*texts)
        compared.append(
            ComparedItem(
                items[key_a],
                items[key_a].question,
                float(paired.differences[row]),
                _make_answer(trial_a, pieces[0], paired, row, A),
                _make_answer(trial_b, pieces[1], paired, row, B),
                texts[0] == texts[1],
            )
        )
    return compared


def _load_first_trials(side: ConditionSide, measure: Measure, items: list[int]) -> dict[int, Any]:
    """Return the first answer to each item by item, with its score on the measure."""
    runs = Run.objects.filter(condition__in=side.conditions)
    runs = runs if side.wave is None else runs.filter(wave=side.wave)
    trials = Trial.objects.filter(run__in=list(runs.values_list("pk", flat=True)), item__in=items, status="done")
    if measure.dimension is not None:
        trials = trials.filter(dimension=measure.dimension)
    trials = trials.annotate(excerpt=Left("answer", MAX_LENGTH), length=Length("answer")).order_by(
        "item_id", "sample_idx", "dimension_id", "pk"
    )
    fields = ("item_id", "rating", "cost_usd", "latency_ms")
    found: Iterable[Any] = trials.distinct("item_id").only(*fields)
    trials_by_item: dict[int, Any] = {trial.item_id: trial for trial in found}
    keys = [trial.pk for trial in trials_by_item.values()]
    graded = AnswerScore.objects.filter(trial__in=keys, grader_kind=measure.kind, grader_id=measure.grader)
    scores = dict(graded.values_list("trial", "score"))
    for trial in trials_by_item.values():
        trial.score = scores.get(trial.pk)
    return trials_by_item


def _make_answer(trial: Any, pieces: Sequence[Piece], paired: PairedScores, row: int, column: int) -> ComparedAnswer:
    mean, n = float(paired.scores.mean[row, column]), int(paired.scores.n[row, column])
    if trial is None:
        return ComparedAnswer(None, (), 0, None, mean, n, None, None, paired.measure.is_share)
    seconds = None if trial.latency_ms is None else trial.latency_ms / 1000
    return ComparedAnswer(
        trial.pk, pieces, trial.length, trial.score, mean, n, trial.cost_usd, seconds, paired.measure.is_share
    )
