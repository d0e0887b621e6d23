"""Cached aggregates, which are results over more rows than a request can read, and the scores of answers.

`AnswerScore` is a view of the database with a row for each answer and grader.
"""

from __future__ import annotations

from django.db import models

from datasets_app.models import Item
from evalsite.lib.constraints import LARGEST_FLOAT, SIGNED, constrain_numbers
from runs_app.models import Condition, Dimension, Experiment, Run, Trial, Wave


@constrain_numbers()
class CachedAggregate(models.Model):
    """The latest result of one aggregate for one query. `results.cached_aggregates` reads and writes it."""

    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, related_name="cached_aggregates", db_index=False
    )
    name = models.CharField(max_length=40, help_text="The name of the aggregate")
    key = models.CharField(max_length=64, help_text="A hash of the query")
    query = models.JSONField(help_text="The parameters of the computation")
    value = models.JSONField(null=True)
    fingerprint = models.CharField(max_length=64, blank=True, help_text="The fingerprint of the source rows")
    computed_at = models.DateTimeField(null=True, help_text="When the source rows were read")
    requested_at = models.DateTimeField(null=True, help_text="When the value was last requested")
    ended_at = models.DateTimeField(null=True, help_text="When a worker last finished or failed")
    duration_s = models.FloatField(default=0)
    step = models.CharField(
        max_length=80, blank=True, help_text="The worker's current step. Empty if no worker computes it"
    )
    problem = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["experiment", "name", "key"], name="cachedaggregate_once"),
        ]

    def __str__(self) -> str:
        return f"{self.experiment}: {self.name} {self.key[:12]}"


@constrain_numbers(unit=SIGNED, minus_variance=(-(LARGEST_FLOAT**2), LARGEST_FLOAT**2))
class StoredDisagreement(models.Model):
    """A unit on which the raters of a comparison differ, as a row of the stored list of disagreements.

    Sizes are stored as negative numbers, so that ascending order is the largest first. Units of equal size follow by
    their key. So one index serves pages in both directions.
    """

    pk = models.CompositePrimaryKey("aggregate", "unit")
    aggregate = models.ForeignKey(
        CachedAggregate, on_delete=models.CASCADE, related_name="disagreements", db_index=False
    )
    unit = models.BigIntegerField(help_text="An answer or an item")
    n = models.PositiveSmallIntegerField(help_text="Number of raters of the unit")
    minus_range = models.FloatField()
    minus_variance = models.FloatField()
    rank_by_range = models.PositiveBigIntegerField(
        help_text="Rank in the comparison, from 1. Stored because counting is slow"
    )
    rank_by_variance = models.PositiveBigIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["aggregate", "minus_range", "unit"], name="disagreement_by_range"),
            models.Index(fields=["aggregate", "minus_variance", "unit"], name="disagreement_by_variance"),
        ]

    def __str__(self) -> str:
        return f"{self.unit}: {-self.minus_range:g}"


class AnswerScore(models.Model):
    """The score of one answer by one grader, or the reason why it has none. `triggers.sql` declares the view.

    grader_kind, grader_id: "rating" and the dimension for the models' own ratings; "rule", "judge", "panel",
    "adjudicated" or "rater" and the grade condition; "person" and the queue, whose raters' mean is the score.
    """

    pk = models.CompositePrimaryKey("trial_id", "grader_kind", "grader_id")
    trial = models.ForeignKey(Trial, models.DO_NOTHING, related_name="+")
    grader_kind = models.CharField(max_length=12)
    grader_id = models.BigIntegerField()
    score = models.FloatField(null=True)
    score_raw = models.TextField(null=True, help_text="The text that the grader read from the answer")
    is_graded = models.BooleanField(help_text="The grader has seen the answer, whether a score could be read or not")
    missing = models.CharField(max_length=20, help_text="Why there is no score; empty with a score")
    run = models.ForeignKey(Run, models.DO_NOTHING, related_name="+")
    experiment = models.ForeignKey(Experiment, models.DO_NOTHING, related_name="+")
    wave = models.ForeignKey(Wave, models.DO_NOTHING, related_name="+")
    condition = models.ForeignKey(Condition, models.DO_NOTHING, related_name="+")
    item = models.ForeignKey(Item, models.DO_NOTHING, related_name="+")
    category = models.CharField(max_length=120, help_text="Of the item")
    dimension = models.ForeignKey(Dimension, models.DO_NOTHING, null=True, related_name="+")
    sample_idx = models.IntegerField(help_text="Repetition, from 0")
    status = models.CharField(max_length=10, help_text="Of the answer")

    class Meta:
        managed = False
        db_table = "grading_app_answerscore"

    def __str__(self) -> str:
        return f"score of answer {self.trial_id} by {self.grader_kind} {self.grader_id}"
