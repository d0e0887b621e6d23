"""What the task queue runs for datasets."""

from __future__ import annotations

from datasets_app.upload_jobs import perform


def read_upload(user_key: int, token: str, key: str) -> str:
    """Do the job of this key of a person's upload. Return what became of it."""
    return perform(int(user_key), token, key)
