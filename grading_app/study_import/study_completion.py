"""Completion of an imported study from all its rows: values that old files do not hold, and the study's money."""

from __future__ import annotations

from django.db import connection

from grading_app.export.snapshot_check import SnapshotFileError
from runs_app.models import Experiment, Run, Trial

# Files of schema 2 hold the members of a panel by the keys of their own site. They are the conditions of its graders.
FIND_MEMBERS = """
UPDATE grading_app_gradecondition c SET parameters = c.parameters || jsonb_build_object('members', (
    SELECT coalesce(jsonb_agg(m.id ORDER BY m.id), '[]') FROM grading_app_gradecondition m
    JOIN grading_app_panel_graders g ON g.grader_id = m.grader_id
    WHERE g.panel_id = c.panel_id AND m.experiment_id = c.experiment_id))
WHERE c.kind = 'panel' AND c.experiment_id = %(experiment)s
"""
# Files before schema 4 do not say how a run ended. A run without open trials or points is done, or was cancelled.
SET_STATUSES = """
UPDATE runs_app_run r SET (status, stop_reason) = (SELECT
    CASE WHEN s.open THEN 'stopped' WHEN r.n_cancelled > 0 THEN 'cancelled' ELSE 'done' END,
    CASE WHEN s.open THEN 'It ended before all its trials were answered. The imported file does not say why.'
        ELSE '' END
    FROM (SELECT r.n_pending > 0 OR EXISTS (
        SELECT FROM runs_app_point p WHERE p.run_id = r.id AND p.status = 'open') AS open) s)
WHERE r.experiment_id = %(experiment)s
"""
# The rule of runs_app/monitoring/consistency_check.py, for an experiment without running trials.
ADD_UP_MONEY = """
UPDATE runs_app_experiment SET (spent_usd, reserved_usd) = (
    SELECT coalesce(sum(spent), 0), coalesce(sum(kept), 0) FROM (
        SELECT a.cost_usd, a.kept_usd FROM runs_app_attempt a JOIN runs_app_run r ON r.id = a.run_id
        WHERE r.experiment_id = %(experiment)s
        UNION ALL SELECT cost_usd, kept_usd FROM runs_app_preflight WHERE experiment_id = %(experiment)s
        UNION ALL SELECT spent_usd, kept_usd FROM runs_app_deletedrun WHERE experiment_id = %(experiment)s
    ) AS money (spent, kept)) WHERE id = %(experiment)s
"""


def complete_study(experiment: Experiment, schema: int) -> None:
    """Set the values of an imported study that its file does not hold. schema: the version of the file.

    Raise SnapshotFileError for a file with live runs, because a worker would claim their trials.
    """
    with connection.cursor() as cursor:
        if schema < 4:
            cursor.execute(SET_STATUSES, {"experiment": experiment.pk})
        if schema == 2:
            cursor.execute(FIND_MEMBERS, {"experiment": experiment.pk})
        cursor.execute(ADD_UP_MONEY, {"experiment": experiment.pk})
    runs = Run.objects.filter(experiment=experiment)
    live = runs.filter(status__in=Run.UNDER_WAY) | runs.filter(n_running__gt=0)
    if live.exists() or Trial.objects.filter(run__in=runs, status=Trial.Status.RUNNING).exists():
        raise SnapshotFileError("the file holds live runs, which no snapshot has")
