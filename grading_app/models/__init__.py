"""Scores of stored answers by rules, judges and people, and ratings by people."""

from grading_app.models.comparisons import BackgroundResult, Comparison, Split, Sums
from grading_app.models.gradings import Adjudication, GradeCondition, Grading, Preference, SupersededVerdict
from grading_app.models.rating import RatedAnswer, RaterAssignment, RaterInvitation, Rating, RatingQueue
from grading_app.models.rubrics import Grader, Panel, Rubric
from grading_app.models.snapshots import Snapshot

__all__ = [
    "Adjudication",
    "BackgroundResult",
    "Comparison",
    "GradeCondition",
    "Grader",
    "Grading",
    "Panel",
    "Preference",
    "RatedAnswer",
    "RaterAssignment",
    "RaterInvitation",
    "Rating",
    "RatingQueue",
    "Rubric",
    "Snapshot",
    "Split",
    "Sums",
    "SupersededVerdict",
]
