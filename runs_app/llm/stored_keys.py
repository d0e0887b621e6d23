"""Keys that operators paste on the site: one file of mode 0600 in the data folder, outside the database.

The file belongs to this machine, like the environment. Workers on other machines need the variable in theirs.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path

from django.conf import settings

FILE_NAME = "provider_keys.json"
MAX_CHARS = 1000
_read: dict[str, tuple[tuple[int, int, int], dict[str, str]]] = {}  # By path: the file's signature, and its keys.


class KeyRefused(ValueError):
    """A text that is no key. The message says why."""


def load_stored_keys() -> dict[str, str]:
    """Return the stored keys by the names of their variables. The file is read again when it has changed."""
    path = f"{settings.DATA_DIR}/{FILE_NAME}"
    try:
        state = os.stat(path)  # noqa: PTH116 - every call does this, and a Path takes ten times as long.
    except FileNotFoundError:
        return {}
    signature = (state.st_mtime_ns, state.st_ino, state.st_size)
    if path not in _read or _read[path][0] != signature:
        _read[path] = signature, json.loads(Path(path).read_text())
    return _read[path][1]


def store_key(name: str, key: str) -> None:
    """Store a key under the name of a variable, in place of an earlier one. An empty key deletes it.

    Raise KeyRefused if the text cannot be sent in a header.
    """
    key = key.strip()
    if len(key) > MAX_CHARS or any(not "!" <= character <= "~" for character in key):
        raise KeyRefused("A key has no spaces, no line breaks and no letters with accents. Copy it again.")
    folder = Path(settings.DATA_DIR)
    with (folder / f"{FILE_NAME}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Two operators may store keys at once.
        keys = {**load_stored_keys(), name: key}
        content = json.dumps({name: key for name, key in sorted(keys.items()) if key})
        draft = folder / f".{FILE_NAME}.{secrets.token_hex(4)}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / FILE_NAME)
