"""Chips that show the active filters of a list, each with a link that removes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.forms import BaseForm
from django.http import HttpRequest

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
    query = request.GET.copy()
    for parameter in (name, *PAGE_PARAMETERS):
        query.pop(parameter, None)
    return f"?{query.urlencode()}" if query else request.path
