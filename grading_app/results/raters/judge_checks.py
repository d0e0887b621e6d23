"""The comparison of a judge with people and rules that scored the same answers, and its preference for its own family.

A check has one sentence for the pages of judges, and the counts of each pair of scores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.urls import reverse
from django.utils.http import urlencode

from evalsite.lib.sql import fetch_rows
from grading_app.models import GradeCondition
from grading_app.results import statistic_format
from grading_app.results.cached_aggregates import Cached
from grading_app.results.raters.verdict_stats import (
    GradeConditions,
    get_aggregates_by_condition,
    make_verdict_aggregate,
)
from grading_app.results.scores import Measure, list_grader_measures
from grading_app.statistics.intervals import SHARE_BOUNDS, Bounds, estimate_mean, sum_clusters
from runs_app.models import Experiment

MAX_REFERENCES = 3
MAX_POINTS = 11
"""The longest scale whose pairs of scores are counted in a table."""
MIN_ITEMS = 10
"""The smallest number of items on which a preference for a family is estimated."""

# The scores of a judge and of a reference for the same answers.
SCORE_PAIRS = """SELECT judged.item_id, c.model_id, judged.score, reference.score, count(*)
    FROM grading_app_answerscore judged
    JOIN grading_app_answerscore reference ON reference.trial_id = judged.trial_id
        AND reference.experiment_id = judged.experiment_id
        AND reference.grader_kind = %(reference_kind)s AND reference.grader_id = %(reference)s
    JOIN runs_app_condition c ON c.id = judged.condition_id
    WHERE judged.experiment_id = %(experiment)s AND judged.grader_kind = %(kind)s AND judged.grader_id = %(judge)s
        AND judged.score IS NOT NULL AND reference.score IS NOT NULL
    GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"""

ScorePair = tuple[int, int, float, float, int]
"""An item, an answering model, the judge's score, the reference's score, and the number of answers."""


@dataclass(frozen=True, slots=True)
class FamilyPreference:
    """The difference of judge and reference on answers of the judge's own family, minus that on other answers.

    own: the models of the family, or the judge's own model if every answering model belongs to the family.
    difference: the mean over items; None without other answers. low, high: its 95 % interval; None without one.
    """

    own: tuple[str, ...] = ()
    is_own_model: bool = False
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    items: int = 0

    @property
    def is_seen(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """A judge or panel compared with one reference on the answers that both scored.

    kind, grader: of the reference, as in AnswerScore. same: the number of equal scores. low, high: the interval of
    their share, clustered by item. difference: the mean of judge minus reference. cells: (score of the reference, score
    of the judge, number of answers), on short scales only. is_binary: every score is 0 or 1.
    """

    reference: str
    key: str
    kind: str
    n: int
    same: int
    low: float | None
    high: float | None
    difference: float
    too_low: int
    too_high: int
    is_binary: bool
    cells: tuple[tuple[float, float, int], ...]
    preference: FamilyPreference

    @property
    def points(self) -> list[float]:
        return sorted({value for first, second, _ in self.cells for value in (first, second)})

    def describe(self, judge: str) -> str:
        """Return the result as one sentence."""
        share = statistic_format.format_share(self.same / self.n)
        interval = "" if self.low is None or self.high is None else f", {100 * self.low:.0f} to {100 * self.high:.0f}"
        verb = "agrees with" if self.is_binary else "gives the same score as"
        lower, higher = ("strict", "lenient") if self.is_binary else ("low", "high")
        sentence = (
            f"{judge} {verb} {self.reference} on {self.same:,} of {self.n:,} ({share}{interval}): "
            f"{self.too_low:,} too {lower}, {self.too_high:,} too {higher}"
        )
        return f"{sentence}; {self._describe_preference()}."

    def _describe_preference(self) -> str:
        found = self.preference
        whose = "its own answers" if found.is_own_model else "its own family"
        if not found.own:
            return "no model of its own family answers here"
        if found.difference is None:
            return f"a preference for {whose} cannot be seen, because every answering model belongs to it"
        if found.items >= MIN_ITEMS and not found.difference and found.low is None:
            return f"no preference for {whose} seen on any of {found.items:,} items"
        if found.low is None or found.high is None:
            return f"too few items ({found.items}) to see a preference for {whose}"
        sizes = (
            f"{statistic_format.format_difference(found.difference, self.is_binary)}, "
            f"{statistic_format.format_difference_interval(found.low, found.high, self.is_binary)}"
        )
        if not found.is_seen:
            return f"no preference for {whose} seen ({sizes})"
        return f"it {'prefers' if found.difference > 0 else 'is stricter with'} {whose} ({sizes})"


@dataclass(frozen=True, slots=True)
class JudgeChecks:
    """The checks of one judge: people first, then rules in the order in which they were added."""

    checks: tuple[JudgeCheck, ...] = ()


def check_judges(conditions: Sequence[GradeCondition], among: GradeConditions) -> dict[int, JudgeChecks]:
    """Compare judges and panels with each reference on the same scale. Other conditions have no checks."""
    judges = [condition for condition in conditions if condition.is_checked]
    if not judges:
        return {condition.pk: JudgeChecks() for condition in conditions}
    experiment = judges[0].experiment
    references = [measure for measure in list_grader_measures(experiment) if measure.kind in ("person", "rule")]
    references.sort(key=lambda measure: measure.kind != "person")
    solvers = experiment.list_solvers()
    by_key = {condition.pk: condition for condition in among}
    checks = {}
    for judge in judges:
        # The model of the judge, or the models of the panel's members. An imported judge has none.
        members = [by_key[pk] for pk in judge.list_panel_members() if pk in by_key] or [judge]
        models = [member.judge_condition.model for member in members if member.judge_condition is not None]
        bounds = judge.score_range
        own = {solver.pk: solver.name for model in models for solver in model.find_relatives(solvers)}
        same = {model.pk: model.name for model in models if model.pk in own}
        is_own_model = bool(same) and len(own) == len(solvers)
        own = same if is_own_model else own
        found: list[JudgeCheck] = []
        for reference in references:
            if bounds is None or reference.bounds is None or tuple(bounds) != tuple(reference.bounds):
                continue
            rows = _load_score_pairs(judge, reference)
            if rows and len(found) < MAX_REFERENCES:
                found.append(_make_check(reference, rows, (float(bounds[0]), float(bounds[1])), own, is_own_model))
        checks[judge.pk] = JudgeChecks(tuple(found))
    return {condition.pk: checks.get(condition.pk, JudgeChecks()) for condition in conditions}


def _load_score_pairs(judge: GradeCondition, reference: Measure) -> list[ScorePair]:
    parameters = {"experiment": judge.experiment_id, "kind": judge.kind, "judge": judge.pk}
    rows = fetch_rows(SCORE_PAIRS, {**parameters, "reference_kind": reference.kind, "reference": reference.grader})
    if reference.kind != "person":
        return [(item, model, judged, score, n) for item, model, judged, score, n in rows]
    # The mean of several people counts as the nearest point of the scale. A mean between two points is no decision.
    return [
        (item, model, judged, float(round(score)), n)
        for item, model, judged, score, n in rows
        if abs(score % 1 - 0.5) > 1e-9
    ]


def _make_check(
    reference: Measure, rows: Sequence[ScorePair], bounds: Bounds, own: Mapping[int, str], is_own_model: bool
) -> JudgeCheck:
    values, items = [], []
    cells: dict[tuple[float, float], int] = defaultdict(int)
    for item, _, judged, score, n in rows:
        values += [float(judged == score)] * n
        items += [item] * n
        cells[score, judged] += n
    share = estimate_mean(sum_clusters(values, items), SHARE_BOUNDS)
    total = sum(cells.values())
    points = {value for pair in cells for value in pair}
    return JudgeCheck(
        reference=reference.label if reference.kind != "person" else reference.label.partition(" (")[0],
        key=reference.key,
        kind=reference.kind,
        n=total,
        same=int(sum(values)),
        low=share.low if share else None,
        high=share.high if share else None,
        difference=sum((judged - score) * n for (score, judged), n in cells.items()) / total,
        too_low=sum(n for (score, judged), n in cells.items() if judged < score),
        too_high=sum(n for (score, judged), n in cells.items() if judged > score),
        is_binary=points <= {0.0, 1.0} and tuple(bounds) == SHARE_BOUNDS,
        cells=tuple((*pair, n) for pair, n in sorted(cells.items())) if len(points) <= MAX_POINTS else (),
        preference=_estimate_preference(rows, own, is_own_model),
    )


def _estimate_preference(rows: Iterable[ScorePair], own: Mapping[int, str], is_own_model: bool) -> FamilyPreference:
    """Compare answers of the same items, so that harder items do not count as a preference. Student's interval."""
    sums: dict[int, dict[bool, list[float]]] = defaultdict(lambda: {True: [0.0, 0.0], False: [0.0, 0.0]})
    for item, model, judged, score, n in rows:
        side = sums[item][model in own]
        side[0] += (judged - score) * n
        side[1] += n
    differences = [
        sides[True][0] / sides[True][1] - sides[False][0] / sides[False][1]
        for sides in sums.values()
        if sides[True][1] and sides[False][1]
    ]
    preference = FamilyPreference(tuple(sorted(own.values())), is_own_model)
    if not own or not differences:
        return preference
    estimate = estimate_mean(sum_clusters(differences))
    if estimate is None or len(differences) < MIN_ITEMS:
        return FamilyPreference(
            preference.own, is_own_model, sum(differences) / len(differences), items=len(differences)
        )
    return FamilyPreference(preference.own, is_own_model, estimate.mean, estimate.low, estimate.high, len(differences))


