"""The models of the grading app: gradings, judges, ratings by people, cached aggregates, reports and snapshots."""

from grading_app.models.blind import BlindReading
from grading_app.models.gradings import Adjudication, GradeCondition, Grading, Preference, SupersededVerdict
from grading_app.models.publish import ReportChoices, ShareLink, Snapshot, StoredRows
from grading_app.models.raters import RaterAssignment, RaterInvitation
from grading_app.models.rating import RatedAnswer, Rating, RatingQueue
from grading_app.models.results import AnswerScore, CachedAggregate, StoredDisagreement
from grading_app.models.rubrics import Grader, Panel, Rubric, RubricTest

__all__ = [
    "Adjudication",
    "AnswerScore",
    "BlindReading",
    "CachedAggregate",
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
    "ReportChoices",
    "Rubric",
    "RubricTest",
    "ShareLink",
    "Snapshot",
    "StoredDisagreement",
    "StoredRows",
    "SupersededVerdict",
]
