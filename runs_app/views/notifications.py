"""The page on which people choose what they are told of, and by mail or webhook."""

from __future__ import annotations

from typing import cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from evalsite.lib.permissions import readers_only
from runs_app.forms.notifications import NotificationForm
from runs_app.models import Notification, NotificationChoice
from runs_app.notifications import enqueue_sending

MAX_SHOWN = 20


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
        "sent": list(Notification.objects.visible_to(request.user).select_related("experiment")[:MAX_SHOWN]),
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
