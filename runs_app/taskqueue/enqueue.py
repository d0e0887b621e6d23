"""Functions that enqueue tasks by dotted name, to avoid import cycles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.db.models import Sum

from evalsite.lib.history import Actor
from runs_app.grading_interface import GRADE

if TYPE_CHECKING:
    from runs_app.models import Experiment, LanguageModel, Preflight

IDLE_SECONDS = 3600
DRAIN = "runs_app.tasks.drain"
RETENTION = "grading_app.tasks.apply_retention_rule"
PREFLIGHT = "runs_app.tasks.make_preflight"


def enqueue_drains(queue: str | None = None) -> None:
    """Enqueue as many drains as a cluster runs, for any cluster or for `queue`. A drain without work ends at once."""

    def enqueue() -> None:
        for _ in range(settings.DRAINS):
            enqueue_one_drain(queue)

    transaction.on_commit(enqueue)


def enqueue_one_drain(queue: str | None = None) -> None:
    from django_q.tasks import async_task

    async_task(DRAIN, cluster=queue, save=False)


def enqueue_preflights(keys: Collection[int], *, by: Actor, experiment: Experiment | None = None) -> None:
    """Enqueue one small call to each model with these ids. Each result is stored in its Preflight."""
    from django_q.tasks import async_task

    from runs_app.models import Preflight

    rows = Preflight.objects.request(keys, by=by, experiment=experiment)

    def enqueue() -> None:
        for row in rows:
            async_task(PREFLIGHT, row.pk)

    transaction.on_commit(enqueue)


def enqueue_try(model: LanguageModel, *, by: Actor, **content: Any) -> Preflight:
    """Enqueue one call with the messages and parameters in `content`, and return its row, which gets the answer."""
    from django_q.tasks import async_task

    from runs_app.models import Preflight

    (row,) = Preflight.objects.request([model.pk], by=by, **content)
    transaction.on_commit(lambda: async_task(PREFLIGHT, row.pk))
    return row


def enqueue_grading_of_idle_runs() -> None:
    """Enqueue the grading of answers in runs that stand still: paused, stopped and cancelled runs.

    A finished run is graded when it ends. Each sum of answers is enqueued once an hour at most, because calls in flight
    may still be recorded after a run stopped.
    """
    from django_q.tasks import async_task

    from runs_app.models import Run

    idle = [Run.Status.PAUSED, Run.Status.STOPPED, Run.Status.CANCELLED]
    runs = Run.objects.generating().callable_here().filter(status__in=idle, n_done__gt=0)
    sums = runs.order_by().values("experiment").annotate(done=Sum("n_done"))
    for experiment, done in sums.values_list("experiment", "done"):
        if cache.add(f"idle-answers:{experiment}:{done}", True, IDLE_SECONDS):
            async_task(GRADE, experiment)


def enqueue_retention_rule() -> None:
    """Enqueue the removal of old raw responses, once an hour, if the site has this rule."""
    from django_q.tasks import async_task

    if settings.RAW_RESPONSE_DAYS and cache.add("retention-rule", True, IDLE_SECONDS):
        async_task(RETENTION)


def enqueue_grading(run_ids: Sequence[int]) -> None:
    """Enqueue the grading of these finished runs by rules, after the commit. This costs no model calls."""
    from django_q.tasks import async_task

    from runs_app.models import Experiment

    def enqueue() -> None:
        for pk in Experiment.objects.filter(runs__in=run_ids).values_list("pk", flat=True).distinct():
            async_task(GRADE, pk)

    transaction.on_commit(enqueue)
