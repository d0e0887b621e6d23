"""Length bias of a judge: scores by the length of the answer with their figure, and wins of the longer of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalsite.lib.sql import fetch_rows
from grading_app.models import GradeCondition
from grading_app.results import plot_style
from grading_app.results.cached_aggregates import Aggregate
from grading_app.results.figure import Figure
from grading_app.results.raters.verdict_stats import VerdictQuery, make_verdict_aggregate
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.clusters import ClusterSums, Share, clustered_share

BINS = 8
MIN_BIN_SIZE = 3  # The plot shows only bins with at least this number of answers.

BY_LENGTH = """WITH verdict AS (
    SELECT r.condition_id AS of, char_length(t.answer) AS length, g.score
    FROM grading_app_grading g JOIN runs_app_trial t ON t.id = g.trial_id JOIN runs_app_run r ON r.id = t.run_id
    WHERE g.condition_id = %(condition)s AND g.score IS NOT NULL),
edges AS (SELECT percentile_disc(%(shares)s::float8[]) WITHIN GROUP (ORDER BY length) AS at FROM verdict)
SELECT of, width_bucket(length, edges.at) AS bin, count(*), min(length), max(length), avg(length)::float8,
    avg(score), regr_sxx(score, length), regr_syy(score, length), regr_sxy(score, length)
FROM verdict, edges GROUP BY GROUPING SETS ((1, 2), (1), ())"""
# The wins of the longer answer, by item, over verdicts that prefer one of two answers of different lengths.
LONGER_WINS = """WITH verdict AS (
    SELECT p.winner, a.item_id, char_length(a.answer) AS a, char_length(b.answer) AS b
    FROM grading_app_preference p JOIN runs_app_trial a ON a.id = p.trial_a_id
    JOIN runs_app_trial b ON b.id = p.trial_b_id
    WHERE p.condition_id = %(condition)s AND p.winner <> ''),
of_item AS (SELECT item_id, count(*) AS n, count(*) FILTER (WHERE (winner = 'a') = (a > b)) AS s
    FROM verdict WHERE winner <> 'tie' AND a <> b GROUP BY 1)
SELECT coalesce(sum(n), 0), coalesce(sum(s), 0), coalesce(sum(s), 0), count(*), coalesce(sum(s * s), 0),
    coalesce(sum(n * s), 0), coalesce(sum(n * n), 0), (SELECT count(*) FROM verdict WHERE winner = 'tie'),
    (SELECT count(*) FROM verdict WHERE winner <> 'tie' AND a = b) FROM of_item"""
MAX_PANELS = 24
PANEL_HEIGHT = 110


@dataclass(frozen=True, slots=True)
class LengthBin:
    """A bin of answers of similar length: their number, mean length in characters, and mean score."""

    n: int
    length: float
    score: float


@dataclass(frozen=True, slots=True)
class ScoresByLength:
    """Scores by the length of the answer.

    edges: the lengths of the shortest and longest answer of each bin. bins: condition -> number of the bin -> bin.
    r: Pearson's r over all n answers. within: r pooled within conditions, sum S_xy / sqrt(sum S_xx sum S_yy) over
    conditions; a better model that writes longer answers does not raise it. Both are None without variance.
    """

    edges: dict[int, tuple[int, int]]
    bins: dict[int, dict[int, LengthBin]]
    n: int
    r: float | None
    within: float | None


@dataclass(frozen=True, slots=True)
class LongerWins:
    """The share of verdicts that the longer answer won, with an interval over items.

    ties: verdicts for neither answer. equal: verdicts on answers of equal length. Neither enters the share.
    """

    share: Share | None
    ties: int
    equal: int


def measure_length_bias(condition: GradeCondition) -> ScoresByLength | LongerWins:
    if condition.is_pairwise:
        *sums, ties, equal = fetch_rows(LONGER_WINS, {"condition": condition.pk})[0]
        return LongerWins(clustered_share(ClusterSums(*map(float, sums))), ties, equal)
    shares = [bin_number / BINS for bin_number in range(1, BINS)]
    rows = fetch_rows(BY_LENGTH, {"condition": condition.pk, "shares": shares})
    edges: dict[int, tuple[int, int]] = {}
    bins: dict[int, dict[int, LengthBin]] = {}
    for condition_id, bin_number, n, low, high, length, score, *_ in rows:
        if bin_number is not None:
            previous = edges.get(bin_number, (low, high))
            edges[bin_number] = min(low, previous[0]), max(high, previous[1])
            bins.setdefault(condition_id, {})[bin_number] = LengthBin(n, length, score)
    total_rows = [row for row in rows if row[0] is None]
    condition_moments = [row[-3:] for row in rows if row[0] is not None and row[1] is None]
    n = total_rows[0][2] if total_rows else 0
    return ScoresByLength(
        dict(sorted(edges.items())),
        dict(sorted(bins.items())),
        n,
        _compute_r([row[-3:] for row in total_rows]),
        _compute_r(condition_moments),
    )


def _compute_r(moments: Sequence[Sequence[Any]]) -> float | None:
    """Return Pearson's r from rows of (S_xx, S_yy, S_xy), each about its own means. None without variance."""
    xx, yy, xy = (sum(row[at] or 0.0 for row in moments) for at in range(3))
    return xy / math.sqrt(xx * yy) if xx > 0 and yy > 0 else None


