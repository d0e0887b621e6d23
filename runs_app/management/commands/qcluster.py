"""The command `manage.py qcluster`: this machine's task queue, which loads the model library before its workers start.

django-q2 forks its workers. Without this, each of them would load the library at its first drain, which takes seconds
of processor time: on a busy machine, the first launch waited for most of a minute.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.conf import settings
from django_q.management.commands import qcluster

from runs_app.llm import gateway
from runs_app.taskqueue.supervisor_channel import SupervisorChannel


class Command(qcluster.Command):  # type: ignore[misc]
    help = "Run this machine's task queue."

    def handle(self, *args: Any, **options: Any) -> None:
        channel = SupervisorChannel.current()
        if channel:
            channel.mark_starting()
        try:
            import_module(settings.ROOT_URLCONF)  # Tasks need its modules. Forked workers share them.
            gateway.warm_up()
        finally:
            if channel:
                channel.mark_started()
        super().handle(*args, **options)
