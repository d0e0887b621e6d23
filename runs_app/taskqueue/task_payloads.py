"""Task payloads that workers accept: plain values, and functions of a fixed list.

django-q2 stores tasks as pickles and runs any function that a row names. This module does not trust rows of its
tables. It loads a payload without calling anything, and a task runs only if its function is in `FUNCTIONS`.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

from django.core.signing import BadSignature

# Every function that the task queue runs. Add a new task here, or `async_task` refuses it.
FUNCTIONS: Final = frozenset(
    {
        "datasets_app.tasks.read_upload",
        "grading_app.tasks.apply_retention_rule",
        "grading_app.tasks.compute_aggregates",
        "grading_app.tasks.grade_experiment",
        "grading_app.tasks.import_uploaded_study",
        "grading_app.tasks.move_experiment_rows",
        "grading_app.tasks.snapshot_experiment",
        "runs_app.tasks.drain",
        "runs_app.tasks.make_preflight",
        "runs_app.tasks.maintain",
        "runs_app.tasks.send_notifications",
    }
)
# The options of a task that run nothing: no hook, chain or group, and no use of the cache.
OPTIONS: Final = frozenset(
    {"ack_failure", "args", "cluster", "func", "id", "kwargs", "name", "save", "started", "timeout"}
)
CLASSES: Final = frozenset({("datetime", "datetime"), ("datetime", "timedelta"), ("datetime", "timezone")})


class TaskRefused(BadSignature):
    """A task that the workers refuse to run. The message says why.

    It is a BadSignature, because django-q2 removes such tasks and continues.
    """


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in CLASSES:
            raise TaskRefused(f"it contains {module}.{name}, which is not a plain value")
        return super().find_class(module, name)


def load_plain(data: bytes) -> Any:
    """Return the plain values of a pickle without running anything. Raise TaskRefused if it contains anything else."""
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except TaskRefused:
        raise
    except Exception as error:  # A damaged pickle raises almost anything.
        raise TaskRefused(f"it cannot be read: {type(error).__name__}") from error


def load_plain_or_reason(data: bytes) -> Any:
    """Return the plain values of a pickle, or the reason of its refusal for the page of finished tasks."""
    try:
        return load_plain(data)
    except TaskRefused as refusal:
        return f"Not shown: {refusal}"


def check_task(task: Any) -> None:
    """Raise TaskRefused unless the task calls a function of the list with options that run nothing else."""
    if not isinstance(task, dict):
        raise TaskRefused("it is not a task")
    function = task.get("func")
    if not (isinstance(function, str) and function in FUNCTIONS):
        raise TaskRefused(
            f"{str(function)[:200]!r} is not a function of the task queue (runs_app/taskqueue/task_payloads.py)"
        )
    unknown = sorted(str(name) for name, value in task.items() if name not in OPTIONS and value is not None)
    if unknown:
        raise TaskRefused(f"it has options that the site does not use: {', '.join(unknown)}")


def guard_queue() -> None:
    """Restrict django-q2 to plain values and functions of the list, without hooks. Call this once."""
    import picklefield.fields
    from django.db.models.signals import post_save
    from django_q.models import Task
    from django_q.signals import call_hook, pre_enqueue
    from django_q.signing import PickleSerializer

    PickleSerializer.loads = staticmethod(load_plain)
    picklefield.fields.loads = load_plain_or_reason
    post_save.disconnect(call_hook, sender=Task)
    pre_enqueue.connect(_check_before_queueing, dispatch_uid="only functions of the list")


def _check_before_queueing(*, task: dict[str, Any], **_: Any) -> None:
    check_task(task)
