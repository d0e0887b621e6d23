"""The error message of a form that has no page of its own."""

from __future__ import annotations

from django.forms import BaseForm


def get_first_error(form: BaseForm) -> str:
    """Return the first error of the form, with its field's label. Raise ValueError if the form has no errors."""
    found = next(iter(form.errors.items()), None)
    if found is None:
        raise ValueError("the form has no errors")
    name, errors = found
    return f"{form[name].label}: {errors[0]}"
