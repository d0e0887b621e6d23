"""The history of all apps: every change of state has an author, a time and a reason."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from typing import Any, Self

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.contenttypes.models import ContentType
from django.db import models, transaction

from evalsite.lib.constraints import constrain_numbers

Actor = User | AnonymousUser | str | None
"""The author of a change: a signed-in user, or a name such as "worker host:123" or "command line"."""


class TransitionError(Exception):
    """A transition from a state that does not allow it. Nothing was changed."""


class StatusChangeQuerySet(models.QuerySet["StatusChange"]):
    def for_row(self, row: models.Model) -> Self:
        return self.filter(content_type=ContentType.objects.get_for_model(row), object_id=row.pk)

    def visible_to(self, user: Any) -> Self:
        """Return the changes of rows that the user may see.

        If a model has no `visible_to`, all users may see the changes of its rows.
        """
        if user.is_superuser:
            return self
        hidden = models.Q()
        for model in apps.get_models():
            if model is not StatusChange and hasattr(model._default_manager, "visible_to"):
                content_type = ContentType.objects.get_for_model(model)
                visible_keys = model._default_manager.visible_to(user).order_by().values("pk")
                hidden |= models.Q(content_type=content_type) & ~models.Q(object_id__in=visible_keys)
        return self.exclude(hidden)


@constrain_numbers()
class StatusChange(models.Model):
    """One change of one row: the old value, the new value, the author and the reason."""

    content_type = models.ForeignKey(ContentType, on_delete=models.CASCADE)
    object_id = models.BigIntegerField()
    aspect = models.CharField(
        max_length=40, default="status", help_text="The field or the part of the row that changed"
    )
    from_value = models.CharField(max_length=200, blank=True)
    to_value = models.CharField(max_length=200)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    actor = models.CharField(max_length=200, help_text="The author's name at the time, or the program's")
    reason = models.TextField(blank=True)
    at = models.DateTimeField(auto_now_add=True)

    objects = StatusChangeQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [models.Index(fields=["content_type", "object_id", "-at"], name="statuschange_of_row")]

    def __str__(self) -> str:
        return f"{self.aspect}: {self.from_value or '-'} to {self.to_value}"

    @property
    def change(self) -> str:
        """Return the old and the new value as text, or only the new value if there was no old one."""
        return f"{self.from_value} → {self.to_value}" if self.from_value else self.to_value


class HasHistory:
    """A mixin for models whose rows have a history."""

    @property
    def history(self) -> models.QuerySet[StatusChange]:
        """Return the changes of this row with their authors, newest first."""
        row: Any = self
        return StatusChange.objects.for_row(row).select_related("by")


def make_author_columns(by: Actor) -> tuple[User | None, str]:
    """Return the values of `by` and `actor`: the user, if any, and the name, which remains if the user is deleted."""
    user = by if isinstance(by, User) else None
    return user, by if isinstance(by, str) else (user.get_username() if user else "unknown")


def record_changes(
    rows: Collection[tuple[models.Model, str, str]], *, by: Actor, reason: str, aspect: str = "status"
) -> None:
    """Create one StatusChange for each (row, from, to)."""
    user, actor = make_author_columns(by)
    StatusChange.objects.bulk_create(
        StatusChange(
            content_type=ContentType.objects.get_for_model(row),
            object_id=row.pk,
            aspect=aspect,
            from_value=before,
            to_value=after,
            by=user,
            actor=actor,
            reason=reason,
        )
        for row, before, after in rows
    )


def save_with_history(row: models.Model, *, by: Actor, reason: str = "", fields: Collection[str] | None = None) -> None:
    """Save a row that people edit, and record one StatusChange per changed column, or one for a new row.

    All editable fields are saved, or only `fields`. The old values are read again under a lock, because another person
    may have changed the row since it was read.
    """
    kind = type(row)
    with transaction.atomic():
        previous = kind._base_manager.select_for_update(no_key=True).filter(pk=row.pk).first()
        row.save(update_fields=fields)
        if previous is None:
            record_changes([(row, "", "created")], by=by, reason=reason)
            return
        for field in kind._meta.concrete_fields:
            is_saved = field.editable and (fields is None or field.name in fields)
            if is_saved and getattr(previous, field.attname) != getattr(row, field.attname):
                before, after = (format_for_history(getattr(version, field.name)) for version in (previous, row))
                aspect = str(field.verbose_name)[:40]
                record_changes([(row, before, after)], by=by, reason=reason, aspect=aspect)


def format_for_history(value: Any) -> str:
    """Return a column's value as readable text, cut to the length of a StatusChange's value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    text = ", ".join(map(str, value)) if isinstance(value, list) else value
    return "none" if text in (None, "") else str(text)[:200]


class TransitionQuerySet(models.QuerySet[Any]):
    """A QuerySet for models with a `status`, which changes only by transitions from the allowed states."""

    def transition(
        self, *, sources: Collection[str], target: str, by: Actor, reason: str = "", **changes: Any
    ) -> list[int]:
        """Move every row whose status is in `sources` to `target`, with its history, in one transaction.

        Return the keys of the moved rows. The rows are first locked in the order of their keys, so two concurrent
        transitions cannot both start from one state.
        """
        with transaction.atomic():
            rows = list(self.filter(status__in=sources).select_for_update(of=("self",)).order_by("pk"))
            keys = [row.pk for row in rows]
            self.model._base_manager.filter(pk__in=keys).update(status=target, **changes)
            record_changes([(row, row.status, target) for row in rows], by=by, reason=reason)
        return keys

    def transition_one(self, row: models.Model, **transition: Any) -> None:
        """Apply `transition` to one row and refresh it. Raise TransitionError if its state does not allow it."""
        if not self.filter(pk=row.pk).transition(**transition):
            row.refresh_from_db(fields=["status"])
            sources = " or ".join(transition["sources"])
            raise TransitionError(
                f"{row} is {row.status}; only {sources} can become {transition['target']}"  # type: ignore[attr-defined]
            )
        row.refresh_from_db()
