"""Rounds of adaptive runs: which points have all answers of theirs in, and what is written once they were judged.

Whether a point has enough is decided above, where answers are graded (`waking.decide_rounds`). Nothing here or there is
kept in memory: a decision that was not made is found again by whoever looks next.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from runs_app.designs.points import ask
from runs_app.engine.finishing import finish_runs
from runs_app.engine.settling import Deltas, Place
from runs_app.models import Experiment, Point, Run
from runs_app.stopping import Decision, Tally
from runs_app.waking import decide_rounds

MOST_AT_ONCE = 100  # Points: their answers are graded in one go, in the thread that also writes results.
LOOK_S = 1.0

# All trials of a point count, so that one that was given new attempts is waited for.
DUE = """
WITH looked_at AS MATERIALIZED (
    SELECT p.id, p.run_id, p.n_planned, p.items[1:least(p.n_planned, p.n_items)] AS items
    FROM runs_app_point p JOIN runs_app_run r ON r.id = p.run_id
    WHERE p.status = 'open' AND r.status IN ('running', 'cancelled') AND (%(run)s::bigint IS NULL OR r.id = %(run)s)
), waiting AS MATERIALIZED (
    SELECT t.run_id, t.item_id FROM runs_app_trial t
    WHERE t.run_id IN (SELECT run_id FROM looked_at) AND t.status IN ('pending', 'running')
)
SELECT p.id, p.n_planned, r.id, r.experiment_id, m.endpoint_id
FROM looked_at p
JOIN runs_app_run r ON r.id = p.run_id
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
WHERE p.id NOT IN (
    SELECT q.id FROM looked_at q CROSS JOIN LATERAL unnest(q.items) AS one (item)
    JOIN waiting ON waiting.run_id = q.run_id AND waiting.item_id = one.item)
ORDER BY r.id, p.id LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class Judged:
    """A point whose round is in: its counts, what its rule says, and the cases it has then (as now, if no more)."""

    point: int
    asked: int
    tally: Tally
    unread: int
    failed: int
    decision: Decision
    upto: int


def due(run: int | None = None) -> dict[Place, dict[int, int]]:
    """Open points none of whose trials is pending or in flight, by run: their cases so far, by the point's key."""
    with connection.cursor() as cursor:
        cursor.execute(DUE, {"run": run, "most": MOST_AT_ONCE})
        found: dict[Place, dict[int, int]] = defaultdict(dict)
        for point, asked, *place in cursor.fetchall():
            found[Place(*place)][point] = asked
    return dict(found)


def settle(place: Place, judged: Sequence[Judged]) -> int:
    """Write what was decided and plan the next rounds, in one transaction; returns how many points it was.

    Two that decide at once take turns by the run's lock: the second finds the points closed, or at another round.
    """
    with transaction.atomic():
        status = _lock(place)
        still = due(place.run_id).get(place, {})
        news = [one for one in judged if still.get(one.point) == one.asked]
        going_on = {one.point: one.upto for one in news if one.decision.kind == "more" and status != "cancelled"}
        _write(news, is_cancelled=status == "cancelled")
        if added := ask(going_on):
            deltas = Deltas()
            deltas.at(place).pending += added
            deltas.settle()
        finish_runs({place.run_id})
    return len(news)


def _lock(place: Place) -> str:
    """Further down the one order than the endpoint: no call begins or ends here. The experiment, for a run that ends
    may start the next one."""
    list(Experiment.objects.select_for_update(no_key=True).filter(pk=place.experiment_id).values_list("pk"))
    return str(Run.objects.select_for_update(no_key=True).values_list("status", flat=True).get(pk=place.run_id))


STATUS = {
    "enough": Point.Status.ENOUGH,
    "abort": Point.Status.ABORTED,
    "exhausted": Point.Status.EXHAUSTED,
    "more": Point.Status.OPEN,
}
DECIDED = (
    "status", "n_correct", "n_total", "n_truncated", "n_unread", "n_failed", "guess_chances", "half_width", "reason",
    "rounds", "decided_at",
)  # fmt: skip


def _write(judged: Sequence[Judged], *, is_cancelled: bool) -> None:
    points = Point.objects.defer("items").in_bulk([one.point for one in judged])
    now = timezone.now()
    for one in judged:
        point, tally, decision = points[one.point], one.tally, one.decision
        point.status, point.reason = STATUS[decision.kind], decision.reason
        if is_cancelled and decision.kind == "more":
            point.status, point.reason = Point.Status.CANCELLED, f"The run was cancelled: {decision.reason}"
        point.n_correct, point.n_total, point.n_truncated = tally.correct, tally.total, tally.truncated
        point.n_unread, point.n_failed, point.guess_chances = one.unread, one.failed, tally.guess_chances
        point.half_width, point.decided_at = decision.half_width, now
        point.rounds = [*point.rounds, _round(one, point.status, now.isoformat())]
    Point.objects.bulk_update(points.values(), DECIDED)


def _round(one: Judged, status: str, at: str) -> dict[str, Any]:
    tally, decision = one.tally, one.decision
    return {
        "at": at,
        "asked": one.asked,
        "correct": tally.correct,
        "total": tally.total,
        "truncated": tally.truncated,
        "half_width": decision.half_width,
        "status": status,
        "reason": decision.reason,
    }


REOPEN = """
UPDATE runs_app_point SET status = 'open' WHERE run_id = %s AND n_failed > 0 AND status <> 'cancelled'
"""


def reopen(run_id: int) -> None:
    """Failed trials were given new attempts: the points that had any are decided again. The run is locked."""
    with connection.cursor() as cursor:
        cursor.execute(REOPEN, [run_id])


@dataclass(slots=True)
class Lookout:
    """When a drain looks for rounds that are in: each second, and less often where looking itself takes long."""

    next_at: float = field(default=0.0)

    def decide(self) -> int:
        """Points decided; 0 at once while it is too early to look again."""
        return self.decide_now() if time.monotonic() >= self.next_at else 0

    def decide_now(self) -> int:
        began = time.monotonic()
        decided = decide_rounds()
        ended = time.monotonic()
        self.next_at = ended + max(LOOK_S, 10 * (ended - began)) if decided < MOST_AT_ONCE else ended
        return decided
