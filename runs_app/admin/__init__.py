"""The admin of endpoints, designs, experiments and runs. Only superusers see the task queue."""

from runs_app.admin import designs, endpoints, experiments, queue

__all__ = ["designs", "endpoints", "experiments", "queue"]
