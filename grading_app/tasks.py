"""What the task queue runs by its dotted name."""

from __future__ import annotations

from grading_app.grading import grade
from runs_app.models import Experiment


def grade_experiment(pk: int) -> dict[str, int]:
    """Grade what an experiment has answered and not yet graded; how many, by rule. Nothing if it is gone."""
    experiment = Experiment.objects.filter(pk=pk).first()
    if experiment is None:
        return {}
    return {report.grade_condition_id: report.graded for report in grade(experiment, by="task queue")}
