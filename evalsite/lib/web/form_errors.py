"""What is wrong with a form that has no page of its own."""

from __future__ import annotations

from django.forms import BaseForm


def first_form_error(form: BaseForm) -> str:
    """As a message: the field's label and the first thing that is wrong with it. ValueError where nothing is."""
    found = next(iter(form.errors.items()), None)
    if found is None:
        raise ValueError("the form has no errors")
    name, errors = found
    return f"{form[name].label}: {errors[0]}"
