"""The bucket of a site: django-storages with short time-outs. Installed with `evalsite[s3]`."""

from __future__ import annotations

from typing import Any

from botocore.config import Config
from storages.backends.s3 import S3Storage

TIMEOUTS = Config(connect_timeout=5, read_timeout=20, retries={"max_attempts": 3, "mode": "standard"})


class Bucket(S3Storage):  # type: ignore[misc] # The package has no types.
    def get_default_settings(self) -> dict[str, Any]:
        return {**super().get_default_settings(), "client_config": TIMEOUTS}
