"""The counters of the simulated provider, as JSON and as a page."""

import html
import time
from collections import Counter, deque
from dataclasses import dataclass, field

_RATE_WINDOW_S = 5.0
_MINUTE_S = 60.0


@dataclass(slots=True)
class Counters:
    """Counts since the start or the last reset. Requests are identified by their fingerprint."""

    requests: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    models: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    turned_away: Counter[str] = field(default_factory=Counter)
    unloaded: Counter[str] = field(default_factory=Counter)
    requests_by_fingerprint: dict[int, int] = field(default_factory=dict)
    answers_by_fingerprint: Counter[int] = field(default_factory=Counter)
    batches: int = 0
    batch_calls: int = 0
    repeated: int = 0
    answered_again: int = 0
    started: float = field(default_factory=time.monotonic)
    _arrivals: deque[tuple[int, int]] = field(default_factory=deque)

    def count_request(self, fingerprint: int) -> int:
        """Count an admitted request. Return the number of earlier requests with the same fingerprint."""
        earlier = self.requests_by_fingerprint.get(fingerprint, 0)
        self.requests_by_fingerprint[fingerprint] = earlier + 1
        self.repeated += earlier == 1
        return earlier

    def count_answer(self, fingerprint: int) -> None:
        """Count an answer that a provider would bill."""
        self.answers_by_fingerprint[fingerprint] += 1
        self.answered_again += self.answers_by_fingerprint[fingerprint] == 2

    def arrive(self) -> None:
        """Count an incoming request before its outcome is decided."""
        self.requests += 1
        second = int(time.monotonic())
        if self._arrivals and self._arrivals[-1][0] == second:
            self._arrivals[-1] = (second, self._arrivals[-1][1] + 1)
        else:
            self._arrivals.append((second, 1))
            while self._arrivals[0][0] < second - _RATE_WINDOW_S:
                self._arrivals.popleft()

    def enter(self) -> None:
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)

    def leave(self) -> None:
        self.in_flight -= 1

    def rate(self) -> float:
        """Return requests per second over at most the last five seconds."""
        now = time.monotonic()
        since = max(self.started, now - _RATE_WINDOW_S)
        recent = sum(count for second, count in self._arrivals if second >= int(since))
        return recent / max(now - since, 1.0)

    def reset(self) -> "Counters":
        """Return fresh counters that keep the number of requests in flight."""
        return Counters(in_flight=self.in_flight, peak_in_flight=self.in_flight)

    def as_dict(self) -> dict[str, object]:
        """Return the counters as JSON values.

        `repeated_bodies` counts bodies that arrived more than once, `answered_again` bodies that were answered more
        than once.
        """
        return {
            "requests": self.requests,
            "requests_per_s": round(self.rate(), 1),
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "unique_bodies": len(self.requests_by_fingerprint),
            "repeated_bodies": self.repeated,
            "answers": self.answers_by_fingerprint.total(),
            "answered_again": self.answered_again,
            "batches": self.batches,
            "batch_calls": self.batch_calls,
            "uptime_s": round(time.monotonic() - self.started, 1),
            "models": dict(self.models),
            "statuses": dict(self.statuses),
            "faults": dict(self.faults),
            "turned_away": dict(self.turned_away),
            "unloaded": dict(self.unloaded),
        }


class MinuteWindow:
    """A limiter that admits at most `limit` requests in any 60 seconds."""

    def __init__(self) -> None:
        self._admitted: deque[float] = deque()

    def admit(self, limit: int | None) -> bool:
        if limit is None:
            return True
        now = self._expire()
        if len(self._admitted) >= limit:
            return False
        self._admitted.append(now)
        return True

    def count_remaining(self, limit: int) -> tuple[int, float]:
        """Return the number of requests that are still allowed, and the seconds until the oldest request expires."""
        now = self._expire()
        reset_s = self._admitted[0] + _MINUTE_S - now if self._admitted else 0.0
        return max(0, limit - len(self._admitted)), reset_s

    def _expire(self) -> float:
        now = time.monotonic()
        while self._admitted and self._admitted[0] <= now - _MINUTE_S:
            self._admitted.popleft()
        return now


def render_counters(counts: dict[str, object]) -> str:
    """Return a small HTML page of the counters that refreshes every two seconds."""
    rows = "".join(_render_row(name, value) for name, value in counts.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
        "<title>Simulated provider</title><style>body{font:16px system-ui;margin:2rem}td,th{text-align:left;"
        "padding:.2rem 1rem .2rem 0;vertical-align:top}</style></head><body><h1>Simulated provider</h1>"
        f"<table>{rows}</table></body></html>"
    )


def _render_row(name: str, value: object) -> str:
    if isinstance(value, dict):
        cell = "<br>".join(f"{html.escape(str(key))}: {count:,}" for key, count in value.items()) or "none"
    else:
        cell = f"{value:,}"
    return f'<tr><th scope="row">{html.escape(name.replace("_", " "))}</th><td>{cell}</td></tr>'
