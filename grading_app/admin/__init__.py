"""The admin of grading: rubrics, graders and panels, and queues of ratings by people."""

from grading_app.admin import rating, rubrics

__all__ = ["rating", "rubrics"]
