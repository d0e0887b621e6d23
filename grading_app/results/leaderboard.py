"""The leaderboard of an experiment: each condition with its measures and intervals, cost, tokens and latency.

A condition is the best on a measure only if it is better than every other condition by a paired test, after Holm's
correction over these tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Sum

from evalsite.lib.sql import fetch_rows
from grading_app.models import BlindReading
from grading_app.results.closeness import (
    ConditionCloseness,
    compute_noise_ceiling,
    describe_norms_off_scale,
    estimate_closeness,
    load_norms,
    negate_errors,
)
from grading_app.results.frames import FACTORS, load_condition_labels
from grading_app.results.scores import (
    IN_SCOPE,
    ConditionScore,
    ExtremeShare,
    Measure,
    count_missing,
    describe_extreme,
    estimate,
    estimate_pair,
    find_primary_measure,
    list_measures,
    load_scores,
    make_scope_parameters,
)
from grading_app.statistics.condition_pairs import (
    LEVEL,
    ConditionPair,
    MissingVerdicts,
    compare_conditions,
    fill_worst_cases,
)
from grading_app.statistics.fixed_items import LevelLead, find_level_lead
from grading_app.statistics.intervals import Bounds
from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.paired import holm
from runs_app.models import Experiment, Wave

LATENCIES = f"""SELECT condition_id, percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_ms) / 1000
    FROM runs_app_answer WHERE {IN_SCOPE} AND status = 'done' AND NOT from_cache GROUP BY 1"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class BaselineScore:
    """The comparison of one condition with the baseline on one measure. corrected: p after Holm's correction."""

    pair: ConditionPair
    mean_baseline: float | None
    mean: float | None
    corrected: float | None


@dataclass(frozen=True, slots=True)
class Lead:
    """The two conditions with the highest means, by their keys: the difference with its interval and test.

    is_best: the first is better than every other condition by a corrected paired test, also if missing answers count
    as the lowest score. verdicts: of the first against the second.
    """

    first: int
    second: int
    items: int
    difference: float
    low: float | None
    high: float | None
    test: str
    p: float | None
    is_best: bool
    verdicts: MissingVerdicts


@dataclass(frozen=True, slots=True)
class FactorLead:
    """The leading level of a factor.

    factor: the place in FACTORS. asked: the number of items with planned answers, of which the lead compares those with
    a score in every condition. verdicts: of the first level against the second.
    """

    factor: int
    lead: LevelLead
    asked: int
    verdicts: MissingVerdicts


@dataclass(frozen=True, slots=True)
class Closeness:
    """Closeness of the conditions' mean ratings of items to those of people, by condition.

    ceiling: the noise ceiling of r; None if it is unknown. leads: the levels of each factor with the smallest error.
    off_scale: a warning about norms outside the scale of the rating, or "".
    """

    conditions: dict[int, ConditionCloseness]
    ceiling: float | None
    leads: list[FactorLead]
    off_scale: str = ""


