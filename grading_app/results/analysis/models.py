"""Between models: the similarity of the conditions' scores, and the items on which all conditions fail."""

from __future__ import annotations

import warnings
from itertools import combinations

import numpy as np

from grading_app.results.analysis.data import AnalysisData
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.correlation import pearson
from grading_app.statistics.intervals import describe_correlation_coverage
from grading_app.statistics.item_scores import Floats

MAX_PAIRS = 300
MAX_ITEMS = 50
MIN_ITEMS = 3


def build_model_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the tables; none for a single condition."""
    if len(data.conditions) < 2:
        return []
    tables = [_build_similarity_table(data), _build_cluster_table(data), _build_spread_table(data)]
    if data.is_share:
        has_score = (data.scores.n > 0).sum(axis=1)
        is_failed = (has_score > 1) & (np.nan_to_num(data.scores.mean).max(axis=1, initial=0.0) == 0)
        failed_rows = np.flatnonzero(is_failed)
        rows = [
            {"item": data.keys[row], "category": data.categories[row] or None, "answers": int(data.scores.n[row].sum())}
            for row in failed_rows[:MAX_ITEMS]
        ]
        failure_table = ResultTable(
            "failed_by_all",
            "Items that every condition answered wrong",
            [
                ResultColumn("item", "Item"),
                ResultColumn("category", "Category"),
                ResultColumn("answers", "Answers", "count"),
            ],
            rows,
            sentence=f"{len(failed_rows)} of {len(data.keys)} items were always answered wrong by every condition.",
            notes=[
                "A wrong target has the same effect. Check these items first.",
                f"At most {MAX_ITEMS} items are listed.",
            ],
        )
        tables.append(failure_table)
    return [table for table in tables if table.rows]


def _build_similarity_table(data: AnalysisData) -> ResultTable:
    rows = []
    for a, b in combinations(range(len(data.conditions)), 2):
        has_both = (data.scores.n[:, a] > 0) & (data.scores.n[:, b] > 0)
        x, y = data.scores.mean[has_both, a], data.scores.mean[has_both, b]
        if len(x) < MIN_ITEMS:
            continue
        r = pearson(x, y)
        rows.append(
            {
                "a": data.labels[data.conditions[a]],
                "b": data.labels[data.conditions[b]],
                "items": len(x),
                "r": r.r if r else None,
                "r_ci": (r.low, r.high) if r and r.low is not None else None,
                "same": float((np.abs(x - y) < 1e-9).mean()),
                "distance": float(np.abs(x - y).mean()),
            }
        )
    rows.sort(key=lambda row: -(row["r"] if row["r"] is not None else -2.0))  # type: ignore[operator]
    coverage = describe_correlation_coverage(row["items"] for row in rows)  # type: ignore[misc]
    truncation_notes = (
        [f"Only the {MAX_PAIRS} of {len(rows)} pairs with the highest r are listed."] if len(rows) > MAX_PAIRS else []
    )
    return ResultTable(
        "similarity",
        "Similarity of conditions",
        [
            ResultColumn("a", "A"),
            ResultColumn("b", "B"),
            ResultColumn("items", "Common items", "count"),
            ResultColumn("r", "Pearson's r", "coefficient"),
            ResultColumn("r_ci", "95 % interval", "interval"),
            ResultColumn("same", "Same score", "share"),
            ResultColumn("distance", "Mean distance", "number"),
        ],
        rows[:MAX_PAIRS],
        formula="Pearson's r of cell means over common items, with the wider of Fisher's and the jackknife's interval.",
        notes=[*truncation_notes, *([coverage] if coverage else [])],
    )


def _build_cluster_table(data: AnalysisData) -> ResultTable:
    """Return the steps of a hierarchical clustering of conditions, the closest first."""
    from scipy.cluster.hierarchy import linkage

    complete = (data.scores.n > 0).all(axis=1)
    names = [data.labels[first] for first in data.conditions]
    columns = [
        ResultColumn("step", "Step", "count"),
        ResultColumn("members", "Conditions in the group"),
        ResultColumn("distance", "Mean distance", "number"),
    ]
    title = "Groups of conditions with similar scores"
    if complete.sum() < MIN_ITEMS or len(names) < 3:
        return ResultTable("groups", title, columns, [])
    linkage_steps = linkage(data.scores.mean[complete].T, method="average", metric="cityblock")
    members = {index: [name] for index, name in enumerate(names)}
    rows = []
    for step, (first, second, distance, _) in enumerate(linkage_steps):
        members[len(names) + step] = members[int(first)] + members[int(second)]
        joined = ", ".join(members[len(names) + step])
        rows.append({"step": step + 1, "members": joined, "distance": float(distance) / int(complete.sum())})
    joins = [
        [int(first), int(second), row["distance"]] for (first, second, *_), row in zip(linkage_steps, rows, strict=True)
    ]
    return ResultTable(
        "groups",
        title,
        columns,
        rows,
        formula="Hierarchical clustering by average linkage. The distance of two conditions is the mean absolute "
        f"difference of cell means over {int(complete.sum())} items.",
        data={"labels": names, "joins": joins},
    )


def _build_spread_table(data: AnalysisData) -> ResultTable:
    """Return the items on which the conditions differ most."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # Items with a single score have no SD.
        sd: Floats = np.nanstd(data.scores.mean, axis=1, ddof=1)
    order = np.argsort(-np.nan_to_num(sd, nan=-1.0))[:MAX_ITEMS]
    rows = [
        {
            "item": data.keys[row],
            "sd": float(sd[row]),
            "lowest": float(np.nanmin(data.scores.mean[row])),
            "highest": float(np.nanmax(data.scores.mean[row])),
        }
        for row in order
        if sd[row] > 0
    ]
    return ResultTable(
        "disputed_items",
        "Items on which conditions differ most",
        [
            ResultColumn("item", "Item"),
            ResultColumn("sd", "SD over conditions", "number"),
            ResultColumn("lowest", "Lowest mean", "number"),
            ResultColumn("highest", "Highest mean", "number"),
        ],
        rows,
        notes=[f"At most {MAX_ITEMS} items."],
    )
