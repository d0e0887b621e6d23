"""Each rater's verdict on one answer, and the raters' values of a page of units."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from evalsite.lib.sql import fetch_rows
from grading_app.models import Grading, Rating
from grading_app.raters.raters import Rater
from grading_app.raters.rating_selection import RatingSelection
from grading_app.raters.unit_counts import RATINGS, build_ratings_sql
from grading_app.results.statistic_format import format_number
from runs_app.models import Trial


@dataclass(frozen=True, slots=True)
class RaterVerdict:
    """One rater's verdict on one answer.

    value: None without a verdict. error: the error code of an unreadable verdict. label: the chosen label if it is
    stored, because several labels may have the same score.
    """

    rater: Rater
    value: float | None
    reasoning: str = ""
    error: str = ""
    label: str = ""

    @property
    def text(self) -> str:
        return format_number(None) if self.value is None else self.rater.format_value(self.value)

    @property
    def name(self) -> str:
        """The name of the chosen point of the scale, or "". Several names are joined by "or"."""
        points = self.rater.scale.points if self.rater.scale and self.rater.is_scored else ()
        return self.label or " or ".join(name for value, name in points if value == self.value)


def list_verdicts(trial: Trial, raters: list[Rater], criterion: str = "") -> list[RaterVerdict]:
    """Return a verdict for every rater, with an empty value for raters without one. criterion: "" for the total."""
    gradings = {f"g{grading.condition_id}": grading for grading in Grading.objects.filter(trial=trial)}
    ratings = {
        f"p{rating.assignment_id}-{rating.dimension_id}": rating.value
        for rating in Rating.objects.filter(Q(trial=trial), value__isnull=False, assignment__excluded_at=None)
    }
    return [_make_verdict(rater, trial, gradings.get(rater.key), ratings.get(rater.key), criterion) for rater in raters]


def _make_verdict(
    rater: Rater, trial: Trial, grading: Grading | None, value: float | None, criterion: str
) -> RaterVerdict:
    if grading is not None:
        label = str((grading.detail or {}).get("label", ""))
        reasoning = grading.reasoning or grading.score_raw
        return RaterVerdict(rater, grading.get_level(criterion), reasoning, grading.parse_error, label)
    return RaterVerdict(rater, trial.rating if rater.key == "own" else value)


def load_values(selection: RatingSelection, units: list[int]) -> dict[tuple[int, str], float]:
    """Return the values of these units by (unit, rater)."""
    ratings, parameters = build_ratings_sql(selection, selection.all_raters)
    return {
        (unit, rater): value
        for unit, rater, value in fetch_rows(f"WITH {ratings} {RATINGS}", {**parameters, "units": units})
    }
