"""Messages by mail or webhook when the runs of an experiment end, stop, or reach the budget.

The engine does not know of them. The task `maintain` looks at the states of runs, compares them with the last look, and
writes one row for each message. A task of the queue sends the rows, so a slow or dead receiver delays no call. A task
that dies between sending and recording sends the message again; receivers can ignore a second message with the same id.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import smtplib
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.contenttypes.models import ContentType
from django.core.cache import cache
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from evalsite.lib.history import StatusChange
from evalsite.lib.text.number_format import format_count, format_money
from runs_app.models import Experiment, NoticedState, Notification, NotificationChoice, Run
from runs_app.models.totals import FAILED, Totals

LOOK_BACK = timedelta(minutes=30)
"""Runs that ended within this time are looked at. A site that was down for longer tells only of later ends."""
TIMEOUT_S = 10
BATCH = 50
SEND = "runs_app.tasks.send_notifications"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
Event = Notification.Event


def notice_events() -> int:
    """Write the messages for events that are new since the last look. Return their number."""
    if not NotificationChoice.objects.exists():
        return 0
    since = timezone.now() - LOOK_BACK
    halted = Q(status=Run.Status.STOPPED) | Q(paused_by_budget=True)
    changing = Run.objects.filter(Q(status__in=Run.UNDER_WAY) | Q(finished_at__gte=since) | halted)
    keys = set(changing.order_by().values_list("experiment", flat=True))
    keys |= set(NoticedState.objects.filter(events="").values_list("experiment", flat=True))
    told = dict(NoticedState.objects.filter(experiment__in=keys).values_list("experiment", "events"))
    runs: dict[int, list[Run]] = {key: [] for key in keys}
    for run in Run.objects.filter(experiment__in=keys):
        runs[run.experiment_id].append(run)
    return sum(_notice_experiment(key, since) for key in sorted(keys) if told.get(key) != _join(find_events(runs[key])))


def _join(events: Iterable[str]) -> str:
    return " ".join(sorted(events))


def _notice_experiment(key: int, since: datetime) -> int:
    """Store the events of one experiment, and write messages for the new ones.

    The lock on its row keeps two workers from telling an event twice. The first look at an experiment tells only of
    changes after `since`: somebody may have asked for messages long after its runs had ended.
    """
    with transaction.atomic():
        state, is_new = NoticedState.objects.select_for_update().get_or_create(experiment_id=key)
        runs = list(Run.objects.filter(experiment=key).order_by("pk"))
        events, told = find_events(runs), set(state.events.split())
        state.events = _join(events)
        state.save(update_fields=["events"])
        history = StatusChange.objects.filter(
            content_type=ContentType.objects.get_for_model(Run), object_id__in=[run.pk for run in runs], at__gte=since
        )
        if is_new and not history.exists():
            return 0
        experiment = Experiment.objects.get(pk=key)
        return sum(_write_messages(experiment, runs, event) for event in sorted(events - told))


def find_events(runs: Iterable[Run]) -> set[str]:
    """Return the events that hold for these runs of one experiment."""
    run_list = list(runs)
    events = set()
    if any(run.status == Run.Status.STOPPED for run in run_list):
        events.add(str(Event.STOP))
    if any(run.is_paused_by_budget for run in run_list):
        events.add(str(Event.BUDGET))
    ended = {Run.Status.DONE, Run.Status.CANCELLED}
    has_ended_trials = any(run.n_done or run.n_failed for run in run_list)
    if has_ended_trials and all(run.status in ended for run in run_list):
        events.add(str(Event.END))
    return events


def _write_messages(experiment: Experiment, runs: list[Run], event: str) -> int:
    """Write a message for each person and channel. Only people who may see the experiment hear of it."""
    text = describe_event(experiment, runs, event)
    concerned = Q(user=experiment.owner_id) | Q(user__in=experiment.starred_by.values("pk"))
    choices = NotificationChoice.objects.filter(concerned, user__is_active=True).select_related("user")
    rows = [
        Notification(user=choice.user, experiment=experiment, event=event, channel=channel, text=text)
        for choice in choices
        if event in choice.events and Experiment.objects.visible_to(choice.user).filter(pk=experiment.pk).exists()
        for channel in choice.channels
    ]
    return len(Notification.objects.bulk_create(rows))


def describe_event(experiment: Experiment, runs: list[Run], event: str) -> str:
    """Return the event in one or two sentences, with counts and costs but without any answer."""
    totals = Totals.of(runs)
    spent = format_money(experiment.spent_usd)
    if event == Event.STOP:
        stopped = [run for run in runs if run.status == Run.Status.STOPPED]
        return (
            f"{format_count(len(stopped))} of {format_count(len(runs))} runs stopped. {stopped[0].current_stop_reason}"
        )
    if event == Event.BUDGET:
        budget = format_money(experiment.max_usd) if experiment.max_usd is not None else "none"
        return f"Budget reached: {spent} of {budget} spent. {format_count(totals.done)} calls are done."
    if totals.state == FAILED:
        return f"All runs have ended without an answer: {format_count(totals.failed)} calls failed, {spent} spent."
    failed = f", {format_count(totals.failed)} failed" if totals.failed else ""
    return f"All runs have ended: {format_count(totals.done)} calls done{failed}, {spent} spent."


def enqueue_sending() -> None:
    """Enqueue the task that sends messages, if a message is due and no such task is waiting."""
    from django_q.tasks import async_task

    if Notification.objects.due().exists() and cache.add("notifications_enqueued", True, 60):
        async_task(SEND)


def send_due() -> int:
    """Send the due messages. Return the number of sent ones."""
    cache.delete("notifications_enqueued")
    n_sent = 0
    for key in list(Notification.objects.due().order_by("try_at").values_list("pk", flat=True)[:BATCH]):
        n_sent += _send(key)
    return n_sent


def _send(key: int) -> bool:
    with transaction.atomic():  # Take the message, so that another task does not send it at the same time.
        message = Notification.objects.due().select_for_update(skip_locked=True).filter(pk=key).first()
        if message is None:
            return False
        wait = Notification.WAITS[min(message.n_tries, len(Notification.WAITS) - 1)]
        message.n_tries += 1
        message.try_at = timezone.now() + wait
        message.save(update_fields=["n_tries", "try_at"])
    problem = _deliver(message)
    message.problem = problem[:300]
    message.sent_at = None if problem else timezone.now()
    message.save(update_fields=["problem", "sent_at"])
    return not problem


def _deliver(message: Notification) -> str:
    """Send the message, and return why it failed, or ""."""
    choice = NotificationChoice.objects.filter(user=message.user_id).select_related("user").first()
    if choice is None:
        return "the account has no notifications"
    if message.channel == Notification.Channel.MAIL:
        if not (choice.user.email and settings.EMAIL_HOST):
            return "no mail server or no address"
        subject = f"{message.experiment.slug if message.experiment else 'Evalsite'}: {message.get_event_display()}"
        try:
            send_mail(
                subject,
                f"{message.text}\n\n{message.url}\n",
                settings.DEFAULT_FROM_EMAIL,
                [choice.user.email],
            )
        except (OSError, smtplib.SMTPException) as error:
            return f"{type(error).__name__}: {error}"
        return ""
    return send_webhook(choice.webhook_url, choice.webhook_secret, message.build_payload())


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """Return the signature: HMAC-SHA256 of the timestamp, a dot and the body, in hexadecimal."""
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def find_webhook_problem(url: str) -> str:
    """Return why no request may be sent to this address, or "". Loopback needs an entry of the list, too."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower().rstrip("."), parts.port
    except ValueError:
        return "This is not a valid address."
    if parts.username is not None or parts.password is not None:
        return "The address must not hold a name or a password; the request is signed."
    if not ({host, f"{host}:{port}"} & set(settings.WEBHOOK_HOSTS)):
        return (
            f"{host or 'This host'} is not on the list of allowed hosts; an operator adds it to EVALSITE_WEBHOOK_HOSTS."
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        return "The address must start with https://."
    return ""


def send_webhook(url: str, secret: str, payload: dict[str, Any]) -> str:
    """Post the signed payload, and return why it failed, or "". Redirects are not followed."""
    if problem := find_webhook_problem(url):
        return problem
    body = json.dumps(payload, sort_keys=True).encode()
    timestamp = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Evalsite",
        "X-Evalsite-Id": payload["id"],
        "X-Evalsite-Timestamp": str(timestamp),
        "X-Evalsite-Signature": f"sha256={sign(secret, timestamp, body)}",
    }
    import aiohttp  # Import late: all processes import this module, and few send a webhook.

    async def post() -> int:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as reply,
        ):
            return reply.status

    try:
        status = asyncio.run(post())
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "" if 200 <= status < 300 else f"the receiver answered {status}"
