"""The shared memory of answers: which stored trial answers a request that was asked before."""

from __future__ import annotations

from typing import Self

from django.db import models

from runs_app.models.trials import Trial


class CachedAnswerQuerySet(models.QuerySet["CachedAnswer"]):
    def answered(self) -> Self:
        """Not those whose request is being asked, or waits to be."""
        return self.filter(trial__status=Trial.Status.DONE)


class CachedAnswer(models.Model):
    """`key` is the identity of a request and its epoch: taken by the trial that asks it, answered when that is done.
    The answer itself is the trial's, stored once."""

    key = models.CharField(max_length=64, primary_key=True)
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = CachedAnswerQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.key[:12]}: trial {self.trial_id}"
