"""The items that tell most about the conditions: those on which scores differ most, with each condition's score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grading_app.results.closeness import load_norms
from grading_app.results.leaderboard import Leaderboard
from grading_app.results.scores import Measure
from grading_app.results.statistic_format import format_number, format_share
from grading_app.statistics import item_order
from grading_app.statistics.item_scores import ItemScores
from runs_app.models import Experiment

MAX_ITEMS = 10
MAX_COLUMNS = 6
"""With more conditions than this, only the highest and the lowest score of an item are shown."""
NO_SCORE = "no score"


@dataclass(frozen=True, slots=True)
class TellingItem:
    """One item. cells: the texts of its scores, as in the head."""

    pk: int
    cells: list[str]


@dataclass(frozen=True, slots=True)
class TellingItems:
    """Items in order. head: the labels of the cells. n: the number of all items with such a difference."""

    title: str
    note: str
    head: list[str]
    items: list[TellingItem]


def find_telling_items(
    board: Leaderboard, measure: Measure, scores: ItemScores, experiment: Experiment
) -> TellingItems | None:
    """Return the items on which the conditions differ most. A single condition has the items far from people, or those
    with the lowest scores. None without such an item.
    """
    labels = {row.condition: row.label for row in board.rows}
    scores = scores.select_conditions([key for key in labels if key in scores.conditions])
    norms = load_norms(experiment, measure, scores.items) if measure.is_rating else None
    if len(scores.conditions) > 1:
        spread = item_order.disagreement(scores)
        values = np.where(item_order.find_differing_items(scores), spread, np.nan)
        n_differing, n_common = (int((~np.isnan(each)).sum()) for each in (values, spread))
        title = "Items on which the conditions differ most"
        note = f"The conditions differ on {n_differing:,} of {n_common:,} items by {measure.label}."
        if n_common < len(scores.items):
            note += f" {len(scores.items) - n_common:,} more items have a score of one condition only, or none."
    elif norms:
        values = item_order.norm_distance(scores, norms.mean)
        title, note = "Items farthest from people", f"By {measure.label}."
    else:
        values = -item_order.item_means(scores)
        if measure.is_share:
            values = np.where(values > -1 + item_order.TOLERANCE, values, np.nan)
        title, note = "Items with the lowest scores", f"By {measure.label}."
    order = [row for row in item_order.sort_positions(values).tolist() if not np.isnan(values[row])][:MAX_ITEMS]
    if not order:
        return None
    is_wide = len(labels) > MAX_COLUMNS
    head = ["Highest", "Lowest"] if is_wide else [labels[key] for key in scores.conditions.tolist()]
    names = [labels[key] for key in scores.conditions.tolist()]
    items = []
    for row in order:
        texts = [
            _format_score(measure, int(n), float(mean)) for n, mean in zip(scores.n[row], scores.mean[row], strict=True)
        ]
        if is_wide:
            means = np.where(scores.n[row] > 0, scores.mean[row], np.nan)
            ends = (int(np.nanargmax(means)), int(np.nanargmin(means)))
            texts = [f"{names[at]}: {texts[at]}" for at in ends]
        people = [format_number(float(norms.mean[row]))] if norms and not np.isnan(norms.mean[row]) else ["–"]
        items.append(TellingItem(int(scores.items[row]), [*(people if norms else []), *texts]))
    return TellingItems(title, note, [*(["People"] if norms else []), *head], items)


def _format_score(measure: Measure, n: int, mean: float) -> str:
    if not n:
        return NO_SCORE
    if not measure.is_share:
        return format_number(mean)
    if n == 1:
        return "right" if mean else "wrong"
    return format_share(mean, 0)
