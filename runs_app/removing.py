"""Taking an experiment out of use, or out of the database with all it made."""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction
from django.db.models import PROTECT, ManyToOneRel

from datasets_app.models import TransitionError
from datasets_app.models.history import Actor, record_changes
from runs_app.models import Experiment, Preflight, Run, Trial


def archive(experiment: Experiment, *, by: Actor, reason: str = "") -> None:
    """Out of sight, all rows kept. TransitionError while a run is live or when it is archived already."""
    with transaction.atomic():
        _refuse_while_live(experiment)
        Experiment.objects.transition_one(
            experiment,
            sources=[Experiment.Status.DRAFT, Experiment.Status.ACTIVE],
            target=Experiment.Status.ARCHIVED,
            by=by,
            reason=reason,
        )


def delete(experiment: Experiment, *, by: Actor, reason: str = "") -> None:
    """The experiment with its runs, trials, attempts and grades. What it cost stays in the history.

    Rows go run by run and by the database alone: a million trials never pass through this process. TransitionError
    while a run is live or a call is in flight, or something that stays rests on its answers (people's ratings, say).
    """
    with transaction.atomic():
        _refuse_while_live(experiment)
        _refuse_what_stays(experiment)
        spent = f"deleted; {experiment.spent_usd} USD were spent"
        record_changes([(experiment, experiment.status, spent)], by=by, reason=reason, what="experiment")
        for run in experiment.runs.order_by("-condition__stage", "pk"):  # Verdicts before the answers that they are on.
            _delete_work_of(run)
        experiment.delete()


def _refuse_while_live(experiment: Experiment) -> None:
    """Runs are locked as well, so that none can be started or claimed from meanwhile."""
    Experiment.objects.select_for_update().get(pk=experiment.pk)
    for run in experiment.runs.select_for_update().order_by("pk"):
        if run.is_live:
            raise TransitionError(f"{run} of {experiment} is {run.status}; pause or cancel it first")
    if experiment.preflights.filter(status=Preflight.Status.RUNNING).exists():
        raise TransitionError(f"a preflight of {experiment} is being made; try again when it has ended")


def _refuse_what_stays(experiment: Experiment) -> None:
    """By relation: apps above this one may hang rows on an experiment that keep it."""
    for related in Experiment._meta.related_objects:
        if related.on_delete is PROTECT:
            rows: Any = related.related_model
            found = rows._base_manager.filter(**{related.field.name: experiment}).first()
            if found:
                name = rows._meta.verbose_name
                raise TransitionError(f"the {name} {found} rests on {experiment}: archive it instead")


def _delete_work_of(run: Run) -> None:
    trials = Trial.objects.filter(run=run)
    for related in Trial._meta.get_fields(include_hidden=True):
        # By relation, not by name: apps above this one hang their rows on trials, too, and the cache without a name.
        if isinstance(related, ManyToOneRel):
            rows: Any = related.related_model
            rows._base_manager.filter(**{f"{related.field.name}__in": trials.values("pk")})._raw_delete(
                connection.alias
            )
    trials._raw_delete(connection.alias)