@dataclass(frozen=True, slots=True)
class BoardRow:
    """One condition. scores, baseline: by the key of the measure. cost_usd: None if the cost of any call is unknown.

    latency_s: the median over the answers that did not come from the response cache.
    """

    condition: int
    label: str
    answers: int
    scores: dict[str, ConditionScore]
    baseline: dict[str, BaselineScore]
    cost_usd: float | None
    input_tokens: int
    output_tokens: int
    latency_s: float | None

    @property
    def cost_per_answer(self) -> float | None:
        return self.cost_usd / self.answers if self.cost_usd is not None and self.answers else None


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The leaderboard: a row for each condition, in the order of the design. baseline: a condition's key, or None.

    leads: by the key of the measure; none for ratings, for a single condition, and without common items. factor_leads:
    by the key of the measure, for each factor that varies. closeness: by the key of a rating with human norms.
    primary: the key of the primary measure, which is the first one; "" if the design names none that exists.
    chosen: the key of the measure that the reader put first instead; "" for none.
    """

    measures: list[Measure]
    rows: list[BoardRow]
    leads: dict[str, Lead]
    factor_leads: dict[str, list[FactorLead]]
    closeness: dict[str, Closeness]
    baseline: int | None = None
    primary: str = ""
    chosen: str = ""

    @property
    def rated_with_norms(self) -> list[Measure]:
        """The ratings whose closeness to people comes first; none if the primary measure is another one."""
        first = self.chosen or self.primary
        if first and first not in self.closeness:
            return []
        return [measure for measure in self.measures if measure.key in self.closeness]

    @property
    def extremes(self) -> list[tuple[Measure, ExtremeShare]]:
        """The measures that no answer passed, or that all did, each with a warning."""
        found = (
            (measure, describe_extreme(measure.label, [row.scores[measure.key].mean for row in self.rows]))
            for measure in self.measures
            if measure.is_share
        )
        return [(measure, extreme) for measure, extreme in found if extreme]

    def is_best(self, row: BoardRow, measure: Measure) -> bool:
        """Return True if this condition is better than every other one, also if missing answers count as wrong."""
        lead = self.leads.get(measure.key)
        return lead is not None and lead.is_best and lead.first == row.condition

    def find_efficient_frontier(self, measure: Measure) -> list[BoardRow]:
        """Return the conditions with a higher mean than every cheaper or equally cheap condition, the cheapest first.

        Conditions without a known cost per answer or without a mean are excluded.
        """
        frontier: list[BoardRow] = []
        highest = float("-inf")
        for row in sorted(
            self.list_priced_rows(measure), key=lambda row: (row.cost_per_answer or 0.0, -_get_mean(row, measure))
        ):
            if _get_mean(row, measure) > highest:
                frontier.append(row)
                highest = _get_mean(row, measure)
        return frontier

    def list_priced_rows(self, measure: Measure) -> list[BoardRow]:
        """Return the conditions with a known cost per answer and a mean."""
        return [
            row
            for row in self.rows
            if row.cost_per_answer is not None
            and measure.key in row.scores
            and row.scores[measure.key].mean is not None
        ]


@dataclass(frozen=True, slots=True)
class BoardQuery:
    """A query for a leaderboard. wave: None for all. missing_is_wrong: a missing score counts as the lowest score.

    blind: the blind reading whose letters replace the names of models. measure: the key of the measure that comes first
    in place of the primary one; "" for none.
    """

    experiment: Experiment
    wave: Wave | None = None
    missing_is_wrong: bool = False
    baseline: int | None = None
    blind: BlindReading | None = None
    measure: str = ""

    @property
    def letters(self) -> dict[int, str] | None:
        return self.blind.assign_letters() if self.blind else None


def compute_leaderboard(query: BoardQuery) -> Leaderboard:
    """Load the scores of every measure of the experiment, and compute its leaderboard."""
    experiment, labels = query.experiment, load_condition_labels(query.experiment, query.wave, query.letters)
    scores: dict[int, dict[str, ConditionScore]] = {key: {} for key in labels}
    comparisons: dict[int, dict[str, BaselineScore]] = {key: {} for key in labels}
    conditions = experiment.answer_conditions.values_list("pk", "model", "prompt", "sampler")
    cells = {pk: tuple(levels) for pk, *levels in conditions}
    measures, leads, factor_leads, closeness = [], {}, {}, {}
    for measure in list_measures(experiment):
        item_scores = load_scores(experiment, measure, query.wave)
        if not item_scores.n.any() and not item_scores.missing.any():
            continue
        reasons = count_missing(experiment, measure, query.wave) if item_scores.missing.any() else {}
        missing = dict(zip(item_scores.conditions.tolist(), item_scores.missing.sum(axis=0).tolist(), strict=True))
        filled = item_scores.fill_missing(item_scores.find_lowest_score(measure.low))
        if query.missing_is_wrong:
            item_scores = filled
        settled = measure.settle(item_scores)
        for key in labels:
            score = estimate(item_scores, measure, key, reasons)
            filled_answers = missing[key] if query.missing_is_wrong else 0
            scores[key][measure.key] = replace(score, missing=missing[key], filled=filled_answers)
        for key, comparison in _compare_with_baseline(item_scores, query.baseline, settled).items():
            comparisons[key][measure.key] = comparison
        if not measure.is_rating:
            means = {key: of[measure.key].mean for key, of in scores.items()}
            if lead := _find_lead(item_scores, filled, means, settled.bounds):
                leads[measure.key] = lead
        factor_leads[measure.key] = _find_factor_leads(item_scores, cells, settled.bounds, at_ends=measure.is_rating)
        if norms := load_norms(experiment, measure, item_scores.items):
            errors, ends = negate_errors(item_scores, norms), (-(measure.length or 0.0), 0.0)
            found = _find_factor_leads(errors, cells, ends, at_ends=False)
            closeness[measure.key] = Closeness(
                estimate_closeness(item_scores, norms),
                compute_noise_ceiling(norms),
                found,
                describe_norms_off_scale(norms, measure, item_scores.items),
            )
        measures.append(settled)
    usage, latencies = _load_usage(query), dict(fetch_rows(LATENCIES, make_scope_parameters(experiment, query.wave)))
    rows = [
        BoardRow(key, label, scores=scores[key], baseline=comparisons[key], latency_s=latencies.get(key), **usage[key])
        for key, label in labels.items()
    ]
    primary = find_primary_measure(experiment, measures)
    measures.sort(key=lambda measure: measure.key != query.measure)  # Stable: the others keep their order.
    return Leaderboard(
        measures, rows, leads, factor_leads, closeness, query.baseline,
        primary=primary.key if primary else "", chosen=query.measure,
    )  # fmt: skip


def _find_significant_top(scores: ItemScores, bounds: Bounds | None) -> int | None:
    """Return the condition with the highest mean if it differs from all others at the 5 % level, else None."""
    sums = {key: scores.sum_condition(key) for key in scores.conditions.tolist()}
    means = {key: one.mean for key, one in sums.items() if one.n}
    if len(means) < 2:
        return None
    top = max(means, key=lambda key: means[key])
    pairs = [compare_conditions(scores, other, top, bounds) for other in means if other != top]
    p_values = [pair.change.p_or_one if pair and pair.change.mean > 0 else 1.0 for pair in pairs]
    return top if max(holm(p_values)) < LEVEL else None


def _find_lead(
    scores: ItemScores,
    filled: ItemScores,
    condition_means: Mapping[int, float | None],
    bounds: Bounds | None,
) -> Lead | None:
    """Return the comparison of the two highest means. If means are equal, the first condition in the design leads."""
    means = {key: mean for key, mean in condition_means.items() if mean is not None}
    if len(means) < 2:
        return None
    first, second = sorted(means, key=lambda key: -means[key])[:2]
    pair = compare_conditions(scores, second, first, bounds)
    if pair is None:
        return None
    change, filled_pair = pair.change, compare_conditions(filled, second, first, bounds)
    return Lead(
        first,
        second,
        pair.items,
        change.mean,
        change.low,
        change.high,
        change.test_text,
        change.p,
        is_best=all(_find_significant_top(table, bounds) == first for table in (scores, filled)),
        verdicts=MissingVerdicts(
            change.verdict(LEVEL), (filled_pair.change.verdict(LEVEL),) if filled_pair else (), at_ends=False
        ),
    )


def _find_factor_leads(
    scores: ItemScores, cells: Mapping[int, tuple[int, ...]], bounds: Bounds | None, *, at_ends: bool
) -> list[FactorLead]:
    """Return the leading level of each factor that varies. at_ends: as in `fill_worst_cases`."""
    of_conditions = [cells[key] for key in scores.conditions.tolist()]
    leads = []
    for at in range(len(FACTORS)):
        levels = [cell[at] for cell in of_conditions]
        lead = find_level_lead(scores, cells, at, bounds) if len(set(levels)) > 1 else None
        if lead is None:
            continue
        side_of = {cells[lead.second][at]: 0, cells[lead.first][at]: 1}
        filled = [
            find_level_lead(table, cells, at, bounds, order=(lead.first, lead.second))
            for table in fill_worst_cases(scores, bounds, at_ends=at_ends, sides=[side_of.get(one) for one in levels])
        ]
        with_missing = tuple(one.verdict(LEVEL) for one in filled if one)
        leads.append(
            FactorLead(at, lead, len(scores.items), MissingVerdicts(lead.verdict(LEVEL), with_missing, at_ends))
        )
    return leads


def _compare_with_baseline(scores: ItemScores, baseline: int | None, measure: Measure) -> dict[int, BaselineScore]:
    """Return the comparisons of all other conditions with the baseline. p is corrected over these comparisons."""
    if baseline is None or baseline not in scores.conditions:
        return {}
    others = [key for key in scores.conditions.tolist() if key != baseline]
    pairs = {key: pair for key in others if (pair := compare_conditions(scores, baseline, key, measure.bounds))}
    corrected = holm([pair.change.p_or_one for pair in pairs.values()])
    return {
        key: BaselineScore(pair, of_baseline.mean, of_key.mean, adjusted if pair.change.p is not None else None)
        for (key, pair), adjusted in zip(pairs.items(), corrected, strict=True)
        for of_baseline, of_key in [estimate_pair(scores, measure, baseline, key)]
    }


def _load_usage(query: BoardQuery) -> dict[int, dict[str, Any]]:
    """Return answers, cost and tokens by condition, from the counters of the runs."""
    runs = query.experiment.answer_runs
    runs = runs.filter(wave=query.wave) if query.wave else runs
    sums = runs.order_by().values("condition").annotate(
        answers=Sum("n_done"), cost=Sum("spent_usd"), unpriced=Sum("n_unpriced"), inputs=Sum("input_tokens"),
        outputs=Sum("output_tokens"),
    )  # fmt: skip
    return {
        row["condition"]: {
            "answers": row["answers"],
            "cost_usd": None if row["unpriced"] else float(row["cost"]),
            "input_tokens": row["inputs"],
            "output_tokens": row["outputs"],
        }
        for row in sums
    }


def _get_mean(row: BoardRow, measure: Measure) -> float:
    return row.scores[measure.key].mean or 0.0
