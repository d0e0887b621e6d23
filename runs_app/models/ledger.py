"""The ledger: calls, tokens and money by quarter of an hour and run, or by model for preflights.

The rows of a deleted run's calls are gone, but its cost still counts.
"""

from __future__ import annotations

from decimal import Decimal

from django.db import models

from evalsite.lib.constraints import SIGNED, Range, constrain_numbers
from runs_app.models.endpoints import LanguageModel
from runs_app.models.experiments import Experiment
from runs_app.models.runs import Run

# One session adds a corrected call to its own entry, and removes the former one there. So an entry can be negative.
LARGEST_SUM = Decimal(10) ** 10 - Decimal(10) ** -8
SIGNED_SUMS: dict[str, Range] = {
    **dict.fromkeys(
        ("list_usd", "paid_usd", "cache_saved_usd", "batch_saved_usd", "reuse_saved_usd", "kept_usd"),
        (-LARGEST_SUM, LARGEST_SUM),
    ),
    **dict.fromkeys(
        (
            "attempts", "answered", "reused", "input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens",
            "cache_write_tokens", "unpriced", "empty", "truncated", "refused", "unparsed",
        ),
        SIGNED,
    ),
}  # fmt: skip


@constrain_numbers(**SIGNED_SUMS)
class LedgerEntry(models.Model):
    """The sums of one run over a quarter of an hour, written by one database session.

    A quarter of an hour is short enough to add up days in any time zone, and long enough to keep the table small. Each
    session has its own entry, so no session waits for another session's lock.

    Preflights belong to no run. Their entries name the model and, if one paid, the experiment. Triggers on the calls
    update the ledger in the same transaction (`runs_app_enter_attempts`, `runs_app_enter_preflights`). `reconcile`
    checks it. In every entry, list price = paid + saved by the provider's cache, by batches and by reuse. Calls of
    unknown cost are counted in `unpriced` and are not part of any sum of money.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, null=True, related_name="ledger", db_index=False)
    model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, null=True, related_name="+", db_index=False)
    session = models.IntegerField(default=0, db_default=0, help_text="Database process that wrote the entry")
    at = models.DateTimeField(help_text="Start of the quarter of an hour in which the calls ended")
    attempts = models.BigIntegerField(default=0)
    answered = models.BigIntegerField(default=0)
    reused = models.BigIntegerField(default=0, help_text="Answered from the response cache, without a call")
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    cache_read_tokens = models.BigIntegerField(default=0)
    cache_write_tokens = models.BigIntegerField(default=0)
    list_usd = models.DecimalField(max_digits=18, decimal_places=8, default=0)
    paid_usd = models.DecimalField(max_digits=18, decimal_places=8, default=0)
    cache_saved_usd = models.DecimalField(max_digits=18, decimal_places=8, default=0)
    batch_saved_usd = models.DecimalField(max_digits=18, decimal_places=8, default=0)
    reuse_saved_usd = models.DecimalField(max_digits=18, decimal_places=8, default=0)
    unpriced = models.BigIntegerField(default=0)
    empty = models.BigIntegerField(
        default=0, help_text="Recorded answers without text. An answer can be in several of these four counts"
    )
    truncated = models.BigIntegerField(default=0)
    refused = models.BigIntegerField(default=0)
    unparsed = models.BigIntegerField(default=0)
    kept_usd = models.DecimalField(max_digits=18, decimal_places=8, default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "at", "session"], name="ledger_run_at_session"),
            models.UniqueConstraint(
                fields=["experiment", "model", "at"],
                name="ledger_preflight_at",
                condition=models.Q(run__isnull=True),
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=models.Q(run__isnull=False, model__isnull=True, experiment__isnull=True)
                | models.Q(run__isnull=True, model__isnull=False),
                name="ledger_of_run_or_model",
            ),
        ]
        indexes = [models.Index(fields=["at"], name="ledger_at")]

    def __str__(self) -> str:
        return f"{self.run_id or self.model} at {self.at:%Y-%m-%d %H:%M}"


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
