"""Locks on files, between the processes of a machine or of machines that share a folder.

The kernel releases a lock when its holder dies, for any reason, so no file with a process id is ever tested. A lock
belongs to the opened file: a child that inherits the descriptor holds the lock, too.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def open_lock_file(path: Path) -> int:
    """Return a descriptor of the file, which is created with mode 0600 if it is missing. A link is refused."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def lock_file(file: int | BinaryIO, *, waits: bool = True, shared: bool = False) -> None:
    """Take the lock of an opened file. Raise BlockingIOError if another process holds it and this one does not wait."""
    fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))


def release_lock(file: int) -> None:
    """Release the lock for every process that inherited the descriptor. To close it only ends this process's share."""
    fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def hold_lock(file: int, *, waits: bool = True) -> Iterator[int]:
    """Hold the lock of an opened file during the block, then close the file. Raise BlockingIOError as `lock_file`."""
    try:
        lock_file(file, waits=waits)
        yield file
    finally:
        os.close(file)
