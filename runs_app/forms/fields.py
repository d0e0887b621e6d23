"""Fields, and what is done to fields, that several forms share."""

from __future__ import annotations

from typing import Any

from django import forms

from runs_app.models import Experiment


class PriorityField(forms.IntegerField):
    """Nothing is as good as zero."""

    def __init__(self) -> None:
        help_text = Experiment._meta.get_field("priority").help_text
        super().__init__(min_value=-9, max_value=9, required=False, initial=0, help_text=help_text)

    def clean(self, value: Any) -> int:
        return super().clean(value) or 0


def names_in(text: str) -> list[str]:
    """What stands between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def keep(field: forms.Field, why: str) -> None:
    """Shown as it is, and not read from what was sent."""
    field.disabled, field.help_text = True, why
