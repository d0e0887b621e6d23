"""Reasons why a run with pending trials makes no calls, for the progress page, `status` and endpoint pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models.functions import Now
from django.utils import timezone

from evalsite.lib.text.number_format import format_duration, format_money
from runs_app.engine.preflight import find_end_of_day
from runs_app.engine.rate_limiter import RateLimiterState, RateLimits
from runs_app.models import Endpoint, Run, Worker
from runs_app.models.conditions import load_labels

MIN_WAIT = timedelta(seconds=5)  # A shorter wait, such as for the requests of a minute, is not reported.
START_GAP = timedelta(seconds=30)  # The time between a launch and the first drain.
WORKER_GAP = timedelta(seconds=60)  # The time between the end of one drain and the start of the next.

Kind = Literal["endpoint", "budget", "worker", "database"]


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason. `text` is a sentence without the time. `until` is None if someone must act first.

    `next_step` names the event at that time.
    """

    kind: Kind
    text: str
    until: datetime | None = None
    next_step: str = "Continues"

    @property
    def sentence(self) -> str:
        """Return the reason with its time, for a terminal."""
        return f"{self.text} {self.next_step} at {self.until:%Y-%m-%d %H:%M:%S} UTC." if self.until else self.text

    @property
    def facts(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "until": self.until.isoformat() if self.until else None}


def find_blockers(runs: Iterable[Run]) -> list[Blocker]:
    """Return why these runs make no calls; empty if nothing blocks them. The runs must have their design loaded.

    Make at most one query.
    """
    waiting = [run for run in runs if run.status == Run.Status.RUNNING and run.n_pending]
    if not waiting:
        return []
    now = timezone.now()
    endpoints = {run.endpoint for run in waiting if not run.is_batched}
    by_name = sorted(endpoints, key=lambda endpoint: endpoint.name)
    blockers = [blocker for endpoint in by_name if (blocker := find_endpoint_blocker(endpoint, now))]
    blockers += dict.fromkeys(blocker for run in waiting if (blocker := _find_budget_blocker(run)))
    troubles = list_troubles()
    if not troubles and not any(run.created_at >= now - START_GAP for run in waiting):
        blockers.append(Blocker("worker", "No worker is alive. Trials wait until one starts."))
    if trouble := next(filter(None, troubles), ""):
        text = f"A worker cannot record results: {trouble}. Trials continue when it has resources again."
        blockers.append(Blocker("database", text))
    return blockers


def find_endpoint_blocker(endpoint: Endpoint, now: datetime | None = None) -> Blocker | None:
    """Return why no call can start at this endpoint for at least MIN_WAIT, or None."""
    now = now or timezone.now()
    if not endpoint.is_active:
        return Blocker("endpoint", f"Endpoint {endpoint} is inactive: no call starts.")
    paused_until = endpoint.paused_until if endpoint.paused_until and endpoint.paused_until > now else None
    stored = RateLimiterState.from_row(endpoint.throttle)
    if outage_s := stored.measure_outage_s(now.timestamp()):
        reason = f": {endpoint.pause_reason.rstrip('.')}" if endpoint.pause_reason else ""
        return Blocker(
            "endpoint",
            f"Endpoint {endpoint} has not answered for {format_duration(outage_s)}{reason}. Trials wait and keep their"
            f" attempts. After {format_duration(settings.OUTAGE_LIMIT_S)} without an answer, the runs stop.",
            paused_until,
            "Next test",
        )
    if paused_until:
        reason = f": {endpoint.pause_reason}" if endpoint.pause_reason else "."
        return Blocker("endpoint", f"Endpoint {endpoint} backs off{reason}", paused_until)
    seconds = now.timestamp()
    rates = RateLimits(
        endpoint.max_concurrency,
        endpoint.requests_per_minute,
        endpoint.tokens_per_minute,
        endpoint.requests_per_day,
        endpoint.adaptive,
    )
    day = now.astimezone(ZoneInfo(endpoint.day_zone)).date().isoformat()
    limiter = stored.refill(rates, seconds, day)
    # Calls in flight do not block: they end soon, and other calls start.
    bound = limiter.find_reached_limit(rates, 0, find_end_of_day(seconds, endpoint.day_zone))
    if bound is None or bound.until is None or bound.until - seconds < MIN_WAIT.total_seconds():
        return None
    return Blocker("endpoint", f"Endpoint {endpoint} {bound.description}.", datetime.fromtimestamp(bound.until, UTC))


def list_troubles() -> list[str]:
    """Return the trouble with the database, or "", of each worker with a heartbeat within the last minute.

    A worker that has just left counts, without trouble.
    """
    workers = Worker.objects.filter(seen_at__gte=Now() - WORKER_GAP, is_gateway=False)
    return list(workers.values_list("trouble", flat=True))


def _find_budget_blocker(run: Run) -> Blocker | None:
    experiment = run.experiment
    if run.fits_budget or experiment.max_usd is None:
        return None
    return Blocker(
        "budget",
        f"The budget of {format_money(experiment.max_usd)} does not cover another call of"
        f" {load_labels([experiment.pk])[run.condition_id]}:"
        f" {format_money(experiment.spent_usd)} is spent, and {format_money(experiment.reserved_usd)} is reserved for"
        " other calls.",
    )


def find_stop_reasons(runs: Sequence[Run]) -> list[str]:
    """Return the reasons for stops that still apply, each with the label of its condition."""
    reasons = [(run, reason) for run in runs if (reason := run.current_stop_reason)]
    labels = load_labels({run.experiment_id for run, _ in reasons})
    return [f"{labels[run.condition_id]}: {reason}" for run, reason in reasons]
