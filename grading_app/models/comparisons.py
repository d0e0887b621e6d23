"""Results over raters and verdicts that are too many to be computed during a request."""

from __future__ import annotations

from django.db import models

from grading_app.models.gradings import GradeCondition
from runs_app.models import Experiment


class BackgroundResult(models.Model):
    """A result that takes too long for a request: a page requests it, a worker computes it, and this row stores it."""

    state = models.CharField(max_length=64, blank=True, help_text="Of the ratings that it rests on")
    asked_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, help_text="Of the last time that it was worked out, or failed")
    computed_at = models.DateTimeField(null=True, help_text="When the ratings were read that it rests on")
    took_s = models.FloatField(default=0)
    step = models.CharField(max_length=80, blank=True, help_text="What a worker is at")
    problem = models.TextField(blank=True)

    class Meta:
        abstract = True


class Comparison(BackgroundResult):
    """The result of one question about the raters of an experiment. Only the most recent comparisons are kept.

    results: for each choice of roles, the numbers of the page, as `comparison.background` writes them.
    """

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="comparisons")
    question = models.CharField(max_length=64, help_text="A hash of what is asked")
    results = models.JSONField(default=dict)
    n_splits = models.PositiveBigIntegerField(default=0, help_text="Units on which raters differ")

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["experiment", "question"], name="comparison_once")]

    def __str__(self) -> str:
        return f"{self.experiment}: {self.question[:12]}"


class Split(models.Model):
    """A unit on which the raters of a comparison differ.

    Sizes are stored as negative numbers, so that ascending order is the largest first. Units of equal size follow by
    their key. So one index serves pages in both directions.
    """

    pk = models.CompositePrimaryKey("comparison", "unit")
    comparison = models.ForeignKey(Comparison, on_delete=models.CASCADE, related_name="splits", db_index=False)
    unit = models.BigIntegerField(help_text="An answer or an item")
    n = models.PositiveSmallIntegerField(help_text="How many rated it")
    minus_range = models.FloatField()
    minus_variance = models.FloatField()
    place_by_range = models.PositiveBigIntegerField(help_text="Among all of the comparison, from 1: too many to count")
    place_by_variance = models.PositiveBigIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["comparison", "minus_range", "unit"], name="split_by_range"),
            models.Index(fields=["comparison", "minus_variance", "unit"], name="split_by_variance"),
        ]

    def __str__(self) -> str:
        return f"{self.unit}: {-self.minus_range:g}"


class Sums(BackgroundResult):
    """One kind of sum over the verdicts of a grade condition. `reports.verdict_cache` writes `result`."""

    condition = models.ForeignKey(GradeCondition, on_delete=models.CASCADE, related_name="sums", db_index=False)
    part = models.CharField(max_length=20, help_text="In which respect")
    result = models.JSONField(null=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["condition", "part"], name="sums_once")]

    def __str__(self) -> str:
        return f"{self.condition}: {self.part}"
