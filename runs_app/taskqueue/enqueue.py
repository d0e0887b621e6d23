"""Asking the task queue, by name: whoever asks knows nothing of what is asked for, and so nothing goes in circles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import transaction

from datasets_app.models.history import Actor
from runs_app.grading_interface import GRADE

if TYPE_CHECKING:
    from runs_app.models import Experiment

DRAIN = "runs_app.tasks.drain"
PREFLIGHT = "runs_app.tasks.make_preflight"


def wake(queue: str | None = None) -> None:
    """Ask for as many drains as a cluster runs, of any cluster or of one; those that find none needed end at once."""

    def enqueue() -> None:
        for _ in range(settings.DRAINS):
            wake_one(queue)

    transaction.on_commit(enqueue)


def wake_one(queue: str | None = None) -> None:
    from django_q.tasks import async_task

    async_task(DRAIN, cluster=queue, save=False)


def ask_preflights(keys: Collection[int], *, by: Actor, experiment: Experiment | None = None) -> None:
    """Ask for one tiny call to each model of these keys; what came of each will be on its row."""
    from django_q.tasks import async_task

    from runs_app.models import Preflight

    rows = Preflight.objects.ask(keys, by=by, experiment=experiment)

    def enqueue() -> None:
        for row in rows:
            async_task(PREFLIGHT, row.pk)

    transaction.on_commit(enqueue)


def runs_finished(run_ids: Sequence[int]) -> None:
    """Runs have ended, once this is committed: their answers can be graded by rules, which costs nothing."""
    from django_q.tasks import async_task

    from runs_app.models import Experiment

    def enqueue() -> None:
        for pk in Experiment.objects.filter(runs__in=run_ids).values_list("pk", flat=True).distinct():
            async_task(GRADE, pk)

    transaction.on_commit(enqueue)
