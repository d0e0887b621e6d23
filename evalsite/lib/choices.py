"""Choices that come from rows are fetched in the view: a template must not query."""

from django.forms import BaseForm, ModelChoiceField


def fetch_choices(form: BaseForm) -> None:
    """Read the rows of every choice now, once."""
    for field in form.fields.values():
        if isinstance(field, ModelChoiceField):
            field.widget.choices = list(field.choices)  # type: ignore[attr-defined]
