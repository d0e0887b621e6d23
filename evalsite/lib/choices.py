"""Choices that come from rows are fetched in the view: a template must not query."""

from collections.abc import Iterable
from typing import Any

from django.forms import BaseForm, ModelChoiceField


def fetch_choices(form: BaseForm) -> None:
    """Read the rows of every choice now, once."""
    for field in form.fields.values():
        if isinstance(field, ModelChoiceField):
            choices: Iterable[Any] = field.choices  # type: ignore[assignment]
            field.widget.choices = list(choices)
