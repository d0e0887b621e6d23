"""Filters that the lists of several apps share: their form fields, their filter sets, and chips of active filters.

A chip has a link that removes its filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import django_filters as df
from django import forms
from django.db.models import QuerySet
from django.forms import BaseForm
from django.http import HttpRequest

from evalsite.lib.text.characters import describe_unstorable
from evalsite.lib.web.addresses import change_query

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


PAGE_PARAMETERS = ("after", "before", "page")
MAX_TEXT = 40


@dataclass(frozen=True, slots=True)
class FilterChip:
    """One active filter. url: the address of the list's first page without the filter."""

    label: str
    text: str
    url: str


def list_filter_chips(form: BaseForm, request: HttpRequest) -> list[FilterChip]:
    """Return a chip for each field of the form that restricts the list. Hidden fields are included."""
    if not form.is_bound:
        return []
    return [
        FilterChip(str(form[name].label), _describe_value(form, name), _build_url_without(request, name))
        for name in form.changed_data
    ]


def _describe_value(form: BaseForm, name: str) -> str:
    """Return the filter's value as the field shows it."""
    value: Any = getattr(form, "cleaned_data", {}).get(name, form[name].data)
    choices = getattr(form.fields[name], "choices", None)
    if choices is not None and not hasattr(value, "pk"):
        raw = str(form[name].value())
        value = next((label for key, label in choices if str(key) == raw), raw)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # As the person typed it: 0, not 0.0.
    label = getattr(form.fields[name], "label_from_instance", None)
    text = label(value) if label is not None and hasattr(value, "pk") else str(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _build_url_without(request: HttpRequest, name: str) -> str:
    query = change_query(request, (name, *PAGE_PARAMETERS))
    return f"?{query}" if query else request.path
