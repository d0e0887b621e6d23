"""Versions of prompts, rubrics, samplers and dimensions. A draft is approved, used and archived, but never changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max, QuerySet

from datasets_app.models.history import Actor, TransitionError
from evalsite.lib.permissions import is_curator
from runs_app.models import Experiment
from runs_app.models.designs import Versioned

NOT_COPIED = frozenset({"id", "version", "status", "content_hash", "created_by", "created_at", "approved_at"})


def next_version(kind: Any, name: str) -> int:
    """Return the number after the newest version of this name; 1 for a new name."""
    return int(kind.objects.filter(name=name).aggregate(last=Max("version"))["last"] or 0) + 1


def approve(row: Versioned, *, by: Actor, reason: str) -> None:
    """Approve and freeze a version.

    Raise ValueError for a problem in its content, TransitionError if it is no draft.
    """
    kind: Any = type(row)
    with transaction.atomic():
        locked = kind.objects.select_for_update().get(pk=row.pk)
        try:
            locked.clean()
        except ValidationError as problems:
            raise ValueError(f"{row} cannot be approved: {' '.join(problems.messages)}") from None
        kind.objects.transition_one(row, sources=["draft"], target="approved", by=by, reason=reason)


def archive(row: Versioned, *, by: Actor, reason: str) -> None:
    """Archive a version, so that new plans cannot use it. Trials that used it stay.

    Raise TransitionError if it is archived already, or if `by` may not archive it.
    """
    refuse_to_archive(row, by)
    retire(row, by=by, reason=reason)


def retire(row: Versioned, *, by: Actor, reason: str) -> None:
    """Archive a version that another one replaces, without a check of its author.

    Raise TransitionError if it is archived already.
    """
    type(row)._default_manager.transition_one(
        row, sources=["draft", "approved"], target="archived", by=by, reason=reason
    )


def refuse_to_archive(row: Any, by: Actor, named_by: QuerySet[Experiment] | None = None) -> None:
    """Raise TransitionError unless `by` may archive a row that the group shares.

    Curators may. The author may if no row of other people uses it. A string instead of a user is a program or the
    shell, and may too. `named_by` are experiments that refer to it by name. The message names no rows of other people,
    because they may be private.
    """
    if isinstance(by, str) or is_curator(by):
        return
    kind = row._meta.verbose_name
    if row.created_by is None or row.created_by != by:
        raise TransitionError(f"{kind} {row} was made by somebody else: its author or a curator can archive it")
    by_name = named_by is not None and named_by.exclude(owner_id=row.created_by_id).exists()
    if used := "experiments" if by_name else next(_uses_by_others(row, by), ""):
        raise TransitionError(f"{kind} {row} is used by {used} of other people: a curator can archive it")


def _uses_by_others(row: Any, by: Any) -> Iterator[str]:
    """Yield plural names of other people's rows that use this row. Checks every relation to rows with an owner."""
    for relation in row._meta.related_objects:
        users: Any = relation.related_model
        names = {field.name for field in users._meta.get_fields()}
        owned = next((path for path in ("owner", "experiment", "created_by") if path in names), None)
        if owned is None:
            continue
        theirs = users._base_manager.filter(**{relation.field.name: row})
        if theirs.exclude(**{"experiment__owner" if owned == "experiment" else owned: by}).exists():
            plural = "experiments" if owned == "experiment" else users._meta.verbose_name_plural
            yield str(plural)


def new_version(row: Versioned, *, by: Any) -> Versioned:
    """Create and return a draft with the same content."""
    kind = type(row)
    copied = {
        field.name: getattr(row, field.name) for field in kind._meta.concrete_fields if field.name not in NOT_COPIED
    }
    return kind._default_manager.create(version=next_version(kind, row.name), created_by=by, **copied)
