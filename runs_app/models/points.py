"""Points: the parts of an adaptive design. A stopping rule may decide a point before all its cases are asked."""

from __future__ import annotations

from typing import Any, Self

from django.contrib.postgres.fields import ArrayField
from django.db import models

from evalsite.lib.constraints import LARGEST_FLOAT, constrain_choices, constrain_numbers
from evalsite.lib.stats import Interval, MeanInterval
from runs_app.models.designs import Dimension
from runs_app.models.experiments import Experiment
from runs_app.models.runs import Run
from runs_app.stopping.rules import Correction, PointRatings, Tally


def format_point_label(key: dict[str, Any], dimension: Dimension | None = None) -> str:
    """Return a label such as `spatial` or `depth 3, length 16`. With a dimension: `calm, valence`."""
    if set(key) == {"category"}:
        label = str(key["category"]) or "no category"
    elif set(key) == {"task", "point"}:
        label = str(key["point"])
    else:
        label = ", ".join(f"{name} {value}" for name, value in sorted(key.items()))
    return f"{label}, {dimension.name}" if dimension else label


class PointQuerySet(models.QuerySet["Point"]):
    def visible_to(self, user: Any) -> Self:
        return self.filter(run__experiment__in=Experiment.objects.visible_to(user))

    def open(self) -> Self:
        return self.filter(status=Point.Status.OPEN)


POSITIVE = (0, LARGEST_FLOAT)


@constrain_numbers(spread=POSITIVE, guess_chances=POSITIVE, half_width=POSITIVE)
@constrain_choices
class Point(models.Model):
    """The items of one category, of one point of a space, or with the same metadata, in one run.

    The items are asked in rounds until a stopping rule applies. If items are rated, each point belongs to one
    dimension. Case k (from 0) is repetition k // n_items of item `items[k % n_items]`. Cases 0 to n_planned - 1 have a
    trial. Other cases have no trial and therefore no reservation. The counts are from the last decision.
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
    key = models.JSONField(help_text="Category, or the value of each parameter")
    items = ArrayField(models.BigIntegerField(), help_text="Keys of its items, in drawing order")
    n_items = models.PositiveIntegerField()
    status = models.CharField(max_length=10, choices=Status, default=Status.OPEN, editable=False)
    n_planned = models.PositiveIntegerField(default=0, help_text="Cases that have a trial")
    n_correct = models.PositiveIntegerField(default=0)
    n_total = models.PositiveIntegerField(default=0, help_text="Scored answers that are not truncated")
    n_truncated = models.PositiveIntegerField(default=0, help_text="Truncated answers, which the accuracy excludes")
    n_unread = models.PositiveIntegerField(default=0, help_text="Answers without a readable score")
    n_failed = models.PositiveIntegerField(default=0, help_text="Trials without an answer")
    n_rated_items = models.PositiveIntegerField(default=0, help_text="Rated items. 0 if the design has no ratings")
    mean = models.FloatField(null=True, help_text="Mean of the items' mean ratings")
    spread = models.FloatField(null=True, help_text="Standard deviation of the items' mean ratings")
    guess_chances = models.FloatField(default=0, help_text="Sum of the chances to guess right, over the scored answers")
    half_width = models.FloatField(null=True)
    reason = models.TextField(blank=True, help_text="Reason for the last decision")
    rounds = models.JSONField(default=list, help_text="Decisions, each with its time, counts, result and reason")
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
        """Return the effective sample size of the scored answers; None if each item has one answer."""
        effective: float | None = self.rounds[-1].get("effective") if self.rounds else None
        return effective

    def interval(self, confidence: float, correction: Correction) -> Interval | MeanInterval | None:
        """Return the interval of the accuracy beyond guessing, or of the mean rating, at the last decision.

        Return None before the first answer is scored.
        """
        if not self.n_total:
            return None
        if self.dimension is None:
            tally = Tally(self.n_correct, self.n_total, self.n_truncated, self.guess_chances, self.effective_n)
            return tally.interval(confidence, correction)
        counts = (self.n_rated_items, self.n_total)
        return PointRatings(*counts, self.mean or 0.0, self.spread or 0.0, scale=self.dimension.scale).interval(
            confidence
        )
