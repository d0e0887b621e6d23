"""Fields, and what is done to fields, that several forms share."""

from __future__ import annotations

from typing import Any

from django import forms

from runs_app.bounds import BOUNDS, Bound
from runs_app.models import Experiment


def bounded_integer(bound: Bound, **options: Any) -> forms.IntegerField:
    """Return a field for whole numbers of this range."""
    field = forms.IntegerField(**options)
    _limit(field, bound)
    return field


def bounded_number(bound: Bound, **options: Any) -> forms.FloatField:
    """Return a field for finite numbers of this range."""
    field = forms.FloatField(**options)
    _limit(field, bound)
    return field


def _limit(field: forms.Field, bound: Bound) -> None:
    def check(value: Any) -> None:
        if not bound.holds(value):
            raise forms.ValidationError(f"Must be {bound}.", code="out_of_range")

    field.validators.append(check)
    field.widget.attrs |= {"min": bound.low, "max": bound.high}


class PriorityField(forms.IntegerField):
    """Nothing is as good as zero."""

    def __init__(self) -> None:
        help_text = Experiment._meta.get_field("priority").help_text
        super().__init__(required=False, initial=0, help_text=help_text)
        _limit(self, BOUNDS["experiment"]["priority"])

    def clean(self, value: Any) -> int:
        return super().clean(value) or 0


def names_in(text: str) -> list[str]:
    """What stands between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def keep(field: forms.Field, why: str) -> None:
    """Shown as it is, and not read from what was sent."""
    field.disabled, field.help_text = True, why
