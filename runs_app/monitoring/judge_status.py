"""The status of an experiment's judges: one line for each judge and wave, from counters, as plain values."""

from __future__ import annotations

from typing import Any

from runs_app.grading_interface import grading
from runs_app.models import Condition, Experiment, Run

COUNTERS = ("n_pending", "n_running", "n_done", "n_failed", "n_cancelled", "n_attempts", "n_unpriced")


def report_judges(experiment: Experiment) -> list[dict[str, Any]]:
    """Return one line for each judge and wave: verdicts by status, cost, and error codes of unreadable verdicts."""
    judges = experiment.runs.filter(condition__stage=Condition.Stage.JUDGE).with_design()
    runs = list(judges.order_by("wave__number", "pk"))
    unread = grading().unread_verdicts(experiment) if runs else {}
    return [_line(run, unread.get((run.condition_id, run.wave_id), {})) for run in runs]


def _line(run: Run, unread: dict[str, int]) -> dict[str, Any]:
    return {
        "run": run.pk,
        "condition_id": run.condition.condition_id,
        "model": run.condition.model.name,
        "wave": run.wave.number,
        "wave_label": run.wave.label,
        "status": run.status,
        "stop_reason": run.current_stop_reason,
        "verdicts": run.n_trials,
        **{name.removeprefix("n_"): getattr(run, name) for name in COUNTERS},
        "unread": unread,
        "errors": run.errors,
        "spent_usd": str(run.spent_usd),
    }


def format_line(line: dict[str, Any]) -> str:
    """Return one line of text for a terminal.

    Example: `judge-a_standard--0123456789ab: running, 40 of 90 verdicts, 2 unread (2 no_json_object)`.
    """
    wave = f" [{line['wave_label'] or line['wave']}]" if line["wave"] else ""
    codes = ", ".join(f"{n} {code}" for code, n in line["unread"].items())
    unread = f", {sum(line['unread'].values())} unread ({codes})" if codes else ""
    failed = f", {line['failed']} failed" if line["failed"] else ""
    counts = f"{line['done']} of {line['verdicts']} verdicts{failed}{unread}"
    return f"{line['condition_id']}{wave}: {line['status']}, {counts} {line['stop_reason']}".rstrip()
