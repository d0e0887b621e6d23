"""The pages of a person's account: notifications by mail or webhook, and access tokens of the API.

Operators see the tokens of all accounts.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

import django_tables2 as tables
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from evalsite.lib.permissions import is_member, is_operator, readers_only
from evalsite.lib.text import number_format
from runs_app.models import ApiToken, Experiment, Notification, NotificationChoice
from runs_app.notifications import enqueue_sending, find_webhook_problem
from runs_app.tables.columns import TimeColumn
from runs_app.views.permissions import get_posted_data

MAX_SHOWN_MESSAGES = 20
DAYS = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "1 year"))
DEFAULT_DAYS = 90


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


class ApiTokenTable(tables.Table):
    user = tables.Column(verbose_name="Account")
    label = tables.Column(verbose_name="Name")
    public_id = tables.Column(verbose_name="Begins with")
    scope = tables.Column(verbose_name="Permissions")
    experiment = tables.Column(verbose_name="Reach", empty_values=())
    created_at = TimeColumn(verbose_name="Created")
    last_used_at = TimeColumn(verbose_name="Last used", default="never")
    expires_at = TimeColumn(verbose_name="Valid until")
    state = tables.TemplateColumn(template_name="runs_app/partials/token_state.html")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def render_public_id(self, record: ApiToken) -> str:
        return str(record)

    def render_scope(self, record: ApiToken) -> str:
        return record.scope

    def render_experiment(self, record: ApiToken) -> str:
        return record.experiment.slug if record.experiment else "all experiments"


@require_http_methods(["GET", "HEAD", "POST"])
@readers_only
def notifications(request: HttpRequest) -> HttpResponse:
    choice = _get_choice(request)
    form = NotificationForm(request.POST if request.method == "POST" else None, instance=choice, user=request.user)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, "Your notifications are saved.")
        return redirect("notifications")
    context = {
        "form": form,
        "choice": choice,
        "is_saved": choice.pk is not None and not choice._state.adding,
        "sent": list(Notification.objects.visible_to(request.user).select_related("experiment")[:MAX_SHOWN_MESSAGES]),
        "webhook_hosts": settings.WEBHOOK_HOSTS,
        "has_mail": bool(settings.EMAIL_HOST),
    }
    response = render(request, "runs_app/notifications.html", context)
    response["Cache-Control"] = "private, no-store"
    return response


@require_POST
@readers_only
def notifications_test(request: HttpRequest) -> HttpResponse:
    """Write a test message for each chosen channel. The task queue sends it like any other."""
    choice = _get_choice(request)
    channels, owner = choice.channels, choice.user_id
    Notification.objects.bulk_create(
        Notification(user_id=owner, event=Notification.Event.TEST, channel=channel, text="This is a test.")
        for channel in channels
    )
    enqueue_sending()
    if channels:
        messages.success(request, "A test message is on its way. Reload this page to see whether it arrived.")
    else:
        messages.error(request, "Choose mail or a webhook first.")
    return redirect("notifications")


def _get_choice(request: HttpRequest) -> NotificationChoice:
    choice = NotificationChoice.objects.filter(user=request.user.pk).select_related("user").first()
    return choice or NotificationChoice(user=cast(User, request.user))


MAX_SHOWN_TOKENS = 200  # Tokens in each list.


@require_http_methods(["GET", "HEAD", "POST"])
@readers_only
def token_list(request: HttpRequest) -> HttpResponse:
    """List tokens, and create one. Its text is shown once, because only its hash is stored."""
    form, text = ApiTokenForm(get_posted_data(request)[0], request.user), ""
    if request.method == "POST" and form.is_valid():
        chosen = form.cleaned_data
        _, text = ApiToken.create(
            request.user, chosen["label"], chosen["scope"], form.expires_at, experiment=chosen["experiment"]
        )
        form = ApiTokenForm(None, request.user)
    visible = ApiToken.objects.visible_to(request.user).select_related("user", "experiment")
    others = visible.exclude(user=request.user.pk) if is_operator(request.user) else visible.none()
    context = {
        "form": form,
        "text": text,
        "tokens": ApiTokenTable(list(visible.filter(user=request.user.pk)[:MAX_SHOWN_TOKENS]), exclude=("user",)),
        "others": ApiTokenTable(list(others[:MAX_SHOWN_TOKENS])),
        "sees_others": is_operator(request.user),
    }
    response = render(request, "runs_app/token_list.html", context)
    response["Cache-Control"] = "private, no-store"
    return response


@require_POST
@readers_only
def token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(ApiToken.objects.visible_to(request.user), pk=pk)
    changed = token.revoke(by=request.user)
    messages.success(request, f"{token} is revoked." if changed else f"{token} was revoked before.")
    return redirect("token_list")
