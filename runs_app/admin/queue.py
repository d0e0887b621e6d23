"""The admin of the task queue, for superusers only, because it shows arguments and tracebacks.

The schedules of the task queue are not used.
"""

from __future__ import annotations

from typing import Any

import django_q.admin  # noqa: F401 - it registers its models when it is imported, so that they can be guarded here
from django.apps import apps
from django.contrib import admin, messages
from django_q.models import Failure, Schedule
from django_q.tasks import async_task

from evalsite.lib.web.admin import SuperusersOnly
from runs_app.taskqueue.task_payloads import TaskRefused


@admin.action(description="Queue the selected tasks again")
def queue_again(model_admin: Any, request: Any, queryset: Any) -> None:
    """Replace django-q2's own action, which queues any function that a row names."""
    for task in queryset:
        arguments, named = task.args or (), task.kwargs or {}
        try:
            if not (isinstance(arguments, tuple | list) and isinstance(named, dict)):
                raise TaskRefused("its arguments cannot be read")
            async_task(task.func, *arguments, **named)
        except TaskRefused as refusal:
            messages.error(request, f"Task {task.name} was not queued: {refusal}")
        else:
            if model_admin.model is Failure:
                task.delete()


def _guard(model: Any) -> None:
    shown: Any = type(admin.site._registry[model])
    actions = {"actions": [queue_again]} if shown.actions else {}
    admin.site.unregister(model)
    admin.site.register(model, type(f"Guarded{shown.__name__}", (SuperusersOnly, shown), actions))


admin.site.unregister(Schedule)
for _model in apps.get_app_config("django_q").get_models():
    if admin.site.is_registered(_model):
        _guard(_model)
