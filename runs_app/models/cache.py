"""The response cache: it maps a request to the stored trial that has its answer."""

from __future__ import annotations

from typing import Self

from django.db import models

from evalsite.lib.range_constraints import constrain_numbers
from runs_app.models.trials import Trial


class CachedAnswerQuerySet(models.QuerySet["CachedAnswer"]):
    def answered(self) -> Self:
        """Return the entries whose trial is done. Others are in flight or waiting."""
        return self.filter(trial__status=Trial.Status.DONE)


@constrain_numbers()
class CachedAnswer(models.Model):
    """A cache entry: the identity of a request and its epoch (`key`), and the trial that makes the request.

    The trial claims the key first. The entry is usable once the trial is done. The answer is stored only in the trial.
    """

    key = models.CharField(max_length=64, primary_key=True)
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = CachedAnswerQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.key[:12]}: trial {self.trial_id}"
