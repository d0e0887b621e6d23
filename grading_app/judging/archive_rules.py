"""The archiving of graders."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from evalsite.lib.history import Actor, TransitionError, record_changes
from grading_app.models import Grader
from runs_app.models import Experiment
from runs_app.models.designs import check_archivable


def check_grader_archivable(grader: Grader, by: Actor) -> None:
    """Raise TransitionError if the grader is archived, or if `by` may not archive it."""
    if grader.archived_at is not None:
        raise TransitionError(f"grader {grader} is already archived")
    check_archivable(grader, by, named_by=Experiment.objects.filter(graders__contains=[grader.name]))


def archive_grader(grader: Grader, *, by: Actor, reason: str) -> None:
    """Archive the grader, so that it gives no new gradings. Existing gradings stay.

    Raise TransitionError if it is already archived, or if `by` may not archive it.
    """
    with transaction.atomic():
        check_grader_archivable(grader, by)
        if not Grader.objects.filter(pk=grader.pk, archived_at=None).update(archived_at=timezone.now()):
            raise TransitionError(f"grader {grader} is already archived")
        record_changes([(grader, "in use", "archived")], by=by, reason=reason)
