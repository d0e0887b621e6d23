"""Files that all machines of a site share: images, under names that contain the hash of their content.

Without a bucket, they are in MEDIA_ROOT, which several machines must then mount. With one (`EVALSITE_S3_BUCKET`), they
are in the bucket, and MEDIA_ROOT is this machine's cache: a file is fetched at its first use, and may be deleted.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import storages

ALIAS = "shared"  # Of the bucket in STORAGES.
AT_ONCE = 16  # Files that are sent or fetched at the same time.
PAUSE_S = 5.0  # After a failure, so that a batch of claims waits for one time-out and not for one after another.

_unavailable_until = 0.0


class StorageUnavailable(Exception):
    """A bucket that does not answer, refuses access, or holds another content than its file's name says."""


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file by its path relative to MEDIA_ROOT. With `sha256`, its content is checked when it is fetched."""

    name: str
    sha256: str = ""

    @property
    def path(self) -> Path:
        """Return its place on this machine, where it may be missing."""
        return Path(settings.MEDIA_ROOT) / self.name

    def fetch(self) -> Path:
        """Return its place on this machine, after fetching it if needed. A file that exists nowhere is missing there.

        Raise StorageUnavailable if the bucket fails.
        """
        path = self.path
        if ALIAS in settings.STORAGES and not path.exists():
            data = _download(self.name)
            if data is not None:
                if self.sha256 and hashlib.sha256(data).hexdigest() != self.sha256:
                    raise StorageUnavailable(f"the bucket has another content under {self.name}")
                _write(path, data)
        return path

    def store(self, data: bytes) -> None:
        """Write the file if it is missing, here and in the bucket. The name contains the hash, so it never changes."""
        if ALIAS in settings.STORAGES:
            try:
                storages[ALIAS].save(self.name, ContentFile(data))
            except Exception as error:
                raise StorageUnavailable(f"the image could not be stored in the bucket: {error}") from error
        if not self.path.exists():
            _write(self.path, data)


def fetch_all(files: Iterable[SharedFile]) -> None:
    """Fetch the missing files, several at once. The next `fetch` of a file that failed raises its error."""
    missing = [file for file in files if not file.path.exists()] if ALIAS in settings.STORAGES else []
    if missing:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            pool.map(_try_to_fetch, missing)


def _try_to_fetch(file: SharedFile) -> None:
    try:
        file.fetch()
    except StorageUnavailable:
        return


def _download(name: str) -> bytes | None:
    """Return the content in the bucket, or None if it has no such file."""
    global _unavailable_until
    if time.monotonic() < _unavailable_until:
        raise StorageUnavailable("the bucket with the images did not answer a moment ago")
    try:
        with storages[ALIAS].open(name) as file:
            return bytes(file.read())
    except FileNotFoundError:
        return None
    except Exception as error:  # Each backend has its own errors.
        _unavailable_until = time.monotonic() + PAUSE_S
        raise StorageUnavailable(f"the image could not be fetched from the bucket: {error}") from error


def _write(path: Path, data: bytes) -> None:
    """Write the whole file or nothing. The file is on disk before the database names it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
