"""The progress of an experiment, from counters and ticks. Its cost does not grow with the number of trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby

from django.db.models import Count, F, Max, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Now
from django.utils import timezone

from runs_app.models import LedgerEntry, Point, Run, Tick, Trial, Wave, Worker
from runs_app.models.totals import Totals
from runs_app.models.trials import REFUSED_CLASS, UNUSABLE_KINDS
from runs_app.models.workers import HEARTBEAT_TIMEOUT
from runs_app.monitoring.sparklines import TICK

RATE_WINDOW = timedelta(seconds=60)
CURVE_WINDOW = timedelta(hours=1)


@dataclass(frozen=True)
class Pace:
    """The trials ended in the last minute, the seconds left at that pace, and the points of the curve."""

    per_minute: float
    seconds_left: float | None
    points: list[tuple[datetime, int]]


def measure_pace(runs: Sequence[Run], remaining: int, now: datetime | None = None) -> Pace:
    """Return the pace of these runs. Make one query over the last active hour, for at most 360 rows."""
    now = now or timezone.now()
    # The current tick is excluded, because it is incomplete and would look slow.
    tick = datetime.fromtimestamp(now.timestamp() - now.timestamp() % TICK.total_seconds(), tz=now.tzinfo)
    points = [(at, n) for at, n in _load_points([run.pk for run in runs]) if at < tick]
    per_minute = _measure_rate(points, tick)
    return Pace(per_minute, 60 * remaining / per_minute if per_minute else None, points)


def _load_points(run_ids: list[int]) -> list[tuple[datetime, int]]:
    ticks = Tick.objects.filter(run__in=run_ids)
    last = ticks.order_by().values("run__experiment").annotate(last=Max("at")).values("last")[:1]
    recent = ticks.filter(at__gt=Subquery(last) - CURVE_WINDOW)
    ended = recent.order_by("at").values("at").annotate(ended=Sum(F("done") + F("failed")))
    return [(row["at"], row["ended"]) for row in ended]


def _measure_rate(points: Sequence[tuple[datetime, int]], current: datetime) -> float:
    ended = [(at, n) for at, n in points if at >= current - RATE_WINDOW]
    if not ended:
        return 0.0
    # For a run that began less than a minute ago, only the time since its first tick counts.
    return sum(n for _, n in ended) * 60 / (current - ended[0][0]).total_seconds()


@dataclass(frozen=True)
class Projection:
    """The projected final cost of runs in US dollars, from the mean cost of their ended trials."""

    total_usd: Decimal
    remaining: int
    usd_each: Decimal
    budget: Decimal | None = None

    @property
    def is_over_budget(self) -> bool:
        return self.budget is not None and self.total_usd > self.budget


def project_cost(runs: Sequence[Run], budget: Decimal | None = None) -> Projection | None:
    """Return the money spent plus the projected cost of the remaining trials; None if no trial has ended or remains.

    The projected cost of a run is its number of remaining trials times the mean cost of its ended trials. A run without
    ended trials uses the mean of all runs. Only active runs have remaining trials.
    """
    remaining = {run.pk: run.n_pending + run.n_running for run in runs if run.status in Run.UNDER_WAY}
    ended, spent = sum(run.n_done + run.n_failed for run in runs), sum_spent(runs)
    if not ended or not any(remaining.values()):
        return None
    remaining_usd = Decimal(0)
    for run in runs:
        ended_in_run = run.n_done + run.n_failed
        mean = run.spent_usd / ended_in_run if ended_in_run else spent / ended
        remaining_usd += remaining.get(run.pk, 0) * mean
    n = sum(remaining.values())
    return Projection(round(spent + remaining_usd, 8), n, round(remaining_usd / n, 8), budget)


def count_points(runs: Iterable[Run]) -> dict[str, int]:
    """Return the number of points of these adaptive runs, and how many are decided."""
    points = Point.objects.filter(run__in=[run.pk for run in runs])
    return points.aggregate(total=Count("pk"), decided=Count("pk", filter=~Q(status=Point.Status.OPEN)))


@dataclass(frozen=True)
class ErrorLine:
    """An error class, with its attempts so far, its currently failed trials, and how many of them can be retried."""

    name: str
    attempts: int
    failed: int
    to_retry: int


def count_errors(runs: Sequence[Run]) -> list[ErrorLine]:
    """Return the error classes, the most frequent first. Make one query, whose cost grows only with failed trials.

    Failed trials of a cancelled run cannot be retried, because no worker would claim them.
    """
    attempts: Counter[str] = Counter()
    for run in runs:
        attempts.update(run.errors)
    failed: Counter[str] = Counter()
    to_retry: Counter[str] = Counter()
    final = {run.pk for run in runs if run.status == Run.Status.CANCELLED or not run.is_callable_here}
    if runs_with_failures := [run.pk for run in runs if run.n_failed]:
        trials = Trial.objects.filter(run__in=runs_with_failures, status=Trial.Status.FAILED).order_by()
        for run_id, name, n in trials.values_list("run_id", "error_class").annotate(n=Count("pk")):
            failed[name] += n
            to_retry[name] += 0 if run_id in final else n
    return [ErrorLine(name, n, failed[name], to_retry[name]) for name, n in (attempts | failed).most_common()]


def count_unusable_answers(runs: Iterable[Run], errors: Iterable[ErrorLine] = ()) -> list[tuple[str, int]]:
    """Return the number of unusable answers of each kind, from the ledger. An answer can be of several kinds.

    Refusals that a provider reported as errors also count, while their trials are failed. `errors` are the error lines
    of the runs.
    """
    sums = LedgerEntry.objects.filter(run__in=[run.pk for run in runs]).aggregate(
        **{name: Sum(name, default=0) for name in UNUSABLE_KINDS}
    )
    sums["refused"] += sum(line.failed for line in errors if line.name == REFUSED_CLASS)
    return [(name, sums[name]) for name in UNUSABLE_KINDS if sums[name]]


@dataclass(frozen=True)
class WaveTotals:
    """One observation of the design: its trials over all conditions, and their cost in US dollars."""

    wave: Wave
    totals: Totals
    spent_usd: Decimal


def sum_by_wave(runs: Iterable[Run]) -> list[WaveTotals]:
    """Return the totals of each wave, in wave order. The runs must have their waves loaded."""
    ordered = sorted(runs, key=lambda run: run.wave.number)
    groups = [(wave, list(wave_runs)) for wave, wave_runs in groupby(ordered, key=lambda run: run.wave)]
    return [WaveTotals(wave, Totals.of(wave_runs), sum_spent(wave_runs)) for wave, wave_runs in groups]


def sum_spent(runs: Iterable[Run]) -> Decimal:
    return sum((run.spent_usd for run in runs), Decimal(0))


def find_live_workers() -> QuerySet[Worker]:
    """Return the workers with a recent heartbeat. Heartbeats use the database's clock, and so does this query."""
    return Worker.objects.filter(stopped_at__isnull=True, seen_at__gte=Now() - HEARTBEAT_TIMEOUT)
