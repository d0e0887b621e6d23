"""The archiving of experiments, and the deletion of experiments and runs with all their rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.db.models import PROTECT, SET_NULL, ManyToOneRel, Sum
from django.db.models.expressions import RawSQL

from evalsite.lib.history import Actor, TransitionError, record_changes
from runs_app.engine.counters import CounterKeys, lock_counter_rows
from runs_app.engine.run_lifecycle import start_next_queued
from runs_app.models import Attempt, DeletedRun, Experiment, Run, Trial


def delete(experiment: Experiment, *, by: Actor, reason: str = "") -> None:
    """Delete the experiment with its runs, trials, attempts and grades. Its cost stays in the history.

    The database deletes the rows run by run, so this process never loads the trials.
    Raise TransitionError while a run is live or a call is in flight.
    Raise it also if rows that must stay, such as human ratings, depend on its answers.
    """
    with transaction.atomic():
        experiment.refuse_while_live()
        # Raise TransitionError if a row that protects its experiment refers to this experiment. Look through all
        # relations, because apps above this one may add such rows.
        for related in Experiment._meta.related_objects:
            if related.on_delete is PROTECT:
                rows: Any = related.related_model
                protecting = rows._base_manager.filter(**{related.field.name: experiment}).first()
                if protecting:
                    name = rows._meta.verbose_name
                    advice = "it stays archived" if experiment.is_archived else "archive the experiment instead"
                    raise TransitionError(f"the {name} {protecting} refers to {experiment}; {advice}")
        spent = f"deleted; {experiment.spent_usd} USD were spent"
        record_changes([(experiment, experiment.status, spent)], by=by, reason=reason, aspect="experiment")
        with experiment.permit_deletion():
            for run in experiment.runs.order_by("-condition__stage", "pk"):  # Verdicts before the answers they grade.
                delete_trials(run)
            experiment.delete()


def delete_run(run: Run, *, by: Actor, reason: str = "") -> None:
    """Delete one run with its trials, attempts and grades. A DeletedRun keeps its cost in the experiment.

    Raise TransitionError while the run is live or has a call in flight.
    Raise it also if verdicts of another run, or human ratings, depend on its answers.
    """
    with transaction.atomic():
        lock_counter_rows({CounterKeys(run.pk, run.experiment_id, run.condition.model.endpoint_id)})
        locked = Run.objects.with_design().filter(pk=run.pk).first()
        if locked is None:
            raise TransitionError(f"{run} was already deleted")
        if locked.experiment.is_stored:
            raise TransitionError(f"the rows of {locked.experiment} are in a file; bring them back first")
        if locked.is_live:
            raise TransitionError(
                f"{locked} is {locked.status} or has calls in flight; pause or cancel it and wait for its calls"
            )
        trials, others = _select_trial_keys(locked), Trial.objects.exclude(run=locked).order_by()
        judged = others.filter(subject__in=trials)[:1] or others.filter(rival__in=trials)[:1]
        if judged:
            raise TransitionError(f"run {judged[0].run_id} has verdicts on answers of {locked}; delete that run first")
        for related in Trial._meta.get_fields(include_hidden=True):
            if isinstance(related, ManyToOneRel) and related.on_delete is PROTECT:
                rows: Any = related.related_model
                if rows._base_manager.filter(**{f"{related.field.name}__in": trials}).exists():
                    raise TransitionError(
                        f"a {rows._meta.verbose_name} refers to answers of {locked}; archive the experiment instead"
                    )
        kept_usd = Attempt.objects.filter(run=locked).aggregate(usd=Sum("kept_usd", default=Decimal(0)))["usd"]
        DeletedRun.objects.create(
            experiment=locked.experiment,
            number=locked.pk,
            label=f"{locked.condition.label}, {locked.wave}"[:400],
            trials=locked.n_trials,
            attempts=locked.n_attempts,
            spent_usd=locked.spent_usd,
            kept_usd=kept_usd,
        )
        spent = f"deleted with {locked.n_trials} trials; {locked.spent_usd} USD still count towards the budget"
        record_changes([(locked.experiment, str(locked), spent)], by=by, reason=reason, aspect="run")
        with locked.experiment.permit_deletion():
            delete_trials(locked)
            locked.delete()
        start_next_queued([run.experiment_id])


def delete_trials(run: Run) -> None:
    """Delete the run's trials and the rows that refer to them. A text that a call wrote stays, without its call."""
    for related in Trial._meta.get_fields(include_hidden=True):
        # Go through the relations, because apps above this one add relations to trials. The cache has one without a
        # name. A view has no rows of its own.
        if isinstance(related, ManyToOneRel) and related.related_model._meta.managed:
            model: Any = related.related_model
            rows = model._base_manager.filter(**{f"{related.field.name}__in": _select_trial_keys(run)})
            if related.on_delete is SET_NULL:
                rows.update(**{related.field.name: None})
            else:
                rows._raw_delete(connection.alias)
    Trial.objects.filter(run=run)._raw_delete(connection.alias)


def _select_trial_keys(run: Run) -> RawSQL:
    """Return a subquery for the keys of the run's trials.

    They pass through an array, so the planner looks them up in an index. For a plain subquery it would read the rows of
    all experiments.
    """
    return RawSQL("SELECT unnest(ARRAY(SELECT id FROM runs_app_trial WHERE run_id = %s))", [run.pk])
