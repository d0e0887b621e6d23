"""What the task queue runs by its dotted name."""

from __future__ import annotations

from grading_app.grading import grade
from runs_app.models import Experiment
from runs_app.waking import GRADE

SECONDS = 120  # Below the time-out of a task; what is left is for the next one.


def grade_experiment(pk: int, scorers: list[str] | None = None, by: str = "task queue") -> dict[str, int]:
    """Grade what an experiment has answered and not yet graded; how many, by rule. Nothing if it is gone."""
    from django_q.tasks import async_task

    experiment = Experiment.objects.filter(pk=pk).first()
    if experiment is None:
        return {}
    report = grade(experiment, scorers=scorers, seconds=SECONDS, by=by)
    if not all(rule.is_complete for rule in report):
        async_task(GRADE, pk, scorers, by)
    return {rule.grade_condition_id: rule.graded for rule in report}
