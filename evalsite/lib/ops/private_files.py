"""Files of the site that no other account of the machine may read: folders of mode 0700, files of mode 0600."""

from __future__ import annotations

import os
from pathlib import Path

UMASK = 0o077  # Of every process of the site, so that all that it makes is private from the start.


def make_data_folder(folder: Path) -> None:
    """Make a folder and its parents, private; if root makes them, others may walk through them and list nothing.

    Root's PostgreSQL runs as another account, whose own folder lies below.
    """
    for missing in [step for step in reversed((folder, *folder.parents)) if not step.exists()]:
        missing.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            missing.chmod(0o711)


def close_folder(folder: Path) -> None:
    """Close a folder that an earlier version left open. One that belongs to another account stays as it is."""
    if folder.is_dir() and folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
