"""The admin of endpoints, designs, experiments and runs; the task queue is shown to superusers alone."""

from runs_app.admin import batches, designs, endpoints, experiments, queue

__all__ = ["batches", "designs", "endpoints", "experiments", "queue"]
