"""What a fault has cost: rows lost, rows doubled, answers paid twice, and the time until work went on."""

from collections import Counter
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Account:
    fault: str
    trials: int
    lost: int
    doubled: int
    paid_twice: int
    in_flight: int
    recovery: str
    reconcile: str

    @property
    def promises_kept(self):
        """Only what was in flight where the fault struck may be paid twice."""
        return not self.lost and not self.doubled and self.paid_twice <= self.in_flight and self.reconcile == "equal"


def account_of(fault, run, *, answers=None, in_flight=0, recovery="", ended=("done", "failed")):
    """Of a run that is over. `answers` is how many the provider gave; None where it cannot tell."""
    from django.db.models import Count

    from runs_app.models import Attempt
    from runs_app.monitoring.consistency_check import find_differences

    run.refresh_from_db()
    attempts = Attempt.objects.filter(run=run)
    answered = attempts.filter(outcome__in=["ok", "late"], error_class__in=["", "worker_lost"])
    again = answered.values("trial").annotate(n=Count("pk")).filter(n__gt=1).count()
    malformed = run.errors.get("malformed_reply", 0)
    unread = max(0, answers - answered.count() - malformed) if answers is not None else 0
    found = find_differences()
    return Account(
        fault,
        run.n_trials,
        lost=run.n_trials - run.trials.filter(status__in=ended).count(),
        doubled=run.trials.values("item", "dimension", "sample_idx").annotate(n=Count("pk")).filter(n__gt=1).count(),
        paid_twice=unread + again,
        in_flight=in_flight,
        recovery=recovery,
        reconcile="equal" if not found else "; ".join(map(str, found)),
    )


HEADS = {
    "fault": "fault",
    "trials": "trials",
    "lost": "rows lost",
    "doubled": "rows doubled",
    "paid_twice": "paid twice",
    "in_flight": "in flight when it struck",
    "recovery": "work went on after",
    "reconcile": "counters and rows",
}


def table_of(accounts):
    """As Markdown."""
    lines = [f"| {' | '.join(HEADS.values())} |", f"|{' --- |' * len(HEADS)}"]
    for account in accounts:
        cells = (getattr(account, field.name) for field in fields(Account))
        lines.append(f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else str(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def outcomes_of(run):
    from runs_app.models import Attempt

    return dict(Counter(Attempt.objects.filter(run=run).values_list("outcome", flat=True)))


def spread(seconds, note):
    if not seconds:
        return "-"
    middle = sorted(seconds)[len(seconds) // 2]
    return f"{min(seconds):.1f} to {max(seconds):.1f} s, {middle:.1f} s in the middle ({note})"
