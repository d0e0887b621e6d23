"""The channel between `up` and its task queue: files in a folder that `up` removes at its end.

Workers of the task queue get no stop signal and cannot be asked whether they are busy, but they can read and write
files. A cluster that was started without `up` has no channel and needs none.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "EVALSITE_SUPERVISOR_CHANNEL"
PREFIX = "up-"
STOPPING = "stopping"
STARTING = "starting"
LONGEST_START_S = 180.0  # A cluster that takes longer to start counts as hung.


class SupervisorChannel:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    @contextmanager
    def create_in(cls, parent: Path) -> Iterator[SupervisorChannel]:
        """Create a channel for one `up`, and remove it after the block. The caller holds the data folder's lock."""
        parent.mkdir(parents=True, exist_ok=True)
        channel = cls(Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)))
        try:
            yield channel
        finally:
            channel.remove()

    @classmethod
    def find_orphaned(cls, parent: Path) -> Iterator[SupervisorChannel]:
        """Yield the channels of killed `up` processes. The caller holds the lock of the data folder, so none runs."""
        yield from map(cls, parent.glob(f"{PREFIX}*/"))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @classmethod
    def current(cls) -> SupervisorChannel | None:
        """Return the channel of the `up` that started this process, if any."""
        folder = os.environ.get(VARIABLE)
        return cls(Path(folder)) if folder else None

    @property
    def queue(self) -> str:
        """Return the key of the queue from which only this cluster takes tasks."""
        return self.folder.name

    @property
    def pulse_queue(self) -> str:
        return f"{self.folder.name}.pulse"

    def request_stop(self) -> None:
        (self.folder / STOPPING).touch()

    def is_stop_requested(self) -> bool:
        """Return whether the cluster must stop. It must also stop if the folder is missing, because `up` has ended."""
        return (self.folder / STOPPING).exists() or not self.folder.exists()

    def mark_starting(self) -> None:
        (self.folder / STARTING).touch()

    def mark_started(self) -> None:
        (self.folder / STARTING).unlink(missing_ok=True)

    def is_starting(self) -> bool:
        """Return whether the cluster loads its program now, before its workers start."""
        try:
            return time.time() - (self.folder / STARTING).stat().st_mtime < LONGEST_START_S
        except FileNotFoundError:
            return False

    def mark_busy(self) -> None:
        (self.folder / f"busy-{os.getpid()}").touch()

    def mark_idle(self) -> None:
        (self.folder / f"busy-{os.getpid()}").unlink(missing_ok=True)

    def count_busy(self) -> int:
        """Return the number of workers that run a task now, without files of killed workers."""
        return sum(_is_alive(int(path.name.removeprefix("busy-"))) for path in self.folder.glob("busy-*"))

    def clear_busy(self) -> None:
        for path in self.folder.glob("busy-*"):
            path.unlink(missing_ok=True)


def is_stop_requested() -> bool:
    channel = SupervisorChannel.current()
    return channel is not None and channel.is_stop_requested()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
