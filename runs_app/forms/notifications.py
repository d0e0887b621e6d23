"""The form of a person's notifications."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings

from runs_app.models import NotificationChoice
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
