"""The status of a run, and totals over runs, which determine the state of a run, a wave and an experiment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from django.db import models


class RunStatus(models.TextChoices):
    PLANNED = "planned", "Planned"
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    PAUSED = "paused", "Paused"
    STOPPED = "stopped", "Stopped"
    CANCELLED = "cancelled", "Cancelled"
    DONE = "done", "Done"


UNDER_WAY = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})
PARTIAL, FAILED = "partial", "failed"
STATUSES = ("pending", "running", "done", "failed", "cancelled")
# The status of several runs that differ: the first of these states that any run has.
STATE_PRIORITY = (
    RunStatus.RUNNING,
    RunStatus.QUEUED,
    RunStatus.STOPPED,
    RunStatus.PAUSED,
    RunStatus.PLANNED,
    RunStatus.CANCELLED,
    RunStatus.DONE,
)


@dataclass(frozen=True)
class Totals:
    """The number of trials of some runs by status, of attempts whose cost is unknown, and the runs' states."""

    pending: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    unpriced: int = 0
    states: frozenset[str] = frozenset()

    @classmethod
    def of(cls, runs: Iterable[Any]) -> Self:
        runs = list(runs)
        counts = {name: sum(getattr(run, f"n_{name}") for run in runs) for name in (*STATUSES, "unpriced")}
        return cls(**counts, states=frozenset(run.status for run in runs))

    @property
    def trials(self) -> int:
        return self.pending + self.running + self.done + self.failed + self.cancelled

    @property
    def remaining(self) -> int:
        return self.pending + self.running

    @property
    def ended(self) -> int:
        return self.done + self.failed

    @property
    def is_under_way(self) -> bool:
        return bool(self.states & UNDER_WAY)

    def find_known_cost(self, spent_usd: Decimal) -> Decimal | None:
        """Return the cost, or None if it is 0 and some attempts have no known cost, as in some imported studies."""
        return None if self.unpriced and not spent_usd else spent_usd

    @property
    def status(self) -> str:
        """Return one status for all the runs; empty without runs."""
        return next((str(state) for state in STATE_PRIORITY if state in self.states), "")

    @property
    def state(self) -> str:
        """Return the state that pages show: the status, unless trials of runs that are done have failed.

        Then it is `partial`, or `failed` without an answer.
        """
        if self.status == RunStatus.DONE and self.failed:
            return PARTIAL if self.done else FAILED
        return self.status
