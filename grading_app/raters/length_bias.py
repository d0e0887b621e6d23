"""Length bias of a judge: scores by the length of the answer, and how often the longer answer of a pair wins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalsite.lib.sql import fetch_rows
from grading_app.models import GradeCondition
from grading_app.raters.verdict_aggregates import GradeConditions, make_verdict_aggregate
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
    return _count_longer_wins(condition) if condition.is_pairwise else _score_by_length(condition)


def _score_by_length(condition: GradeCondition) -> ScoresByLength:
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


def _count_longer_wins(condition: GradeCondition) -> LongerWins:
    *sums, ties, equal = fetch_rows(LONGER_WINS, {"condition": condition.pk})[0]
    return LongerWins(clustered_share(ClusterSums(*map(float, sums))), ties, equal)


def _measure_all(
    conditions: Sequence[GradeCondition], _among: GradeConditions
) -> dict[int, ScoresByLength | LongerWins]:
    return {condition.pk: measure_length_bias(condition) for condition in conditions}


LENGTHS = make_verdict_aggregate(
    "lengths", ScoresByLength | LongerWins, _measure_all, lambda condition, _among: [condition.pk]
)
