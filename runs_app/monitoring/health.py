"""The health of the workers, for site monitoring, and the load of endpoints.

The health is counts and ages from one cheap query. The load is calls in flight, the learned limit with its curve, and
the day's requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.utils import timezone

from evalsite.lib.sql import fetch_rows
from runs_app.engine.rate_limiter import RateLimiterState
from runs_app.models import Endpoint, EndpointTick
from runs_app.monitoring.blockers import Blocker, find_endpoint_blocker
from runs_app.monitoring.sparklines import Curve, build_limit_curve

ALIVE_S = 60  # A worker without a heartbeat for longer is silent, as on the workers page.
STALE_WORKERS_S = 120  # An active run may have no worker for some seconds between two drains.
STALE_TASKS_S = 300  # Earlier tasks in the queue may each take three minutes.

HEALTH = f"""
SELECT
    (SELECT count(*) FROM runs_app_worker
        WHERE stopped_at IS NULL AND seen_at >= now() - interval '{ALIVE_S} seconds'),
    (SELECT extract(epoch FROM now() - max(seen_at)) FROM runs_app_worker),
    (SELECT extract(epoch FROM now() - min(lock)) FROM django_q_ormq WHERE lock <= now()),
    EXISTS (SELECT FROM runs_app_worker
        WHERE stopped_at IS NULL AND seen_at >= now() - interval '{ALIVE_S} seconds' AND trouble <> ''),
    EXISTS (SELECT FROM runs_app_run WHERE status = 'running' AND n_pending + n_running > 0 AND NOT is_batched)
"""  # noqa: S608 - built from the numbers above


@dataclass(frozen=True)
class WorkerHealth:
    """The number of live workers and the age of the oldest waiting task."""

    alive: int
    seen_s: float | None  # Seconds since the last heartbeat of any worker; None without a heartbeat.
    oldest_waiting_task_s: float | None  # Seconds; None if no task waits.
    is_blocked: bool  # A worker cannot record, because the database has no space or other resources left.
    calls_wait: bool

    @property
    def is_stale(self) -> bool:
        """Return whether calls wait without a worker, or a task waits longer than earlier tasks can take."""
        is_silent = self.seen_s is None or self.seen_s > STALE_WORKERS_S
        return (self.calls_wait and is_silent) or (self.oldest_waiting_task_s or 0) > STALE_TASKS_S

    @property
    def state(self) -> str:
        """Return `ok`, or why no work is done: `blocked` by the database, or `stale`."""
        return "blocked" if self.is_blocked else "stale" if self.is_stale else "ok"


def measure_worker_health() -> WorkerHealth:
    """Return the health, by the database's clock. Raise DatabaseError if the database does not answer."""
    ((alive, seen, oldest, is_blocked, calls_wait),) = fetch_rows(HEALTH)
    seen, oldest = (None if seconds is None else float(seconds) for seconds in (seen, oldest))
    return WorkerHealth(alive, seen, oldest, is_blocked, calls_wait)


CURVE_WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ProviderLimit:
    """The remainder of a rate as the provider reports it. `unit` is requests or tokens; it resets at `until`."""

    unit: str
    n: int
    until: datetime


@dataclass(frozen=True, slots=True)
class EndpointLoad:
    """The load of one endpoint. `limit` is the current limit of calls in flight, learned or set.

    `today` counts requests since midnight in the endpoint's own time zone.
    """

    endpoint: Endpoint
    limit: int
    today: int
    curve: Curve | None
    reported_limits: Sequence[ProviderLimit] = ()
    blocker: Blocker | None = None


def load_endpoints(endpoints: Sequence[Endpoint]) -> list[EndpointLoad]:
    """Return the load of each endpoint. Make one query for any number of endpoints."""
    since = timezone.now() - CURVE_WINDOW
    points: dict[int, list[tuple[datetime, float]]] = defaultdict(list)
    for tick in EndpointTick.objects.filter(endpoint__in=endpoints, at__gte=since).order_by("at"):
        points[tick.endpoint_id].append((tick.at, tick.concurrency))
    return [_build_load(endpoint, points[endpoint.pk]) for endpoint in endpoints]


def _build_load(endpoint: Endpoint, points: list[tuple[datetime, float]]) -> EndpointLoad:
    limiter = RateLimiterState.from_row(endpoint.throttle)
    limit = min(int(limiter.limit), endpoint.max_concurrency) if endpoint.adaptive else endpoint.max_concurrency
    blocker = find_endpoint_blocker(endpoint)
    # The requests since midnight in the endpoint's time zone. A count from an earlier day is 0.
    day = timezone.now().astimezone(ZoneInfo(endpoint.day_zone)).date().isoformat()
    reports = (
        ("requests", limiter.reported_requests, limiter.requests_until),
        ("tokens", limiter.reported_tokens, limiter.tokens_until),
    )
    limits = [
        ProviderLimit(unit, max(0, int(n)), datetime.fromtimestamp(until, UTC))
        for unit, n, until in reports
        if n is not None and until is not None
    ]
    reported_limits = [limit for limit in limits if limit.until > timezone.now()]
    return EndpointLoad(
        endpoint,
        limit,
        (limiter.today if limiter.day in ("", day) else 0),
        build_limit_curve(points),
        reported_limits,
        blocker,
    )
