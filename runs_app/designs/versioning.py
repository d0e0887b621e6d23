"""Prompts, rubrics, samplers and dimensions in versions: a draft is approved, used, archived, and never changed."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max

from datasets_app.models.history import Actor
from runs_app.models.designs import Versioned

NOT_COPIED = frozenset({"id", "version", "status", "content_hash", "created_by", "created_at", "approved_at"})


def next_version(kind: Any, name: str) -> int:
    """The number after the newest version of this name; 1 for a new name."""
    return int(kind.objects.filter(name=name).aggregate(last=Max("version"))["last"] or 0) + 1


def approve(row: Versioned, *, by: Actor, reason: str) -> None:
    """Into use, and frozen. ValueError where its content has a problem; TransitionError where it is no draft."""
    kind: Any = type(row)
    with transaction.atomic():
        locked = kind.objects.select_for_update().get(pk=row.pk)
        try:
            locked.clean()
        except ValidationError as problems:
            raise ValueError(f"{row} cannot be approved: {' '.join(problems.messages)}") from None
        kind.objects.transition_one(row, sources=["draft"], target="approved", by=by, reason=reason)


def archive(row: Versioned, *, by: Actor, reason: str) -> None:
    """Out of use for new plans; what was asked with it stays. TransitionError where it is archived already."""
    type(row)._default_manager.transition_one(
        row, sources=["draft", "approved"], target="archived", by=by, reason=reason
    )


def new_version(row: Versioned, *, by: Any) -> Versioned:
    """A draft with the same content, to be changed."""
    kind = type(row)
    copied = {
        field.name: getattr(row, field.name) for field in kind._meta.concrete_fields if field.name not in NOT_COPIED
    }
    return kind._default_manager.create(version=next_version(kind, row.name), created_by=by, **copied)
