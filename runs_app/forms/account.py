"""The forms of a person's account: notifications, and access tokens of the API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.utils import timezone

from evalsite.lib.permissions import is_member
from runs_app.models import ApiToken, Experiment, NotificationChoice
from runs_app.notifications import find_webhook_problem


class NotificationForm(forms.ModelForm):  # type: ignore[type-arg]
    webhook_url = forms.URLField(
        label="Webhook", required=False, max_length=500, assume_scheme="https",
        help_text=NotificationChoice._meta.get_field("webhook_url").help_text,
    )  # fmt: skip

    class Meta:
        model = NotificationChoice
        fields = ("on_end", "on_stop", "on_budget", "by_mail", "webhook_url")

    def __init__(self, data: Any, *, instance: NotificationChoice, user: Any) -> None:
        super().__init__(data, instance=instance)
        self.user = user
        mail = self.fields["by_mail"]
        if not settings.EMAIL_HOST:
            mail.disabled, mail.help_text = True, "An operator sets EVALSITE_EMAIL_HOST first."
        elif not user.email:
            mail.disabled, mail.help_text = True, "Your account has no mail address. An operator adds it in the admin."
        else:
            mail.help_text = f"To {user.email}"

    def clean_webhook_url(self) -> str:
        url: str = self.cleaned_data["webhook_url"]
        if url and (problem := find_webhook_problem(url)):
            raise forms.ValidationError(problem)
        return url


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
