"""The Django app of experiments and runs."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs_app"
    verbose_name = "Experiments and runs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from runs_app.taskqueue.supervisor_channel import SupervisorChannel
        from runs_app.taskqueue.task_payloads import guard_queue

        guard_queue()
        if SupervisorChannel.current():
            from runs_app.taskqueue.broker import announce_busy_workers

            announce_busy_workers()
