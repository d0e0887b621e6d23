"""Statistics of pairwise verdicts: order bias, and the strengths of conditions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalsite.lib.sql import fetch_rows
from grading_app.models import GradeCondition
from grading_app.results.raters.verdict_stats import GradeConditions, make_verdict_aggregate
from grading_app.results.statistic_format import format_share, format_share_interval
from grading_app.statistics.clusters import ClusterSums
from grading_app.statistics.intervals import SHARE, SHARE_BOUNDS, ScoreEstimate, describe_coverage, estimate_mean
from runs_app.models.conditions import make_condition_labels

RESAMPLES = 400
SEED = 1
SMOOTHING = 0.5

# The readable verdicts. for_first: 1 if the answer shown first won, -1 if the second won, 0 for a tie.
CHOICES = """SELECT p.condition_id AS rater, p.trial_a_id AS a, p.trial_b_id AS b,
        CASE p.winner WHEN 'tie' THEN 0 WHEN 'a' THEN 1 ELSE -1 END AS for_first
    FROM grading_app_preference p WHERE p.condition_id = ANY(%(conditions)s) AND p.winner <> ''"""
SUMS = """coalesce(sum(n), 0), coalesce(sum(s), 0), coalesce(sum(s), 0), count(*)::float8, coalesce(sum(s * s), 0),
    coalesce(sum(n * s), 0), coalesce(sum(n * n), 0)"""
# By item: the pairs that were seen in both orders, how many verdicts changed with the order, and which position
# gained. Then all verdicts except ties, and how many chose the answer shown first.
ORDERS = f"""WITH verdict AS ({CHOICES}), placed AS (
    SELECT verdict.*, t.item_id AS item FROM verdict JOIN runs_app_trial t ON t.id = verdict.a),
pairs AS (
    SELECT rater, item, least(a, b) AS low, greatest(a, b) AS high, count(*) AS orders,
        min(CASE WHEN a < b THEN for_first ELSE -for_first END) AS least_side,
        max(CASE WHEN a < b THEN for_first ELSE -for_first END) AS most_side,
        sum(for_first) AS for_first
    FROM placed GROUP BY 1, 2, 3, 4),
flips AS (
    SELECT item, count(*)::float8 AS n, (count(*) FILTER (WHERE least_side <> most_side))::float8 AS s,
        count(*) FILTER (WHERE for_first > 0) AS for_first, count(*) FILTER (WHERE for_first < 0) AS for_second
    FROM pairs WHERE orders = 2 GROUP BY 1),
firsts AS (
    SELECT item, count(*)::float8 AS n, (count(*) FILTER (WHERE for_first > 0))::float8 AS s
    FROM placed WHERE for_first <> 0 GROUP BY 1)
SELECT 'flips', {SUMS}, coalesce(sum(for_first), 0)::bigint, coalesce(sum(for_second), 0)::bigint FROM flips
UNION ALL SELECT 'firsts', {SUMS}, 0, 0 FROM firsts"""  # noqa: S608 - fixed text
# How often each condition won against each other condition on an item; a tie is half a win for both. Items with the
# same tally share a row, so the number of rows depends on the number of distinct tallies, not of verdicts.
TALLIES = f"""WITH verdict AS ({CHOICES}), met AS (
    SELECT ta.item_id AS item, least(ra.condition_id, rb.condition_id) AS low,
        greatest(ra.condition_id, rb.condition_id) AS high,
        (1 + CASE WHEN ra.condition_id < rb.condition_id THEN verdict.for_first ELSE -verdict.for_first END) / 2.0
            AS won
    FROM verdict JOIN runs_app_trial ta ON ta.id = verdict.a JOIN runs_app_trial tb ON tb.id = verdict.b
    JOIN runs_app_run ra ON ra.id = ta.run_id JOIN runs_app_run rb ON rb.id = tb.run_id
    WHERE ra.condition_id <> rb.condition_id),
of_pair AS (SELECT item, low, high, sum(won)::float8 AS won, (count(*) - sum(won))::float8 AS lost FROM met
    GROUP BY item, low, high),
of_item AS (SELECT jsonb_agg(jsonb_build_array(low, high, won, lost) ORDER BY low, high) AS tally FROM of_pair
    GROUP BY item)
