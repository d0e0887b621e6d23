"""The cost of deleted runs. The rows of their calls are gone, but their cost still counts."""

from __future__ import annotations

from django.db import models

from evalsite.lib.range_constraints import SIGNED, constrain_numbers
from runs_app.models.experiments import Experiment


@constrain_numbers(number=SIGNED)
class DeletedRun(models.Model):
    """The cost of one deleted run. It stays part of its experiment's spent and reserved dollars.

    Deleting a run therefore does not free any budget. `reconcile` checks the sums.
    """

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="deleted_runs")
    number = models.BigIntegerField(help_text="Primary key of the deleted run")
    label = models.CharField(max_length=400, help_text="Its condition and wave")
    trials = models.IntegerField()
    attempts = models.IntegerField()
    spent_usd = models.DecimalField(max_digits=16, decimal_places=8)
    kept_usd = models.DecimalField(
        max_digits=16,
        decimal_places=8,
        help_text="Still reserved for calls of unknown cost, which may be billed",
    )
    deleted_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["number"], name="deletedrun_number"),
            models.CheckConstraint(
                condition=models.Q(trials__gte=0, attempts__gte=0, spent_usd__gte=0, kept_usd__gte=0),
                name="deletedrun_counts_nothing_below_zero",
            ),
        ]

    def __str__(self) -> str:
        return f"deleted run {self.number}"
