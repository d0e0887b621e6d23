"""The matrix of items and conditions: the selection and order of items, and the matrix as a table for files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from datasets_app.models import Item
from grading_app.results.closeness import load_norms
from grading_app.results.scope import Scope
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics import item_order
from grading_app.statistics.item_scores import Floats, ItemScores
from runs_app.annotations import list_flagged_items
from runs_app.models import Trial

MAX_ITEMS, MAX_CELLS, MAX_TRIALS = 50, 1_500, 10_000
"""Limits of one page, so that its size does not depend on the number of conditions and repetitions."""


@dataclass(frozen=True)
class ItemSelection:
    """Which items the matrix shows, and in which order.

    a, b: conditions that answer the items right and wrong, or None. For scores that are not right or wrong: a scores
    higher than b.
    """

    sort: str = "dataset"
    show: str = ""
    a: int | None = None
    b: int | None = None


def select_items(scope: Scope, scores: ItemScores, selection: ItemSelection) -> ItemScores:
    """Return the scores of the selected items, in the selected order."""
    selected = scores.select_items(_filter_items(scope, scores, selection))
    if selection.sort == "dataset":
        return selected
    if selection.sort == "disagreement":
        order = item_order.sort_positions(item_order.disagreement(selected))
    elif selection.sort == "repetitions":
        order = item_order.sort_positions(item_order.repetition_spread(selected))
    elif selection.sort == "norm":
        order = item_order.sort_positions(item_order.norm_distance(selected, load_norm_means(scope, selected)))
    else:
        order = item_order.sort_positions(item_order.item_means(selected), descending=selection.sort == "easiest")
    columns = {name: getattr(selected, name)[order] for name in ("items", "n", "missing", "mean", "within")}
    return ItemScores(conditions=selected.conditions, is_binary=selected.is_binary, **columns)


def _filter_items(scope: Scope, scores: ItemScores, selection: ItemSelection) -> item_order.Mask:
    is_selected = np.ones(len(scores.items), dtype=np.bool_)
    if selection.show == "flagged":
        is_selected &= np.isin(scores.items, list_flagged_items(scope.experiment))
    elif selection.show:
        is_selected &= item_order.SELECTIONS[selection.show](scores)
    if selection.show == "failures":
        runs = scope.experiment.answer_runs
        runs = runs.filter(wave=scope.wave) if scope.wave else runs
        runs = runs.filter(condition__in=scope.conditions) if scope.conditions else runs
        failed = Trial.objects.filter(run__in=list(runs.values_list("pk", flat=True)), status="failed")
        if scope.measure.dimension:
            failed = failed.filter(dimension=scope.measure.dimension)
        is_selected |= np.isin(scores.items, list(failed.order_by().values_list("item_id", flat=True).distinct()))
    a, b = selection.a, selection.b
    if not {a, b} <= {None, *scores.conditions.tolist()}:  # A condition without runs in this wave has no answers.
        return np.zeros_like(is_selected)
    if scores.is_binary:
        is_selected &= item_order.find_items_mostly_answered(scores, a, right=True) if a is not None else True
        is_selected &= item_order.find_items_mostly_answered(scores, b, right=False) if b is not None else True
    elif a is not None and b is not None:
        is_selected &= item_order.find_higher_items(scores, a, b)
    return is_selected


def load_norm_means(scope: Scope, scores: ItemScores) -> Floats:
    """Return the human mean of each item on the measure's dimension, (items,); NaN for items without a norm."""
    norms = load_norms(scope.experiment, scope.measure, scores.items)
    return norms.mean if norms else np.full(len(scores.items), np.nan)


def get_items_per_page(scores: ItemScores) -> int:
    """Return how many items fit on a page within its limits, but at least five."""
    conditions = max(1, len(scores.conditions))
    answers = scores.n + scores.missing
    repetitions = max(1.0, float(answers.sum()) / max(1, int((answers > 0).sum())))
    return int(max(5, min(MAX_ITEMS, MAX_CELLS / conditions, MAX_TRIALS / conditions / repetitions)))


def make_matrix_table(scope: Scope, scores: ItemScores, labels: Mapping[int, str]) -> ResultTable:
    """Return the mean scores as a table for files, with a row for each item and a column for each condition."""
    dataset_items = Item.objects.filter(dataset=scope.experiment.dataset_id).values_list("pk", "key", "category")
    names_by_item = {pk: (key, category) for pk, key, category in dataset_items.iterator()}
    norms = load_norm_means(scope, scores)
    has_norms = not np.isnan(norms).all()
    names = [labels[key] for key in scores.conditions.tolist()]
    columns = [
        ResultColumn("item", "Item"),
        ResultColumn("category", "Category"),
        *([ResultColumn("human_norm", "Human norm", "number")] if has_norms else []),
        *(ResultColumn(f"mean {name}", name, "number") for name in names),
    ]
    rows = []
    for row, key in enumerate(scores.items.tolist()):
        means = {f"mean {name}": mean for name, mean in zip(names, scores.mean[row].tolist(), strict=True)}
        rows.append(
            {"item": names_by_item[key][0], "category": names_by_item[key][1], "human_norm": norms[row], **means}
        )
    title = f"Mean {scope.measure.label} by item and condition"
    return ResultTable("matrix", title, columns, rows, formula="Each cell is the mean over waves and repetitions.")