SELECT count(*), tally FROM of_item GROUP BY tally ORDER BY tally"""  # noqa: S608 - fixed text


@dataclass(frozen=True, slots=True)
class OrderBias:
    """The order bias of one rater.

    flips: the share of pairs seen in both orders whose verdict changed with the order.
    firsts: the share of verdicts, except ties, that chose the answer shown first.
    Pairs of one item are correlated, so both intervals are clustered by item. None without such pairs or verdicts.
    for_first, for_second: the number of flipped pairs in which the first or the second position gained.
    """

    flips: ScoreEstimate | None
    firsts: ScoreEstimate | None
    for_first: int
    for_second: int

    @property
    def pairs(self) -> int:
        return self.flips.n if self.flips else 0

    @property
    def flipped(self) -> int:
        return round(self.flips.mean * self.flips.n) if self.flips else 0

    @property
    def decided(self) -> int:
        return self.firsts.n if self.firsts else 0

    @property
    def first_won(self) -> int:
        return round(self.firsts.mean * self.firsts.n) if self.firsts else 0

    @property
    def flips_text(self) -> str:
        return _format_share(self.flips)

    @property
    def firsts_text(self) -> str:
        return _format_share(self.firsts)


def _format_share(share: ScoreEstimate | None) -> str:
    """Return a text such as '33.3 %, 95 % interval 6.1 to 79.2 % over 3 items'."""
    if share is None:
        return ""
    if share.low is None:
        return f"{format_share(share.mean)}, no interval: {share.reason}"
    ends = format_share_interval(share.low, share.high)
    note = describe_coverage(SHARE, share.clusters) if share.n == share.clusters else ""
    text = f"{format_share(share.mean)}, 95 % interval {ends} over {share.clusters:,} items"
    return f"{text}, which {note} for some shares" if note else text


def measure_order_bias(raters: Sequence[int]) -> OrderBias:
    """Return the order bias over all verdicts of these grade conditions."""
    rows = {name: numbers for name, *numbers in fetch_rows(ORDERS, {"conditions": list(raters)})}
    flips, firsts = (
        estimate_mean(ClusterSums(*map(float, rows[name][:7])), SHARE_BOUNDS) for name in ("flips", "firsts")
    )
    return OrderBias(flips, firsts, *rows["flips"][7:])


@dataclass(frozen=True, slots=True)
class RankedCondition:
    """A condition with its log-strength and interval."""

    label: str
    strength: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class PairwiseStanding:
    """The result of a rater: its order bias, and the conditions ranked by strength.

    note: how the strengths and intervals were computed. problem: why there are no strengths.
    """

    bias: OrderBias
    ranked: tuple[RankedCondition, ...]
    comparisons: int
    items: int
    note: str = ""
    problem: str = ""


def compute_standing(conditions: Sequence[GradeCondition], labels: dict[int, str]) -> PairwiseStanding:
    """Return the order bias and Bradley-Terry strengths over all verdicts of a judge, or of several people together.

    labels: the labels of the answering conditions by key.
    """
    from grading_app.statistics.bradley_terry import Comparisons, PairTally

    raters = [condition.pk for condition in conditions]
    bias = measure_order_bias(raters)
    comparisons = Comparisons.from_tallies(
        (
            items,
            [PairTally(labels.get(low, str(low)), labels.get(high, str(high)), *score) for low, high, *score in tally],
        )
        for items, tally in (
            (items, json.loads(text)) for items, text in fetch_rows(TALLIES, {"conditions": list(raters)})
        )
    )
    verdicts = round(comparisons.total.sum())
    fitted, note = _fit_model(comparisons)
    if fitted is None:
        return PairwiseStanding(bias, (), verdicts, comparisons.items, problem=note)
    best_first = sorted(fitted.strengths, key=lambda row: -row.strength)
    ranked = tuple(RankedCondition(row.name, row.strength, row.low, row.high) for row in best_first)
    return PairwiseStanding(bias, ranked, verdicts, comparisons.items, note)


def _compute_standings(conditions: Sequence[GradeCondition], among: GradeConditions) -> dict[int, PairwiseStanding]:
    experiment = conditions[0].experiment
    conditions_with_answers = experiment.answer_conditions.select_related("model", "prompt", "sampler").order_by("pk")
    labels = make_condition_labels(list(conditions_with_answers))
    return {condition.pk: compute_standing(condition.list_pooled_conditions(among), labels) for condition in conditions}


PAIRS = make_verdict_aggregate(
    "pairs",
    PairwiseStanding,
    _compute_standings,
    lambda condition, among: [one.pk for one in condition.list_pooled_conditions(among)],
)


def _fit_model(comparisons: Any) -> tuple[Any, str]:
    """Return the fitted model and a note on its method, or None and the reason why there is no estimate.

    The strength of a condition that never lost is unbounded. Then smoothing gives an order, but no interval, because
    every resample has the same problem.
    """
    from grading_app.statistics.bradley_terry import bradley_terry, bradley_terry_by_items

    try:
        fitted = bradley_terry_by_items(comparisons, seed=SEED, resamples=RESAMPLES)
    except ValueError as error:
        unbounded = str(error).partition(";")[0]
    else:
        interval = fitted.interval
        if not interval and fitted.items < 2:
            interval = "no interval: two items are needed"
        elif not interval:
            n = f"{fitted.degenerate} of {fitted.resamples}"
            interval = f"no interval: in {n} resamples of items some never lost"
        return fitted, f"{fitted.formula}; {interval}"
    try:
        smoothed = bradley_terry(comparisons, smoothing=SMOOTHING).without_intervals()
    except ValueError as error:
        return None, str(error)
    return smoothed, f"{smoothed.formula}; no interval: {unbounded}"
