"""The form of an access token of the API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from evalsite.lib.permissions import is_member
from runs_app.models import ApiToken, Experiment

DAYS = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "1 year"))
DEFAULT_DAYS = 90


class ApiTokenForm(forms.Form):
    label = forms.CharField(label="Name", max_length=80, help_text=ApiToken._meta.get_field("label").help_text)
    scope = forms.ChoiceField(label="Permissions", choices=ApiToken.Scope.choices)
    experiment = forms.ModelChoiceField(
        Experiment.objects.none(), label="Reach", required=False, to_field_name="slug",
        empty_label="All experiments of my account",
    )  # fmt: skip
    days = forms.TypedChoiceField(label="Valid for", choices=DAYS, coerce=int, initial=DEFAULT_DAYS)

    def __init__(self, data: Any, user: Any) -> None:
        super().__init__(data)
        self.fields["experiment"].queryset = Experiment.objects.visible_to(user)  # type: ignore[attr-defined]
        if not is_member(user):  # A viewer only reads.
            self.fields["scope"].choices = ApiToken.Scope.choices[:1]  # type: ignore[attr-defined]

    @property
    def expires_at(self) -> datetime:
        return timezone.now() + timedelta(days=self.cleaned_data["days"])
