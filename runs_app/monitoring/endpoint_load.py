"""The load of endpoints: calls in flight, the learned limit and its curve, and the day's requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.utils import timezone

from runs_app.engine.rate_limiter import RateLimiterState
from runs_app.models import Endpoint, EndpointTick
from runs_app.monitoring.blockers import Blocker, find_endpoint_blocker
from runs_app.monitoring.sparklines import Curve, build_limit_curve

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
