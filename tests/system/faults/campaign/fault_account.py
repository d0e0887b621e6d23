"""The cost of a fault: rows lost, rows duplicated, answers paid twice, and the time until work resumed."""

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
        """Return whether only calls that were in flight at the fault were paid twice, and nothing was lost."""
        return not self.lost and not self.doubled and self.paid_twice <= self.in_flight and self.reconcile == "equal"


def make_account(fault, run, *, answers=None, in_flight=0, recovery="", ended=("done", "failed")):
    """Return the account of a finished run. `answers` is the number of answers of the provider, or None if unknown."""
    from django.db.models import Count

    from grading_app.grading.consistency_check import find_differences
    from runs_app.models import Attempt

    run.refresh_from_db()
    attempts = Attempt.objects.filter(run=run)
    answered = attempts.filter(outcome__in=["ok", "late"], error_class__in=["", "worker_lost"])
    answered_twice = answered.values("trial").annotate(n=Count("pk")).filter(n__gt=1).count()
    malformed = run.errors.get("malformed_reply", 0)
    unread = max(0, answers - answered.count() - malformed) if answers is not None else 0
    differences = find_differences()
    return Account(
        fault,
        run.n_trials,
        lost=run.n_trials - run.trials.filter(status__in=ended).count(),
        doubled=run.trials.values("item", "dimension", "sample_idx").annotate(n=Count("pk")).filter(n__gt=1).count(),
        paid_twice=unread + answered_twice,
        in_flight=in_flight,
        recovery=recovery,
        reconcile="equal" if not differences else "; ".join(map(str, differences)),
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


def format_table(accounts):
    """Return the accounts as a Markdown table."""
    lines = [f"| {' | '.join(HEADS.values())} |", f"|{' --- |' * len(HEADS)}"]
    for account in accounts:
        cells = (getattr(account, field.name) for field in fields(Account))
        lines.append(f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else str(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def count_outcomes(run):
    from runs_app.models import Attempt

    return dict(Counter(Attempt.objects.filter(run=run).values_list("outcome", flat=True)))


def format_range(seconds, note):
    if not seconds:
        return "-"
    median = sorted(seconds)[len(seconds) // 2]
    return f"{min(seconds):.1f} to {max(seconds):.1f} s, {median:.1f} s in the middle ({note})"
