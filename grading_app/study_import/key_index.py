"""An index of the keys of a study's trials on disk, for checks that must not hold every trial in memory."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence

CACHE_KIB = 8192


class KeyIndex:
    """Values by key in a temporary SQLite file. Its memory does not depend on the number of keys.

    A key is a sequence of texts and numbers, and only its digest is stored. SQLite deletes the file with the object.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for statement in (
            f"PRAGMA cache_size = -{CACHE_KIB}",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE entry (key BLOB PRIMARY KEY, value) WITHOUT ROWID",
            "BEGIN",
        ):
            self._database.execute(statement)

    def add(self, key: Sequence[object], value: str | None = None) -> bool:
        """Store the value unless the key has one already. Return whether the key is new."""
        cursor = self._database.execute("INSERT OR IGNORE INTO entry VALUES (?, ?)", (_hash_key(key), value))
        return cursor.rowcount == 1

    def get(self, key: Sequence[object]) -> str | None:
        row = self._database.execute("SELECT value FROM entry WHERE key = ?", (_hash_key(key),)).fetchone()
        return None if row is None else row[0]

    def append_number(self, key: Sequence[object], number: int) -> None:
        """Add a number to the list of the key."""
        self._database.execute(
            "INSERT INTO entry VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = value || ' ' || excluded.value",
            (_hash_key(key), str(number)),
        )

    def list_numbers(self, key: Sequence[object]) -> list[int]:
        """Return the numbers of the key, in the order in which they were added."""
        return [int(number) for number in (self.get(key) or "").split()]

    def count(self, key: Sequence[object]) -> int:
        """Count an occurrence of the key. Return the number of its earlier ones."""
        row = self._database.execute(
            "INSERT INTO entry VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET value = value + 1 RETURNING value",
            (_hash_key(key),),
        ).fetchone()
        return int(row[0]) - 1


def _hash_key(key: Sequence[object]) -> bytes:
    return hashlib.blake2b(repr(tuple(key)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
