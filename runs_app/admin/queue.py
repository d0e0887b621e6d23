"""The admin of the task queue, for superusers only, because it shows arguments and tracebacks.

The site does not use schedules.
"""

from __future__ import annotations

from typing import Any

import django_q.admin  # noqa: F401 - the import registers its models, so that they can be guarded here
from django.apps import apps
from django.contrib import admin, messages
from django_q.models import Failure, Schedule
from django_q.tasks import async_task

from evalsite.lib.web.admin import SuperusersOnly
from runs_app.taskqueue.task_payloads import TaskRefused


@admin.action(description="Queue the selected tasks again")
def requeue(model_admin: Any, request: Any, queryset: Any) -> None:
    """Replace django-q2's action, which would queue any function that a row names."""
    for task in queryset:
        args, kwargs = task.args or (), task.kwargs or {}
        try:
            if not (isinstance(args, tuple | list) and isinstance(kwargs, dict)):
                raise TaskRefused("its arguments cannot be read")
            async_task(task.func, *args, **kwargs)
        except TaskRefused as refusal:
            messages.error(request, f"Task {task.name} was not queued: {refusal}")
        else:
            if model_admin.model is Failure:
                task.delete()


def _guard(model: Any) -> None:
    model_admin: Any = type(admin.site._registry[model])
    actions = {"actions": [requeue]} if model_admin.actions else {}
    admin.site.unregister(model)
    admin.site.register(model, type(f"Guarded{model_admin.__name__}", (SuperusersOnly, model_admin), actions))


admin.site.unregister(Schedule)
for _model in apps.get_app_config("django_q").get_models():
    if admin.site.is_registered(_model):
        _guard(_model)
