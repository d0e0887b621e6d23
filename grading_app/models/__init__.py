"""Scores of stored answers, and ratings by people."""

from grading_app.models.gradings import GradeCondition, Grading
from grading_app.models.rating import RaterAssignment, RaterInvitation, Rating, RatingQueue

__all__ = ["GradeCondition", "Grading", "RaterAssignment", "RaterInvitation", "Rating", "RatingQueue"]
