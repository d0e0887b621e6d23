"""Completion of an imported study from all its rows: members of panels in old files, and the study's money."""

from __future__ import annotations

from django.db import connection

from runs_app.models import Experiment

# Files of schema 2 hold the members of a panel by the keys of their own site. They are the conditions of its graders.
FIND_MEMBERS = """
UPDATE grading_app_gradecondition c SET parameters = c.parameters || jsonb_build_object('members', (
    SELECT coalesce(jsonb_agg(m.id ORDER BY m.id), '[]') FROM grading_app_gradecondition m
    JOIN grading_app_panel_graders g ON g.grader_id = m.grader_id
    WHERE g.panel_id = c.panel_id AND m.experiment_id = c.experiment_id))
WHERE c.kind = 'panel' AND c.experiment_id = %(experiment)s
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
    """Set the values of an imported study that its file does not hold. schema: the version of the file."""
    with connection.cursor() as cursor:
        if schema == 2:
            cursor.execute(FIND_MEMBERS, {"experiment": experiment.pk})
        cursor.execute(ADD_UP_MONEY, {"experiment": experiment.pk})
