"""The columns of a recorded call. Attempts and preflights share them, so that one ledger covers both."""

from __future__ import annotations

from django.db import models

HTTP_STATUS = (0, 999)


class CallRecord(models.Model):
    """The outcome, usage and cost of one call, in tokens and US dollars. An unknown value is empty."""

    error_class = models.CharField(max_length=40, default="")
    error = models.TextField(default="")
    http_status = models.SmallIntegerField(null=True)
    finish_reason = models.CharField(max_length=40, default="")
    response_id = models.CharField(max_length=200, default="")
    served_model = models.CharField(max_length=200, default="")
    served_provider = models.CharField(max_length=80, default="")
    input_tokens = models.IntegerField(null=True)
    output_tokens = models.IntegerField(null=True)
    reasoning_tokens = models.IntegerField(null=True)
    cache_read_tokens = models.IntegerField(null=True)
    cache_write_tokens = models.IntegerField(null=True)
    cost_usd = models.DecimalField(max_digits=14, decimal_places=8, null=True)
    list_usd = models.DecimalField(
        max_digits=14,
        decimal_places=8,
        null=True,
        help_text="Cost at list price, without the provider's cache discount. For a reused answer, the cost avoided",
    )
    kept_usd = models.DecimalField(
        max_digits=14, decimal_places=8, null=True, help_text="Amount that stays reserved because the cost is unknown"
    )
    latency_ms = models.IntegerField(null=True)
    trace_id = models.CharField(max_length=64, default="")

    class Meta:
        abstract = True
