"""Cached comparisons. A result is valid until a rating that enters it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.cache import cache
from django.db.models import Count, Max, Q

from evalsite.lib.text.hashing import content_hash
from grading_app.comparison.query import Question
from grading_app.comparison.raters import Rater, queues_of
from grading_app.comparison.unit_counts import Frame, load_frame
from grading_app.models import RaterAssignment, Rating
from grading_app.reports.frame_cache import SECONDS
from runs_app.models import Experiment

if TYPE_CHECKING:
    from grading_app.comparison.agreement_report import Measured

VERSION = 6  # Increase it when the same ratings are measured differently.


@dataclass(frozen=True)
class Roles:
    """The raters in detail: a judge, the people it is compared with, and two raters for the confusion matrix."""

    judge: Rater | None
    people: list[Rater]
    pair: tuple[Rater, Rater] | None

    @property
    def content(self) -> list[Any]:
        return [self.judge and self.judge.key, self.pair and [rater.key for rater in self.pair]]


@dataclass(frozen=True)
class Compared:
    """The result of a comparison. units: the number of compared units, out of `total`."""

    units: int
    total: int
    measured: Measured | None


def roles_of(question: Question, wanted: dict[str, str]) -> Roles:
    """Return the roles from the address, or by default the first judge or panel, and the first two raters.

    Without a judge or panel, the first rater that is not a person takes its place. Norms and adjudicated scores are no
    people: they are compared on their own.
    """
    known = {rater.key: rater for rater in question.raters}
    people = [rater for rater in question.raters if rater.kind == "person"]
    others = [rater for rater in question.raters if rater not in people]
    judges = [rater for rater in others if rater.kind in ("judge", "panel")] or others
    judge = known.get(wanted.get("judge", "")) or (judges[0] if judges else None)
    pair = [rater for key in ("first", "second") if (rater := known.get(wanted.get(key, "")))]
    pair = pair if len(set(pair)) == 2 else question.raters[:2]
    others_than_judge = [person for person in people if person != judge]
    return Roles(
        judge if others_than_judge else None, others_than_judge, (pair[0], pair[1]) if len(pair) == 2 else None
    )


def state_of_question(question: Question) -> str:
    """Return a text that changes whenever a rating that may count is added, removed or changed."""
    return content_hash([VERSION, state_of_ratings(question.experiment, queues_of(question.chosen)), question.content])


def state_of_ratings(experiment: Experiment, keys: list[int]) -> str:
    """Return a hash of all ratings of the experiment and of these queues. It reads counters, never the gradings."""
    answered = experiment.runs.generating().order_by("pk").values_list("pk", "n_done")
    graded = experiment.grade_conditions.order_by("pk").values_list("pk", "changes")
    rated = Rating.objects.filter(assignment__queue__in=keys).aggregate(n=Count("value"), last=Max("rated_at"))
    raters = RaterAssignment.objects.filter(queue__in=keys)
    excluded = raters.aggregate(n=Count("pk"), out=Count("pk", filter=Q(excluded_at__isnull=False)))
    return content_hash([experiment.pk, list(answered), list(graded), str(rated), sorted(excluded.items()), keys])


def kept_comparison(question: Question, roles: Roles, state: str) -> Compared:
    key = f"agreement:{state}:{content_hash(roles.content)}"
    found: Compared | None = cache.get(key)
    if found is None:
        found = compare(question, roles, load_frame(question))
        cache.set(key, found, SECONDS)
    return found


def compare(question: Question, roles: Roles, frame: Frame) -> Compared:
    from grading_app.comparison.agreement_report import measured  # numpy, which other pages do not need.
    from grading_app.statistics.ratings import tallied

    if not frame.lines:
        return Compared(0, 0, None)
    singles = {mean: [single.key for single in found] for mean, found in question.singles.items()}
    keys = [*(rater.key for rater in question.everyone), *(key for found in singles.values() for key in found)]
    given = {rater for said in frame.kinds.values() for rater in said}
    numbers = measured(
        tallied(frame.lines, frame.kinds, [key for key in keys if key in given]),
        raters=[rater.key for rater in question.raters],
        references=[rater.key for rater in question.references if rater.key in given],
        singles={mean: [key for key in found if key in given] for mean, found in singles.items()},
        humans=[rater.key for rater in question.raters if rater.kind == "person"],
        pair=(roles.pair[0].key, roles.pair[1].key) if roles.pair else None,
        judge=roles.judge.key if roles.judge else None,
        people=[rater.key for rater in roles.people],
        are_names=question.in_pairs,
    )
    return Compared(frame.units, frame.total, numbers)
