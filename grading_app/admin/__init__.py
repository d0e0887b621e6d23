"""The admin of grading: rubrics, judges and panels, and queues of ratings by people."""

from grading_app.admin import graders, rating, rubrics

__all__ = ["graders", "rating", "rubrics"]
