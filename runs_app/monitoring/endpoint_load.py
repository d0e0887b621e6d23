"""How busy endpoints are: calls in flight, the limit that was learned, requests of the day, and the limit's curve."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.utils import timezone

from runs_app.engine.rate_limiter import RateLimiterState
from runs_app.models import Endpoint, EndpointTick
from runs_app.monitoring.blockers import Blocker, endpoint_blocker
from runs_app.monitoring.sparklines import Curve, limit_curve

SHOWN = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ProviderLimit:
    """What the provider says is left of a rate, `what`, until then."""

    what: str
    n: int
    until: datetime


@dataclass(frozen=True, slots=True)
class EndpointLoad:
    """`limit` is what may be in flight now, learned or set; `today` counts requests of the endpoint's own day."""

    endpoint: Endpoint
    limit: int
    today: int
    curve: Curve | None
    said: Sequence[ProviderLimit] = ()
    blocker: Blocker | None = None


def with_state(endpoints: Sequence[Endpoint]) -> list[EndpointLoad]:
    """One query, whatever the number of endpoints."""
    since = timezone.now() - SHOWN
    points: dict[int, list[tuple[datetime, float]]] = defaultdict(list)
    for tick in EndpointTick.objects.filter(endpoint__in=endpoints, at__gte=since).order_by("at"):
        points[tick.endpoint_id].append((tick.at, tick.concurrency))
    return [_busyness(endpoint, points[endpoint.pk]) for endpoint in endpoints]


def _busyness(endpoint: Endpoint, points: list[tuple[datetime, float]]) -> EndpointLoad:
    throttle = RateLimiterState.of(endpoint.throttle)
    limit = min(int(throttle.limit), endpoint.max_concurrency) if endpoint.adaptive else endpoint.max_concurrency
    blocker = endpoint_blocker(endpoint)
    return EndpointLoad(endpoint, limit, _today(endpoint, throttle), limit_curve(points), _said(throttle), blocker)


def _today(endpoint: Endpoint, throttle: RateLimiterState) -> int:
    """Requests since midnight where the endpoint's day begins; the count is of the day when it was last asked."""
    day = timezone.now().astimezone(ZoneInfo(endpoint.day_zone)).date().isoformat()
    return throttle.today if throttle.day in ("", day) else 0


def _said(throttle: RateLimiterState) -> list[ProviderLimit]:
    words = (
        ("requests", throttle.said_requests, throttle.requests_until),
        ("tokens", throttle.said_tokens, throttle.tokens_until),
    )
    found = [
        ProviderLimit(what, max(0, int(n)), datetime.fromtimestamp(until, UTC))
        for what, n, until in words
        if n is not None and until is not None
    ]
    return [one for one in found if one.until > timezone.now()]
