"""Cached aggregates: results over more rows than a request can read."""

from __future__ import annotations

from django.db import models

from evalsite.lib.constraints import LARGEST_FLOAT, SIGNED, constrain_numbers
from runs_app.models import Experiment


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
