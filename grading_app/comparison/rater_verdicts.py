"""Each rater's verdict on one answer, side by side, and the values of a page of units."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from grading_app.comparison.query import Question
from grading_app.comparison.raters import Rater
from grading_app.comparison.unit_counts import RATINGS, given_by, rows
from grading_app.models import Grading, Rating
from grading_app.reports.statistic_format import number
from runs_app.models import Trial


@dataclass(frozen=True, slots=True)
class Side:
    """One rater's verdict on one answer.

    value: None if the rater gave none. why: the error code of a verdict that could not be read. label: the chosen
    label, if it is stored; several labels may have the same score.
    """

    rater: Rater
    value: float | None
    words: str = ""
    why: str = ""
    label: str = ""

    @property
    def text(self) -> str:
        return number(None) if self.value is None else self.rater.text_of(self.value)

    @property
    def name(self) -> str:
        """The name of the chosen point of the scale, if it has one. Several names are joined by "or"."""
        points = self.rater.scale.points if self.rater.scale and self.rater.is_scored else ()
        return self.label or " or ".join(name for value, name in points if value == self.value)


def sides_of(trial: Trial, raters: list[Rater], criterion: str = "") -> list[Side]:
    """Return a side for every rater of the question, also without a verdict: on one criterion, or in total."""
    gradings = {f"g{grading.condition_id}": grading for grading in Grading.objects.filter(trial=trial)}
    ratings = {
        f"p{rating.assignment_id}-{rating.dimension_id}": rating.value
        for rating in Rating.objects.filter(Q(trial=trial), value__isnull=False, assignment__excluded_at=None)
    }
    return [_side(rater, trial, gradings.get(rater.key), ratings.get(rater.key), criterion) for rater in raters]


def _side(rater: Rater, trial: Trial, grading: Grading | None, value: float | None, criterion: str) -> Side:
    if grading is not None:
        label = str((grading.detail or {}).get("label", ""))
        words = grading.reasoning or grading.score_raw
        return Side(rater, grading.level(criterion), words, grading.parse_error, label)
    return Side(rater, trial.rating if rater.key == "own" else value)


def values_by_unit(question: Question, units: list[int]) -> dict[tuple[int, str], float]:
    """Return the values of these units by (unit, rater)."""
    given, chosen = given_by(question, question.everyone)
    return {(unit, rater): value for unit, rater, value in rows(f"WITH {given} {RATINGS}", {**chosen, "units": units})}
