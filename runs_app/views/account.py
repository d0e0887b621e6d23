"""The pages of a person's account: notifications by mail or webhook, and access tokens of the API.

Operators see the tokens of all accounts.
"""

from __future__ import annotations

from typing import cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from evalsite.lib.permissions import is_operator, readers_only
from runs_app.forms.account import ApiTokenForm, NotificationForm
from runs_app.models import ApiToken, Notification, NotificationChoice
from runs_app.notifications import enqueue_sending
from runs_app.tables.account import ApiTokenTable
from runs_app.views.permissions import get_posted_data

MAX_SHOWN_MESSAGES = 20


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