def _list_sources(condition: GradeCondition, among: GradeConditions) -> Collection[int]:
    kinds = (GradeCondition.Kind.RULE, GradeCondition.Kind.PERSON)
    return [condition.pk, *(other.pk for other in among if condition.is_checked and other.kind in kinds)]


JUDGE_CHECKS = make_verdict_aggregate("judge_checks", JudgeChecks, check_judges, _list_sources)


VERDICTS = {0.0: "wrong", 1.0: "right"}


class CountCell(NamedTuple):
    """The number of answers with two scores, and the address that lists them. is_same: the scores are equal."""

    n: int
    address: str
    is_same: bool
    label: str


class ShownCheck(NamedTuple):
    """One check: its sentence, and a table with a row for each score of the reference."""

    check: JudgeCheck
    sentence: str
    heads: list[str]
    rows: list[tuple[str, list[CountCell]]]


@dataclass(frozen=True, slots=True)
class ShownChecks:
    """The checks of one judge. cached: its state while a worker computes them."""

    judge: GradeCondition
    cached: Cached[JudgeChecks]
    checks: list[ShownCheck]


def describe_checks(experiment: Experiment, conditions: Sequence[GradeCondition]) -> dict[int, ShownChecks]:
    """Return the checks of the judges and panels among these grade conditions of an experiment."""
    judges = [condition for condition in conditions if condition.is_checked]
    values = get_aggregates_by_condition(JUDGE_CHECKS, judges, conditions)
    return {
        judge.pk: ShownChecks(
            judge,
            values[judge.pk],
            [_show_check(experiment, judge, check) for check in (values[judge.pk].value or JudgeChecks()).checks],
        )
        for judge in judges
    }


def _show_check(experiment: Experiment, judge: GradeCondition, check: JudgeCheck) -> ShownCheck:
    counts = {(score, judged): n for score, judged, n in check.cells}
    trials = reverse("trial_list")
    names = {point: VERDICTS[point] if check.is_binary else f"{point:g}" for point in check.points}

    def make_cell(score: float, judged: float) -> CountCell:
        n = counts.get((score, judged), 0)
        query = {
            "experiment": experiment.slug,
            "scorer": judge.grade_condition_id,
            "score": f"{judged:g}",
            "second_scorer": check.key,
            "second_score": f"{score:g}",
        }
        address = f"{trials}?{urlencode(query)}" if n else ""
        return CountCell(n, address, score == judged, f"judge {names[judged]}, {check.reference} {names[score]}")

    rows = [(names[score], [make_cell(score, judged) for judged in check.points]) for score in check.points]
    return ShownCheck(check, check.describe(judge.short_label), [names[point] for point in check.points], rows)
