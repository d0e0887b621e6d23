"""The checks of judges as pages show them: sentences, and tables of counts whose cells link to the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.urls import reverse
from django.utils.http import urlencode

from grading_app.models import GradeCondition
from grading_app.raters.judge_checks import JUDGE_CHECKS, JudgeCheck, JudgeChecks, is_checked
from grading_app.raters.verdict_aggregates import get_aggregates_by_condition
from grading_app.results.cached_aggregates import Cached
from runs_app.models import Experiment

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


def get_short_label(judge: GradeCondition) -> str:
    """Return the judge's name without its rubric."""
    return judge.grader.name if judge.grader else judge.label


def describe_checks(experiment: Experiment, conditions: Sequence[GradeCondition]) -> dict[int, ShownChecks]:
    """Return the checks of the judges and panels among these grade conditions of an experiment."""
    judges = [condition for condition in conditions if is_checked(condition)]
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
    return ShownCheck(check, check.describe(get_short_label(judge)), [names[point] for point in check.points], rows)
