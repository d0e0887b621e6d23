"""Scores of stored answers."""

from grading_app.models.gradings import GradeCondition, Grading

__all__ = ["GradeCondition", "Grading"]
