"""Favourites: the rows that a person starred. Each person sees and changes only their own stars."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models
from django.http import HttpRequest

Rows = TypeVar("Rows", bound=models.QuerySet[Any])


class StarredQuerySet:
    """Part of a queryset of rows with a relation `starred_by` to the people whose favourites they are."""

    def with_star(self: Rows, user: Any) -> Rows:  # type: ignore[misc] # Only querysets have this part.
        """Add `is_starred`: whether the row is a favourite of the user."""
        relation: Any = self.model._meta.get_field("starred_by")
        row = {relation.m2m_field_name(): models.OuterRef("pk")}
        return self.annotate(
            is_starred=models.Exists(relation.remote_field.through.objects.filter(user=user.pk, **row))
        )


def change_star(row: Any, request: HttpRequest) -> None:
    """Make the row a favourite of the user, or no longer, as the button of the form says. Repeating it is harmless."""
    if request.POST.get("starred") == "0":
        row.starred_by.remove(request.user)
    else:
        row.starred_by.add(request.user)
