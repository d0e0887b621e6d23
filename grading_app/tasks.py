"""The functions that the task queue runs by their dotted names."""

from __future__ import annotations

from django.conf import settings

from datasets_app.models import BackgroundJob
from evalsite.lib.history import record_changes
from evalsite.lib.sql import analyze_grown_tables
from grading_app.grading.judging.item_rubrics import collect_all_texts
from grading_app.grading.judging.judge_plan import ask_judges
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.grading.retention import remove_raw_responses
from grading_app.grading.scoring import grade
from grading_app.publish.export.snapshots import SnapshotError, make_snapshot
from grading_app.publish.figures.figure_set import FigureSource
from grading_app.results.cached_aggregates import (
    TASK,
    WORKER_FAILED,
    compute_rows,
    has_many_answers,
    store_all_values,
)
from grading_app.results.leaderboard import BoardQuery
from grading_app.results.status_report import count_rows
from grading_app.results.stored_results import get_results
from grading_app.study_import.import_jobs import run_import
from grading_app.study_import.stored_rows import perform_move
from runs_app.grading_interface import GRADE
from runs_app.models import Experiment

SECONDS = 120  # Below the time-out of a task. The rest is left to the next task.


def grade_experiment(
    pk: int, scorers: list[str | dict[str, str]] | None = None, by: str = "task queue"
) -> dict[str, int]:
    """Grade the ungraded answers of an experiment. Return the numbers by rule or judge; none without rows."""
    from django_q.tasks import async_task

    experiment = Experiment.objects.exclude(status=Experiment.Status.STORED).filter(pk=pk).first()
    if experiment is None:
        return {}
    report = grade(experiment, scorers=scorers, seconds=SECONDS, by=by)
    verdicts = read_verdicts(experiment, seconds=SECONDS)
    collect_all_texts(experiment)
    ask_judges(experiment, by=by)
    if not (all(rule.is_complete for rule in report) and all(one.is_complete for one in verdicts)):
        async_task(GRADE, pk, scorers, by)
    elif not experiment.runs.expecting_answers().exists():
        store_results(experiment)
    graded = {rule.grade_condition_id: rule.graded for rule in report}
    return graded | {one.condition.grade_condition_id: one.read for one in verdicts}


def store_results(experiment: Experiment) -> None:
    """Store what the first reader of a finished experiment would wait for. More of a large one is stored on request."""
    analyze_grown_tables()
    get_results(BoardQuery(experiment))
    with store_all_values():
        count_rows(experiment)
        if not has_many_answers(experiment, None):
            FigureSource(experiment).list_figures()


def compute_aggregates(keys: list[int]) -> None:
    """Compute cached aggregates that pages requested."""
    from django_q.tasks import async_task

    analyze_grown_tables()
    if remaining := compute_rows(keys, seconds=SECONDS):
        async_task(TASK, remaining)


def snapshot_experiment(job_key: int) -> str:
    """Perform a snapshot job. Return the digest, or the reason why there is none, or "" if it needs no work."""
    job = BackgroundJob.objects.select_related("by").filter(pk=job_key).first()
    experiment = Experiment.objects.filter(pk=job.parameters["experiment"]).first() if job else None
    if job is None or experiment is None:
        return ""
    with job.perform() as is_mine:
        return _make_requested_snapshot(experiment, job) if is_mine else ""


def _make_requested_snapshot(experiment: Experiment, job: BackgroundJob) -> str:
    problem, author = WORKER_FAILED, job.by or job.actor
    label, reason = job.parameters["label"], job.parameters["reason"]
    try:
        digest = make_snapshot(experiment, label=label, reason=reason, by=author).digest
        problem = ""
    except SnapshotError as error:
        problem = digest = str(error)
    finally:
        if problem:
            record_changes([(experiment, "", "not made")], by=author, reason=problem, aspect="snapshot")
        job.finish(problem)
    return digest


def apply_retention_rule() -> int:
    """Remove raw responses that are due by the site's setting. Return their number."""
    if not settings.RAW_RESPONSE_DAYS:
        return 0
    return remove_raw_responses(settings.RAW_RESPONSE_DAYS, by="retention rule", seconds=SECONDS)


def import_uploaded_study(job_key: int) -> str:
    """Perform the job with this key on a study that a user uploaded. Return its final state as text."""
    return run_import(job_key)


def move_experiment_rows(job_key: int) -> str:
    """Perform a job that stores the rows of an experiment or brings them back. Return why it failed, or ""."""
    job = BackgroundJob.objects.select_related("by").filter(pk=job_key).first()
    if job is None:
        return ""
    with job.perform() as is_mine:
        return perform_move(job) if is_mine else ""
