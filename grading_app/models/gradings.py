"""A grading is one score of one trial by one scorer; its condition says by which rule."""

from __future__ import annotations

from typing import Any, Self

from django.db import models

from runs_app.models import Experiment, Trial


class GradeCondition(models.Model):
    """One way to grade an experiment's answers: a scorer with its parameters, identified by content."""

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="grade_conditions")
    grade_condition_id = models.CharField(max_length=255)
    scorer = models.CharField(max_length=40)
    parameters = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["experiment", "grade_condition_id"], name="grade_condition_in_experiment")
        ]

    def __str__(self) -> str:
        return self.grade_condition_id


class GradingQuerySet(models.QuerySet["Grading"]):
    def visible_to(self, user: Any) -> Self:
        return self.filter(condition__experiment__in=Experiment.objects.visible_to(user))


class Grading(models.Model):
    """parse_ok is false exactly where parse_error is set and score is empty: the database keeps it so."""

    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="gradings")
    condition = models.ForeignKey(GradeCondition, on_delete=models.CASCADE, related_name="gradings", db_index=False)
    score = models.FloatField(null=True)
    score_raw = models.TextField(default="", db_default="", help_text="What was read from the answer")
    parse_ok = models.BooleanField()
    parse_error = models.CharField(max_length=40, default="", db_default="")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = GradingQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["condition", "trial"], name="grading_once"),
            models.CheckConstraint(
                condition=models.Q(parse_ok=True, parse_error="", score__isnull=False)
                | models.Q(parse_ok=False, score__isnull=True) & ~models.Q(parse_error=""),
                name="grading_parse_contract",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.condition.scorer}: {self.score}"
