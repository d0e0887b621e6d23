"""The tasks of the task queue for datasets."""

from __future__ import annotations

from datasets_app.upload_jobs import run_job


def read_upload(job_key: int) -> str:
    """Perform the job with this key on a user's upload. Return its final state as text."""
    return run_job(job_key)