LENGTHS: Aggregate[VerdictQuery, ScoresByLength | LongerWins] = make_verdict_aggregate(
    "lengths",
    ScoresByLength | LongerWins,
    lambda conditions, _among: {condition.pk: measure_length_bias(condition) for condition in conditions},
    lambda condition, _among: [condition.pk],
)


if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def make_length_figure(name: str, grader: str, lengths: ScoresByLength, labels: dict[int, str]) -> Figure | None:
    """Return the figure of one grade condition; None without a score. labels: of the conditions."""
    if not lengths.bins:
        return None
    title = f"{grader}: score by length of the answer"
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("characters", "Characters"),
        ResultColumn("answers", "Answers", "count"),
        ResultColumn("mean_score", "Mean score", "number"),
    ]
    rows = [
        {
            "condition": labels.get(condition, str(condition)),
            "characters": f"{low:,} to {high:,}",
            "answers": length_bin.n,
            "mean_score": length_bin.score,
        }
        for condition, bins in lengths.bins.items()
        for number, (low, high) in lengths.edges.items()
        if (length_bin := bins.get(number))
    ]
    return Figure(
        name,
        title,
        "Mean score of answers in up to eight groups of similar length, the same for all conditions. Groups of fewer "
        f"than {MIN_BIN_SIZE} answers are not drawn.",
        f"Mean score by length of the answer, scored by {grader}. The table holds the numbers.",
        lambda width: (width, _make_grid(lengths, width).height),
        lambda width: _draw(lengths, labels, _make_grid(lengths, width)),
        lambda: ResultTable(name, title, columns, rows),
        page="grading_length",
    )


def _make_grid(lengths: ScoresByLength, width: int) -> plot_style.Grid:
    panels = min(MAX_PANELS, len(lengths.bins))
    columns = max(1, min(3, panels, width // 200))
    return plot_style.Grid(
        panels, columns, width, panel_height=PANEL_HEIGHT, left=44, right=16, top=26, bottom=44, gap_x=56, gap_y=64
    )


def _draw(lengths: ScoresByLength, labels: dict[int, str], grid: plot_style.Grid) -> Drawing:
    """Draw a panel for each condition, all on the same scale. Bins of fewer than MIN_BIN_SIZE answers are not drawn."""
    figure, axes = grid.make_panels()
    all_bins = [length_bin for bins in lengths.bins.values() for length_bin in bins.values()]
    scores = [length_bin.score for length_bin in all_bins if length_bin.n >= MIN_BIN_SIZE] or [0.0, 1.0]
    margin_y = 0.08 * (max(scores) - min(scores)) or 0.5
    mean_lengths = [length_bin.length for length_bin in all_bins]
    margin_x = 0.06 * (max(mean_lengths) - min(mean_lengths)) or 0.5
    for index, (axis, (condition, bins)) in enumerate(zip(axes, lengths.bins.items(), strict=False)):
        plot_style.draw_gridlines(axis, "y")
        shown = [length_bin for _, length_bin in sorted(bins.items()) if length_bin.n >= MIN_BIN_SIZE]
        axis.plot(
            [length_bin.length for length_bin in shown],
            [length_bin.score for length_bin in shown],
            color=plot_style.DATA,
            marker="o",
            markersize=5 * plot_style.PIXEL,
            linewidth=1.5 * plot_style.PIXEL,
        )
        axis.set(
            xlim=(min(mean_lengths) - margin_x, max(mean_lengths) + margin_x),
            ylim=(min(scores) - margin_y, max(scores) + margin_y),
        )
        plot_style.write_head(axis, plot_style.shorten(labels.get(condition, str(condition)), 0.88 * grid.panel_width))
        if index >= grid.panels - grid.columns:
            axis.set_xlabel("Characters", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    return figure
