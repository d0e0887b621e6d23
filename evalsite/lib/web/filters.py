"""Filters and filter sets that the lists of several apps share."""

from __future__ import annotations

from typing import Any

import django_filters as df
from django.db.models import QuerySet

YES_NO = (("", "Any"), ("true", "Yes"), ("false", "No"))


class YesNoFilter(df.TypedChoiceFilter):
    """A choice of yes, no or any."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=YES_NO, coerce=lambda value: value == "true", empty_value=None, **kwargs)


class StrictFilterSet(df.FilterSet):
    """A filter whose invalid parameters select nothing instead of everything."""

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found: QuerySet[Any] = super().filter_queryset(queryset) if self.form.is_valid() else queryset.none()
        return found
