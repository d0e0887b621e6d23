"""The lock of a data folder: only one `up` or `demo` at a time serves the site of the folder."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evalsite.lib.ops.private_files import make_data_folder

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

    Raise SiteInUse if another process holds the lock. The kernel releases it, however that process ends.
    """
    make_data_folder(data_dir)
    with (data_dir / LOCK_FILE).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise SiteInUse(data_dir, file.read()) from None

        def store_address(url: str) -> None:
            file.truncate(0)
            file.write(url)
            file.flush()

        store_address("")
        yield store_address


def read_address(data_dir: Path) -> str:
    """Return the address at which the folder's site answers, or answered last. Without one, return the default."""
    try:
        return (data_dir / LOCK_FILE).read_text() or DEFAULT_URL
    except FileNotFoundError:
        return DEFAULT_URL
