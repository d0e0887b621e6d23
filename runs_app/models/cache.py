"""The shared memory of answers: which stored trial answers a request that was asked before."""

from __future__ import annotations

from django.db import models

from runs_app.models.work import Trial


class CachedAnswer(models.Model):
    """`key` is the identity of a request and its epoch; the answer itself is the trial's, stored once."""

    key = models.CharField(max_length=64, primary_key=True)
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.key[:12]}: trial {self.trial_id}"
