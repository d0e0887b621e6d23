"""The error message of a form that has no page of its own."""

from __future__ import annotations

from django.forms import BaseForm


def get_first_error(form: BaseForm) -> str:
    """Return the first error of the form, with the label of its field if it has one.

    Raise ValueError if the form has no errors.
    """
    first = next(iter(form.errors.items()), None)
    if first is None:
        raise ValueError("the form has no errors")
    name, errors = first
    return f"{form[name].label}: {errors[0]}" if name in form.fields else str(errors[0])
