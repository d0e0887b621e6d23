"""Blind reading: a reader hides the names of an experiment's models, until the reader reveals them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.utils import timezone

from evalsite.lib.constraints import constrain_numbers
from runs_app.models import Condition, Experiment, Preregistration


class BlindReadingQuerySet(models.QuerySet["BlindReading"]):
    def hidden_for(self, user: Any) -> Self:
        """Return the readings whose names this user has not revealed."""
        return self.filter(reader=user, revealed_at=None)

    def list_unread_plans(self, user: Any, experiments: Iterable[Experiment]) -> list[Experiment]:
        """Return those experiments whose preregistered plan has not run and of which this user has no reading."""
        plans = Preregistration.objects.unfinished().filter(experiment__in=experiments)
        unread = plans.exclude(experiment__blind_readings__reader=user)
        return [plan.experiment for plan in unread.select_related("experiment__dataset", "experiment__owner")]

    def start_for_plans(self, user: Any, experiments: Iterable[Experiment]) -> None:
        """Hide the names of those experiments whose preregistered plan has not run, unless this user has read them."""
        for experiment in self.list_unread_plans(user, experiments):
            self.model.start(experiment, user)


@constrain_numbers()
class BlindReading(models.Model):
    """The period in which one reader sees letters in place of the names of an experiment's models.

    It belongs to one reader, so that revealing the names does not unblind another reader. Every reader of the
    experiment sees the record. The database allows a single change: `revealed_at` is set once.
    """

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="blind_readings")
    reader = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    order = models.JSONField(help_text="Keys of the models in random order: A, B, C")
    started_at = models.DateTimeField(auto_now_add=True)
    revealed_at = models.DateTimeField(null=True)

    objects = BlindReadingQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["experiment", "reader"],
                condition=models.Q(revealed_at=None),
                name="blindreading_one_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return f"{self.experiment} by {self.reader}"

    @classmethod
    def start(cls, experiment: Experiment, reader: Any) -> BlindReading:
        """Return the reader's current blind reading, or a new one with the models in a random order."""
        order = list(dict.fromkeys(_list_models(experiment)))
        random.SystemRandom().shuffle(order)
        reading, _ = cls.objects.get_or_create(
            experiment=experiment, reader=reader, revealed_at=None, defaults={"order": order}
        )
        return reading

    @property
    def must_stay_hidden(self) -> bool:
        """True while the experiment has a preregistered plan that has not run."""
        return self.experiment.runs_a_plan

    def reveal(self) -> bool:
        """Reveal the names. Return False if they were revealed before."""
        hidden = BlindReading.objects.filter(pk=self.pk, revealed_at=None)
        return bool(hidden.update(revealed_at=timezone.now()))

    def assign_letters(self, model_ids: Iterable[int] | None = None) -> dict[int, str]:
        """Return the letter of each model by its key, in the order of the letters.

        Models that were added after the start come last.

        `model_ids` are the keys of the experiment's models, if the caller has read them.
        """
        keys = dict.fromkeys([*self.order, *(_list_models(self.experiment) if model_ids is None else model_ids)])
        return {key: f"Model {_format_letter(index)}" for index, key in enumerate(keys)}


def _list_models(experiment: Experiment) -> Any:
    conditions = Condition.objects.filter(experiment=experiment, stage=Condition.Stage.GENERATE)
    return conditions.order_by("pk").values_list("model", flat=True)


def _format_letter(number: int) -> str:
    """Return A to Z, then AA, AB and so on."""
    text = ""
    number += 1
    while number:
        number, remainder = divmod(number - 1, 26)
        text = chr(ord("A") + remainder) + text
    return text
