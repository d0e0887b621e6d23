"""Fields of forms that offer something to choose.

Choices that come from rows are fetched in the view: a template must not query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.db.models import QuerySet
from django.forms import BaseForm, ChoiceField, ModelChoiceField
from django.utils.html import format_html


def choice_field(form: BaseForm, name: str) -> ChoiceField:
    """The form's field of that name, which offers choices. TypeError where it does not."""
    field = form.fields[name]
    if not isinstance(field, ChoiceField):
        raise TypeError(f"{name} offers no choices")
    return field


def row_field(form: BaseForm, name: str) -> ModelChoiceField[Any]:
    """The form's field of that name, which offers rows. TypeError where it offers none."""
    field = form.fields[name]
    if not isinstance(field, ModelChoiceField):
        raise TypeError(f"{name} offers no rows")
    return field


def offer_rows(form: BaseForm, name: str, rows: QuerySet[Any], said: Callable[[Any], str] | None = None) -> None:
    """Let the form's field of that name offer these rows, each as `said` says it. TypeError where it offers none."""
    field = row_field(form, name)
    field.queryset = rows
    if said is not None:
        field.label_from_instance = said  # type: ignore[method-assign, assignment] # As Django means it.


def offered(form: BaseForm, name: str) -> QuerySet[Any]:
    """The rows that the form's field of that name offers. TypeError where it offers none."""
    rows = row_field(form, name).queryset
    if rows is None:
        raise TypeError(f"{name} offers no rows yet")
    return rows


def fetch_choices(form: BaseForm) -> None:
    """Read the rows of every choice now, once."""
    for field in form.fields.values():
        if isinstance(field, ModelChoiceField):
            choices: Iterable[Any] = field.choices  # type: ignore[assignment]
            field.widget.choices = list(choices)


def link_to_new(form: BaseForm, name: str, user: Any, permission: str, address: str, label: str) -> None:
    """Put a link beside a field to the page that makes another row to choose, for a user who may make one."""
    if name in form.fields and user.has_perm(permission):
        field = form.fields[name]
        field.help_text = format_html('{} <a href="{}">{}</a>', field.help_text, address, label)
