"""Points: the parts of a design that may be decided before every case was asked."""

from __future__ import annotations

from typing import Any, Self

from django.contrib.postgres.fields import ArrayField
from django.db import models

from evalsite.lib.choice_constraints import constrain_choices
from evalsite.lib.stats.t_interval import MeanInterval
from evalsite.lib.stats.wilson import Interval
from runs_app.models.designs import Dimension
from runs_app.models.experiments import Experiment
from runs_app.models.runs import Run
from runs_app.stopping.rules import Correction, Ratings, Tally


def format_point_label(key: dict[str, Any], dimension: Dimension | None = None) -> str:
    """Return a label such as `spatial` or `depth 3, length 16`. With a dimension: `calm, valence`."""
    if set(key) == {"category"}:
        place = str(key["category"]) or "no category"
    elif set(key) == {"task", "point"}:
        place = str(key["point"])
    else:
        place = ", ".join(f"{name} {value}" for name, value in sorted(key.items()))
    return f"{place}, {dimension.name}" if dimension else place


class PointQuerySet(models.QuerySet["Point"]):
    def visible_to(self, user: Any) -> Self:
        return self.filter(run__experiment__in=Experiment.objects.visible_to(user))

    def open(self) -> Self:
        return self.filter(status=Point.Status.OPEN)


@constrain_choices
class Point(models.Model):
    """The items of one category, of one point of a space, or with the same metadata, in one run.

    They are asked in rounds until a rule stops.

    If items are rated, each point belongs to one dimension. Case k (from 0) is repetition k // n_items of item `items[k
    % n_items]`. Cases 0 to n_planned - 1 have a trial. Other cases have no trial and therefore no reservation. The
    counts are from the last decision.
    """

    class Status(models.TextChoices):
        OPEN = "open", "Open"
        ENOUGH = "enough", "Precise enough"
        EXHAUSTED = "exhausted", "Maximum reached"
        ABORTED = "aborted", "Aborted"
        CANCELLED = "cancelled", "Cancelled"

    DECIDED = frozenset({Status.ENOUGH, Status.EXHAUSTED, Status.ABORTED})

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="points", db_index=False)
    dimension = models.ForeignKey(Dimension, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    key = models.JSONField(help_text="The category, or each parameter with its value")
    items = ArrayField(models.BigIntegerField(), help_text="Keys of its items, in the order in which they are drawn")
    n_items = models.PositiveIntegerField()
    status = models.CharField(max_length=10, choices=Status, default=Status.OPEN, editable=False)
    n_planned = models.PositiveIntegerField(default=0, help_text="Cases that have a trial")
    n_correct = models.PositiveIntegerField(default=0)
    n_total = models.PositiveIntegerField(default=0, help_text="Answers that were scored and not cut off")
    n_truncated = models.PositiveIntegerField(default=0, help_text="Answers that were cut off: no part of the accuracy")
    n_unread = models.PositiveIntegerField(default=0, help_text="Answers from which no score could be read")
    n_failed = models.PositiveIntegerField(default=0, help_text="Trials without an answer")
    n_rated_items = models.PositiveIntegerField(default=0, help_text="Items with a rating; 0 where none are rated")
    mean = models.FloatField(null=True, help_text="Of the ratings: of the items' own means")
    spread = models.FloatField(null=True, help_text="Standard deviation of the items' own means")
    guess_chances = models.FloatField(default=0, help_text="Chances to guess right, summed over the scored answers")
    half_width = models.FloatField(null=True)
    reason = models.TextField(blank=True, help_text="Of the last decision")
    rounds = models.JSONField(default=list, help_text="Each decision: when, on which counts, what and why")
    decided_at = models.DateTimeField(null=True)

    objects = PointQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["run", "key", "dimension"], name="point_in_run", nulls_distinct=False)
        ]
        indexes = [models.Index(fields=["run"], name="point_open", condition=models.Q(status="open"))]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        return format_point_label(self.key, self.dimension)

    @property
    def effective_n(self) -> float | None:
        """The number of independent answers that the scored answers are worth; None if each item has one."""
        found: float | None = self.rounds[-1].get("effective") if self.rounds else None
        return found

    def interval(self, confidence: float, correction: Correction) -> Interval | MeanInterval | None:
        """Return the interval at the last decision, of the accuracy beyond guessing or of the mean rating.

        Return None before any answer was scored.
        """
        if not self.n_total:
            return None
        if self.dimension is None:
            tally = Tally(self.n_correct, self.n_total, self.n_truncated, self.guess_chances, self.effective_n)
            return tally.interval(confidence, correction)
        found = (self.n_rated_items, self.n_total, self.mean or 0.0, self.spread or 0.0)
        return Ratings(*found, scale=self.dimension.scale).interval(confidence)
