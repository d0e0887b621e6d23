"""Private files of the site: folders of mode 0700 and files of mode 0600, unreadable for other accounts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

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
