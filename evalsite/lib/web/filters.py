"""Filters, their form fields and filter sets that the lists of several apps share."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import django_filters as df
from django import forms
from django.db.models import QuerySet

from evalsite.lib.text.pg_text import describe_unstorable

YES_NO = (("", "Any"), ("true", "Yes"), ("false", "No"))


class YesNoFilter(df.TypedChoiceFilter):
    """A choice of yes, no or any."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=YES_NO, coerce=lambda value: value == "true", empty_value=None, **kwargs)


class FavouriteFilter(YesNoFilter):
    """A choice between the user's favourites and all other rows, for a queryset `with_star`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(field_name="is_starred", **kwargs)


class RowFilter(df.ModelChoiceFilter):
    """A choice of a row. The error for a value that is not offered names the value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("error_messages", {"invalid_choice": "%(value)s is not one of the choices. Choose another."})
        super().__init__(*args, **kwargs)


class WholeNumberFilter(df.Filter):
    """A filter by whole number. A number that no column can store matches nothing."""

    field_class = forms.IntegerField


def read_parameters(text: str) -> dict[str, str]:
    """Return the parameters of a text such as `length=8&max_depth=2`. Raise ValueError for another format."""
    params = dict(parse_qsl(text, strict_parsing=True, keep_blank_values=True, max_num_fields=30))
    if problem := describe_unstorable(params):
        raise ValueError(problem)
    return params


class ParameterField(forms.CharField):
    """Parameters of generated items, in the format of a query string. The cleaned value is a mapping."""

    def clean(self, value: Any) -> dict[str, str]:
        text = super().clean(value)
        if not text:
            return {}
        try:
            return read_parameters(text)
        except ValueError as error:
            raise forms.ValidationError("Enter parameters as name=value, joined by &.") from error


class ParameterFilter(df.Filter):
    """A filter by parameters of the item."""

    field_class = ParameterField


class StrictFilterSet(df.FilterSet):
    """A filter set that returns nothing, instead of everything, for invalid parameters."""

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().filter_queryset(queryset) if self.form.is_valid() else queryset.none()
        return rows
