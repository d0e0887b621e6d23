"""A zip with the sha256 of each part, written in constant memory.

The same content gives the same bytes.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

SUMS = "SHA256SUMS"
EPOCH = (1980, 1, 1, 0, 0, 0)  # The earliest date of the zip format. The time of writing must not change the bytes.
PIECE = 256 * 2**10


class ArchiveWriter:
    """A writer of parts, one after the other. `close` adds their checksums and returns the digest of all of them."""

    def __init__(self, out: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, allowZip64=True)
        self._sums: dict[str, str] = {}
        self.sizes: dict[str, int] = {}

    def add(self, name: str, chunks: Iterable[bytes]) -> None:
        digest, size = hashlib.sha256(), 0
        try:
            with self._zip.open(_build_entry(name), "w", force_zip64=True) as part:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    part.write(chunk)
        except BaseException:
            self._zip.fp = None  # Closed. Otherwise its destructor writes to `out`, and complains if it cannot.
            raise
        self._sums[name], self.sizes[name] = digest.hexdigest(), size

    def get_checksum(self, name: str) -> str:
        """Return the SHA-256 of a part that was added."""
        return self._sums[name]

    def close(self) -> str:
        sums = format_checksums(self._sums)
        self._zip.writestr(_build_entry(SUMS), sums)
        self._zip.close()
        return hashlib.sha256(sums.encode()).hexdigest()


def format_checksums(sums: dict[str, str]) -> str:
    """Return the checksums in the format of `sha256sum`."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def _build_entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    entry.create_system = 3  # Unix, on every platform.
    return entry


def iterate_pieces(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    with archive.open(name) as part:
        yield from iter(lambda: part.read(PIECE), b"")


def read_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(lambda: file.read(PIECE), b"")
