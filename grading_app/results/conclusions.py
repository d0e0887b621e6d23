"""The conclusions from the results of an experiment, in sentences: one for each factor of the design."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grading_app.results import statistic_format
from grading_app.results.frames import FACTORS
from grading_app.results.leaderboard import FactorLead, Leaderboard
from grading_app.results.scores import Measure
from grading_app.statistics.missing_answers import LEVEL
from grading_app.statistics.paired import STUDENT_INTERVAL

Facets = Mapping[int, tuple[str, str, str]]
MAX_MEASURES = 3
"""The number of rated dimensions with norms that the page draws conclusions on."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """One conclusion. subject: the factor, with the dimension if there are several. basis: the numbers behind it.

    is_certain: the test is significant.
    """

    subject: str
    sentence: str
    basis: str
    is_certain: bool = False


def draw_conclusions(board: Leaderboard, facets: Facets) -> list[Conclusion]:
    """Return the conclusions on closeness to people if there are norms, else or with a primary measure on the first.

    facets: model, prompt and sampler by condition.
    """
    rated = board.rated_with_norms[:MAX_MEASURES]
    found = [
        _conclude(
            lead,
            measure,
            facets,
            board,
            f"{measure.label}: closeness to people, by {FACTORS[lead.factor].lower()}",
            is_error=True,
        )
        for measure in rated
        for lead in board.closeness[measure.key].leads
    ]
    measure = board.measures[0]
    if not rated:
        leads = board.factor_leads.get(measure.key, [])
        found = [_conclude(lead, measure, facets, board, FACTORS[lead.factor]) for lead in leads]
    return found or [_describe_conditions(board, measure)]


def _conclude(
    found: FactorLead, measure: Measure, facets: Facets, board: Leaderboard, subject: str, *, is_error: bool = False
) -> Conclusion:
    lead, change, is_share = found.lead, found.lead.pair.change, measure.is_share and not is_error
    first, second = facets[lead.first][found.factor], facets[lead.second][found.factor]
    points = " points" if measure.length is not None else ""
    size = (
        f"{statistic_format.format_number(100 * change.mean, 1)} percentage points"
        if is_share
        else f"{statistic_format.format_number(change.mean)}{points}"
    )
    verdict = lead.verdict(LEVEL)
    if change.mean == 0:
        sentence = (
            f"{first} and {second} are equally close." if is_error else f"{first} and {second} have the same mean."
        )
    elif lead.p is not None and verdict <= 0:
        sentence = f"No reliable difference between {first} and {second} ({size})."
    elif is_error:
        sentence = f"{first} rates closer to people than {second}, by {size} an item."
    else:
        verb = "rates" if measure.is_rating else "scores"
        sentence = f"{first} {verb} {size} higher than {second}."
    if verdict:
        sentence = f"{sentence} {found.verdicts.describe((second, first), is_error=is_error)}".strip()
    means = [
        statistic_format.format_mean(-mean if is_error else mean, is_share)
        for mean in (lead.pair.mean_b, lead.pair.mean_a)
    ]
    compared = f"{'Mean error ' if is_error else ''}{means[0]} against {means[1]}"
    ends = statistic_format.format_difference_interval(change.low, change.high, is_share)
    method = "" if change.method == STUDENT_INTERVAL else f" ({change.method})"
    interval = f"; 95 % interval {ends}{method}" if change.low is not None else ""
    if lead.p is not None:
        corrected = f", Holm's correction over {lead.pairs} pairs" if lead.pairs > 1 else ""
        test = f"{change.test_text}, p {statistic_format.format_p_equation(lead.p)}{corrected}"
    elif lead.pairs > 1:
        test = f"not tested: {lead.pairs} pairs are too many here; Analysis tests the factor"
    else:
        test = "not tested"
    averaged = f", each averaged over {lead.averaged} conditions" if lead.averaged > 1 else ""
    scores = [row.scores[measure.key] for row in board.rows]
    answers = f"{sum(one.n for one in scores):,} of {sum(one.planned for one in scores):,} answers"
    on_items = f"On items like these: {lead.pair.items:,} items{averaged}, {answers} with a score."
    return Conclusion(subject, sentence, f"{compared}{interval}; {test}. {on_items}", is_certain=verdict != 0)


def _describe_conditions(board: Leaderboard, measure: Measure) -> Conclusion:
    """Return the mean of the only condition; of several without a common basis, say that they cannot be compared."""
    if len(board.rows) > 1:
        return Conclusion(
            "Conditions",
            "The conditions cannot be compared.",
            f"{measure.label}: no combination of the other factors has scores at every level on the same items.",
        )
    (row,) = board.rows
    score = row.scores[measure.key]
    if board.rated_with_norms and (closeness := board.closeness.get(measure.key)):
        near = closeness.conditions.get(row.condition)
        if near is not None and near.r is not None:
            ends = statistic_format.format_coefficient_interval(near.low, near.high)
            return Conclusion(
                "Closeness to people",
                f"{row.label} correlates with people at r = {statistic_format.format_coefficient(near.r)}.",
                f"{measure.label}: 95 % interval {ends}. On items like these: {near.items:,} items.",
            )
    if score.mean is None:
        return Conclusion(measure.label, "No answer has a score yet.", f"{score.planned:,} answers are planned.")
    interval = statistic_format.format_mean_interval(score.low, score.high, measure.is_share)
    basis = f"95 % interval {interval}" if score.low is not None else score.reason
    verb = "rates" if measure.is_rating else "scores"
    return Conclusion(
        measure.label,
        f"{row.label} {verb} {statistic_format.format_mean(score.mean, measure.is_share)}.",
        f"{basis}. On items like these: {score.items:,} items, {score.n:,} of {score.planned:,} answers with a score.",
    )
