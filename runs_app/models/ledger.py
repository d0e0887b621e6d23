"""The ledger: sums of attempts by run and quarter of an hour, which the database keeps as attempts come in."""

from __future__ import annotations

from django.db import models

from runs_app.models.runs import Run


class LedgerEntry(models.Model):
    """A quarter of an hour of one run: small enough to make days of in any time zone, few enough to add up at once.

    Triggers on the attempts keep it (`runs_app_enter_attempts`), in the transaction that writes them; `reconcile`
    proves it. In every entry list = paid + saved by the provider's cache, by batches and by reuse; calls of unknown
    cost are counted in `unpriced` and have no part in any sum of money.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="ledger", db_index=False)
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
    empty = models.BigIntegerField(default=0, help_text="Of the answers kept; one may be several of these four")
    truncated = models.BigIntegerField(default=0)
    refused = models.BigIntegerField(default=0)
    unparsed = models.BigIntegerField(default=0)
    kept_usd = models.DecimalField(max_digits=18, decimal_places=8, default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "at"], name="ledger_run_at")]
        indexes = [models.Index(fields=["at"], name="ledger_at")]

    def __str__(self) -> str:
        return f"{self.run_id} at {self.at:%Y-%m-%d %H:%M}"
