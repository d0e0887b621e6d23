"""The data folder of a site: its private files, and the lock with which one `up` or `demo` at a time serves the site.

Folders have mode 0700 and files mode 0600, so they are unreadable for other accounts.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from evalsite.lib.ops.file_lock import hold_lock, open_lock_file

UMASK = 0o077  # Every process of the site sets it, so that all new files are private.


def make_data_folder(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700, or mode 0711 if this process is root.

    Root's PostgreSQL runs as another account and must pass through these folders to its own folder below. Mode 0711
    allows passing but not listing.
    """
    for missing in [step for step in reversed((folder, *folder.parents)) if not step.exists()]:
        missing.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            missing.chmod(0o711)


def explain_unusable(folder: Path, error: OSError) -> str:
    """Return why this folder of the site cannot be used, and the remedy."""
    blocker = next((step for step in (folder, *folder.parents) if step.exists()), folder)
    if not blocker.is_dir():
        return f"The folder {folder} cannot be used: {blocker} is a file. Set EVALSITE_DATA_DIR to a folder."
    remedies = {
        errno.EROFS: "Its disk is read-only: mount it writable, or set EVALSITE_DATA_DIR to a folder on another disk.",
        errno.ENOSPC: "Its disk is full: free space, or set EVALSITE_DATA_DIR to a folder on another disk.",
        errno.EDQUOT: "Your quota is used up: free space, or set EVALSITE_DATA_DIR to a folder on another disk.",
    }
    remedy = remedies.get(
        error.errno or 0, "Run as the user that made it, or set EVALSITE_DATA_DIR to a folder of your own."
    )
    return f"The folder {folder} cannot be used: {error.strerror}. {remedy}"


def restrict_folder(folder: Path) -> None:
    """Set mode 0700 on a folder that an earlier version created with wider access. Skip a folder of another account."""
    if folder.is_dir() and folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


DEFAULT_URL = "http://127.0.0.1:8000/"
LOCK_FILE = "site.lock"  # Contains the address of the site once it answers.


class SiteInUse(Exception):
    """A data folder whose site already runs. `url` is its address, or "" while it starts."""

    def __init__(self, data_dir: Path, url: str) -> None:
        self.url = url
        if url:
            reason = f"The site of the data folder {data_dir} already runs at {url}. Use it, or stop it first."
        else:
            reason = f"Another `up` or `demo` is starting on the data folder {data_dir}. Wait for its address."
        super().__init__(f"{reason} For a second site, set EVALSITE_DATA_DIR to another folder.")


@contextmanager
def hold_site(data_dir: Path) -> Iterator[Callable[[str], None]]:
    """Hold the folder's lock during the block. Yield a function that stores the address of the site.

    Raise SiteInUse if another process holds the lock.
    """
    make_data_folder(data_dir)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(hold_lock(open_lock_file(data_dir / LOCK_FILE), waits=False))
        except BlockingIOError:
            raise SiteInUse(data_dir, (data_dir / LOCK_FILE).read_text()) from None

        def store_address(url: str) -> None:
            os.ftruncate(file, 0)
            os.pwrite(file, url.encode(), 0)

        store_address("")
        yield store_address


def read_address(data_dir: Path) -> str:
    """Return the address at which the folder's site answers, or answered last. Without one, return the default."""
    try:
        return (data_dir / LOCK_FILE).read_text() or DEFAULT_URL
    except FileNotFoundError:
        return DEFAULT_URL
