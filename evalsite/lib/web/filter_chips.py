"""The filters that apply, as chips with a link that removes each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.forms import BaseForm
from django.http import HttpRequest

PAGES = ("after", "before", "page")
LONGEST = 40


@dataclass(frozen=True, slots=True)
class FilterChip:
    """One filter that applies. url: the address of the list without it, from its first page."""

    label: str
    text: str
    url: str


def list_filter_chips(form: BaseForm, request: HttpRequest) -> list[FilterChip]:
    """Return a chip for each field of the form that restricts the list. Hidden fields are included."""
    if not form.is_bound:
        return []
    return [FilterChip(str(form[name].label), _text(form, name), _without(request, name)) for name in form.changed_data]


def _text(form: BaseForm, name: str) -> str:
    """Return what was chosen, as the field shows it."""
    value: Any = getattr(form, "cleaned_data", {}).get(name, form[name].data)
    choices = getattr(form.fields[name], "choices", None)
    if choices is not None and not hasattr(value, "pk"):
        raw = str(form[name].data)
        value = next((label for key, label in choices if str(key) == raw), raw)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # As it was typed: 0, not 0.0.
    label = getattr(form.fields[name], "label_from_instance", None)
    text = label(value) if label is not None and hasattr(value, "pk") else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _without(request: HttpRequest, name: str) -> str:
    query = request.GET.copy()
    for other in (name, *PAGES):
        query.pop(other, None)
    return f"?{query.urlencode()}" if query else request.path
