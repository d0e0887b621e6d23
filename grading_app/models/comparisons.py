"""What was measured of raters who said too much to be compared while somebody waits."""

from __future__ import annotations

from django.db import models

from runs_app.models import Experiment


class Comparison(models.Model):
    """One question to the raters of an experiment, worked out by a worker and kept until another is asked for.

    results: for each choice of raters to look at closely, the numbers of the page as `keeping` writes them.
    """

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="comparisons")
    question = models.CharField(max_length=64, help_text="A hash of what is asked")
    state = models.CharField(max_length=64, blank=True, help_text="Of the ratings that it rests on")
    results = models.JSONField(default=dict)
    n_splits = models.PositiveBigIntegerField(default=0, help_text="Units on which raters differ")
    asked_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, help_text="Of the last time that it was worked out, or failed")
    computed_at = models.DateTimeField(null=True, help_text="When the ratings were read that it rests on")
    took_s = models.FloatField(default=0)
    step = models.CharField(max_length=80, blank=True, help_text="What a worker is at")
    problem = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["experiment", "question"], name="comparison_once")]

    def __str__(self) -> str:
        return f"{self.experiment}: {self.question[:12]}"


class Split(models.Model):
    """A unit on which the raters of a comparison differ. Spreads are held negative: ascending is the largest first, and
    units of one spread follow in their own order, so that one index serves pages in both directions."""

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
