"""The content of the results page: conclusions, the table of conditions, figures, and the items that tell most.

A figure's texts and numbers are part of the page; its picture is drawn from the frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grading_app.results import statistic_format
from grading_app.results.closeness import load_norms
from grading_app.results.figures import cost
from grading_app.results.frames import FACTORS, load_facets
from grading_app.results.leaderboard import BoardQuery, FactorLead, Leaderboard
from grading_app.results.leaderboard_tables import (
    BoardLinks,
    make_baseline_table,
    make_closeness_table,
    make_condition_table,
    make_effort_table,
    make_leaderboard_table,
)
from grading_app.results.scope import MISSING_WRONG
from grading_app.results.scores import ConditionScore, Measure, load_scores
from grading_app.results.table import ResultTable
from grading_app.results.waves import find_pooled_waves
from grading_app.statistics import item_scores
from grading_app.statistics.condition_pairs import LEVEL
from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.paired import STUDENT_INTERVAL
from runs_app.models import Experiment

Facets = Mapping[int, tuple[str, str, str]]
MAX_MEASURES = 3
"""The number of rated dimensions with norms that the page draws conclusions on."""
MAX_ITEMS = 10
MAX_COLUMNS = 6
"""With more conditions than this, only the highest and the lowest score of an item are shown."""
NO_SCORE = "no score"


@dataclass(frozen=True, slots=True)
class Conclusion:
    """One conclusion. subject: the factor, with the dimension if there are several. numbers: those behind it.

    caveat: the end of the sentence if the conclusion depends on answers without a score. scope: the items and answers
    that it rests on; items: only the items, for a report. is_certain: the test is significant, whatever the answers
    without a score are.
    """

    subject: str
    sentence: str
    numbers: str
    caveat: str = ""
    scope: str = ""
    is_certain: bool = False
    items: str = ""

    @property
    def claim(self) -> str:
        """The sentence without its caveat."""
        return self.sentence.removesuffix(self.caveat).strip()

    @property
    def basis(self) -> str:
        return f"{self.numbers}. {self.scope}".strip()


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


@dataclass(frozen=True, slots=True)
class Screen:
    """The content of the results page. Tables are the content of ResultTables.

    first: the table of conditions. further: of the other measures. effort: cost, tokens and time. baselines: the
    differences from a chosen baseline. files: tables without a place on the page, only for files. best_two: a sentence
    on the two best conditions. items: None if no item stands out. pooled: sentences on waves that the numbers pool;
    has_drifted: these waves differ. problem: that the primary measure has no scores; else empty. cost: the content of a
    figure; None if costs are equal or unknown.
    """

    conclusions: list[Conclusion]
    first: dict[str, Any]
    effort: dict[str, Any]
    further: list[dict[str, Any]]
    baselines: list[dict[str, Any]]
    files: list[dict[str, Any]]
    best_two: str
    items: TellingItems | None
    pooled: list[str]
    has_drifted: bool
    problem: str
    cost: dict[str, Any] | None

    @property
    def tables(self) -> list[ResultTable]:
        """Every table that a reader can download."""
        contents = [self.first, self.effort, *self.further, *self.baselines, *self.files]
        return [ResultTable.from_content(content) for content in contents]


def make_screen(query: BoardQuery, board: Leaderboard) -> Screen:
    """Return the content of the page of a leaderboard with measures and conditions."""
    experiment, first = query.experiment, board.measures[0]
    links = BoardLinks(board, experiment, query.wave, MISSING_WRONG if query.missing_is_wrong else "")
    rated = board.rated_with_norms
    table = make_closeness_table(board, links) if rated else make_condition_table(board, first, links, is_first=True)
    further = [measure for measure in board.measures if measure not in (rated or [first])]
    baselines = [make_baseline_table(board, measure, links.compare) for measure in board.measures]
    pooled = find_pooled_waves(experiment, query.wave, in_worker=True)
    unknown = experiment.primary_measure if not board.primary else ""
    return Screen(
        conclusions=draw_conclusions(board, load_facets(experiment, query.letters, is_brief=True)),
        first=table.content(),
        effort=make_effort_table(board).content(),
        further=[make_condition_table(board, measure, links).content() for measure in further],
        baselines=[one.content() for one in baselines if one],
        files=[make_leaderboard_table(board).content()],
        best_two=" ".join(filter(None, (describe_lead(board, measure) for measure in board.measures))),
        items=find_telling_items(board, first, load_scores(experiment, first, query.wave), experiment),
        pooled=pooled.sentences if pooled else [],
        has_drifted=bool(pooled and pooled.drifted),
        problem=f"The primary measure {unknown} has no scores; {first.label} comes first." if unknown else "",
        cost=next((figure.content() for figure in cost.make_figures(board)), None),
    )


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
    where = " on their common items" if lead.pair.items < found.asked else ""
    if change.mean == 0:
        sentence = f"{first} and {second} have the same mean{' error' if is_error else ''}{where}."
    elif lead.p is not None and verdict <= 0:
        sentence = f"No reliable difference between {first} and {second}{where} ({size})."
    elif is_error:
        sentence = f"{first} rates closer to people than {second}, by {size} an item."
    else:
        verb = "rates" if measure.is_rating else "scores"
        sentence = f"{first} {verb} {size} higher than {second}."
    caveat = found.verdicts.describe((second, first), is_error=is_error)
    means = [statistic_format.format_mean(-mean if is_error else mean, is_share) for mean in lead.means]
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
    common = f"{lead.pair.items:,}{f' common items of {found.asked:,}' if lead.pair.items < found.asked else ' items'}"
    on_items = f"On items like these: {common}{averaged}, {_describe_answers(scores)}."
    if not is_error and lead.fixed and lead.fixed.low is not None:
        fixed = statistic_format.format_difference_interval(lead.fixed.low, lead.fixed.high, is_share)
        on_items += f" On these items alone, the interval is {fixed}."
    is_certain = verdict != 0 and found.verdicts.holds
    numbers = f"{compared}{interval}; {test}"
    return Conclusion(subject, f"{sentence} {caveat}".strip(), numbers, caveat, on_items, is_certain, common)


def _describe_conditions(board: Leaderboard, measure: Measure) -> Conclusion:
    """Return the mean of the only condition; of several without a common basis, say that they cannot be compared."""
    if len(board.rows) > 1:
        return Conclusion(
            "Conditions",
            "The conditions cannot be compared.",
            f"{measure.label}: no combination of the other factors has scores at every level on the same items",
        )
    (row,) = board.rows
    score = row.scores[measure.key]
    basis_of_score = _describe_answers([score])
    if board.rated_with_norms and (closeness := board.closeness.get(measure.key)):
        near = closeness.conditions.get(row.condition)
        if near is not None and near.r is not None:
            ends = statistic_format.format_coefficient_interval(near.low, near.high)
            return Conclusion(
                "Closeness to people",
                f"{row.label} correlates with people at r = {statistic_format.format_coefficient(near.r)}.",
                f"{measure.label}: 95 % interval {ends}",
                scope=f"On items like these: {near.items:,} items, {basis_of_score}.",
                items=f"{near.items:,} items",
            )
    if score.mean is None:
        return Conclusion(measure.label, "No answer has a score yet.", f"{score.planned:,} answers are planned")
    interval = statistic_format.format_mean_interval(score.low, score.high, measure.is_share)
    basis = f"95 % interval {interval}" if score.low is not None else score.reason
    verb = "rates" if measure.is_rating else "scores"
    return Conclusion(
        measure.label,
        f"{row.label} {verb} {statistic_format.format_mean(score.mean, measure.is_share)}.",
        basis,
        scope=f"On items like these: {score.items:,} items, {basis_of_score}.",
    )


def _describe_answers(scores: Sequence[ConditionScore]) -> str:
    """Return how many of the planned answers have a score, and whether the others count."""
    filled = "; the others count as the lowest score" if any(one.filled for one in scores) else ""
    scored, planned = sum(one.scored for one in scores), sum(one.planned for one in scores)
    return f"{scored:,} of {planned:,} answers with a score{filled}"


def describe_lead(board: Leaderboard, measure: Measure) -> str:
    """Return a sentence: which condition is ahead on a measure, by how much, and its test; "" without a comparison."""
    lead, labels = board.leads.get(measure.key), {row.condition: row.label for row in board.rows}
    if lead is None or not {lead.first, lead.second} <= set(labels):
        return ""
    first, second = labels[lead.first], labels[lead.second]
    size = statistic_format.format_difference(lead.difference, measure.is_share)
    ends = statistic_format.format_difference_interval(lead.low, lead.high, measure.is_share)
    interval = f" ({ends})" if lead.low is not None else ""
    test = "no test" if lead.p is None else f"{lead.test}, p {statistic_format.format_p_equation(lead.p)}"
    margin = f"by {size}{interval} over {second} on {lead.items} common items"
    if lead.difference <= 0:
        text = f"{first} has the highest mean, but is not ahead of {second} on their common items"
    elif lead.is_best:
        text = f"{first} is the best, {margin}"
    elif lead.verdicts.verdict <= 0:
        text = f"{first} is ahead {margin}, but the difference is not significant ({test})"
    elif lead.verdicts.holds:
        text = f"{first} is ahead {margin} ({test}), but not of every condition after Holm's correction"
    else:
        text = f"{first} is ahead {margin} ({test})"
    return f"{measure.label}: {text}. {lead.verdicts.describe((second, first))}".strip()


def find_telling_items(
    board: Leaderboard, measure: Measure, scores: ItemScores, experiment: Experiment
) -> TellingItems | None:
    """Return the items on which the conditions differ most. A single condition has the items far from people, or those
    with the lowest scores. None without such an item.
    """
    labels = {row.condition: row.label for row in board.rows}
    scores = scores.select_conditions([key for key in labels if key in scores.conditions])
    norms = load_norms(experiment, measure, scores.items)
    if len(scores.conditions) > 1:
        spread = scores.disagreement()
        values = np.where(scores.find_differing_items(), spread, np.nan)
        n_differing, n_common = (int((~np.isnan(each)).sum()) for each in (values, spread))
        title = "Items on which the conditions differ most"
        note = f"The conditions differ on {n_differing:,} of {n_common:,} items by {measure.label}."
        if rest := len(scores.items) - n_common:
            note += (
                f" {rest:,} more {'item has' if rest == 1 else 'items have'} a score of one condition only, or none."
            )
    elif norms:
        values = scores.norm_distance(norms.mean)
        title, note = "Items farthest from people", f"By {measure.label}."
    else:
        values = -scores.item_means()
        if measure.is_share:
            values = np.where(values > -1 + item_scores.TOLERANCE, values, np.nan)
        title, note = "Items with the lowest scores", f"By {measure.label}."
    order = [row for row in item_scores.sort_positions(values).tolist() if not np.isnan(values[row])][:MAX_ITEMS]
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
        people = (
            [statistic_format.format_number(float(norms.mean[row]))]
            if norms and not np.isnan(norms.mean[row])
            else ["–"]
        )
        items.append(TellingItem(int(scores.items[row]), [*(people if norms else []), *texts]))
    return TellingItems(title, note, [*(["People"] if norms else []), *head], items)


def _format_score(measure: Measure, n: int, mean: float) -> str:
    if not n:
        return NO_SCORE
    if not measure.is_share:
        return statistic_format.format_number(mean)
    if n == 1:
        return "right" if mean else "wrong"
    return statistic_format.format_share(mean, 0)
