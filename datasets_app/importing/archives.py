"""Sources of images: a zip archive, read member by member under limits, or a folder."""

from __future__ import annotations

import re
import stat
import unicodedata
import zipfile
import zlib
from collections import defaultdict
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from datasets_app.importing.limits import LIMITS, MIB, Limits
from datasets_app.importing.records import FileError
from evalsite.lib.text.names import find_closest

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif"})
LEFT_BEHIND = frozenset({".ds_store", "thumbs.db", "desktop.ini"})
ENCRYPTED, UTF8_NAME = 0x1, 0x800  # Flags of a zip's member.
LONGEST_NAME = 255
CHUNK = 2**20
COMPARED, LENGTHS_APART = 1000, 4  # Limits on the names compared with a missing one: number, difference in length.
DRIVE = re.compile(r"[A-Za-z]:")
DAMAGED = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, EOFError, ValueError)


class NotFound(Exception):
    """A missing or ambiguous image name. The message lists similar names."""


class ImageSource(Protocol):
    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...


class ZipMembers:
    """The files of a zip archive. One member with a suspicious name or size makes the whole archive refused."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self.limits = limits
        self.unpacked = 0
        try:
            self.archive = zipfile.ZipFile(file)
        except DAMAGED as error:
            raise FileError(f"the archive cannot be opened: {error}") from None
        self.members = self._check_members(self.archive.infolist())

    def names(self) -> list[str]:
        return list(self.members)

    def read(self, name: str) -> bytes:
        """Return an image's bytes, at most one byte more than the limit of an image."""
        return self._read(name, self.limits.image_bytes)

    def read_table(self, name: str) -> bytes:
        size = self.members[name].file_size
        if size > self.limits.table_bytes:
            most = self.limits.table_bytes // MIB
            raise FileError(f"{name} in the archive has {size / MIB:.0f} MiB; at most {most} MiB are read")
        return self._read(name, self.limits.table_bytes)

    def _read(self, name: str, most: int) -> bytes:
        """Return at most `most` + 1 bytes of a member.

        Raise FileError if the member contains more than its declared size, because that size may be forged.
        """
        member = self.members[name]
        try:
            with self.archive.open(member) as stream:
                data = stream.read(min(member.file_size, most) + 1)
        except DAMAGED as error:
            raise FileError(f"{name} in the archive is damaged: {error}") from None
        self.unpacked += len(data)
        if len(data) > member.file_size or self.unpacked > self.limits.unpacked_bytes:
            raise FileError(f"{name} unpacks to more than the archive declares")
        return data

    def extract(self, folder: Path) -> None:
        """Write every file below `folder`, an empty one. The names were checked when the archive was opened."""
        for name, member in self.members.items():
            target = folder / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with self.archive.open(member) as stream, target.open("xb") as out:
                    while block := stream.read(CHUNK):
                        self.unpacked += len(block)
                        if self.unpacked > self.limits.unpacked_bytes:
                            raise FileError(f"{name} unpacks to more than the archive declares")
                        out.write(block)
            except DAMAGED as error:
                raise FileError(f"{name!r} in the archive cannot be unpacked: {error}") from None

    def _check_members(self, members: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        limits = self.limits
        if len(members) > limits.zip_members:
            raise FileError(f"the archive has {len(members):,} members; at most {limits.zip_members:,} are read")
        if sum(member.file_size for member in members) > limits.unpacked_bytes:
            raise FileError(f"the archive unpacks to more than {limits.unpacked_bytes // MIB} MiB")
        by_name: dict[str, zipfile.ZipInfo] = {}
        for member in members:
            name = _read_member_name(member)
            path = PurePosixPath(name.replace("\\", "/"))
            if not name:
                raise FileError("the archive contains a file without a name")
            if path.is_absolute() or ".." in path.parts or DRIVE.match(name) or "\x00" in member.orig_filename:
                raise FileError(f"the archive names a file outside itself: {name!r}")
            if stat.S_ISLNK(member.external_attr >> 16):
                raise FileError(f"{name!r} in the archive is a link")
            if member.flag_bits & ENCRYPTED:
                raise FileError(f"{name!r} in the archive is encrypted")
            large = member.file_size > self.limits.ratio_from_bytes
            if large and member.file_size > self.limits.member_ratio * max(member.compress_size, 1):
                raise FileError(
                    f"{name!r} in the archive unpacks to more than {self.limits.member_ratio} times its size"
                )
            if name in by_name:
                raise FileError(f"the archive contains {name!r} twice")
            if not member.is_dir() and not _is_clutter(name):
                by_name[name] = member
        return by_name


class FolderMembers:
    """The files below a folder, by relative path. Files that resolve to a path outside the folder are skipped."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder.resolve()
        self.limits = limits
        if not self.folder.is_dir():
            raise FileError(f"{folder} is neither a folder nor an archive")
        self.members = [
            path.relative_to(self.folder).as_posix()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.resolve().is_relative_to(self.folder) and not _is_clutter(path.name)
        ]

    def names(self) -> list[str]:
        return self.members

    def read(self, name: str) -> bytes:
        with (self.folder / name).open("rb") as stream:
            return stream.read(self.limits.image_bytes + 1)


class ImageFinder:
    """A lookup of images by path, file name, or name without suffix, ignoring case and composition of letters.

    `hints` limits how often it searches for a name similar to a missing one. The search is slow, because it compares
    many names.
    """

    def __init__(self, source: ImageSource, hints: int = LIMITS.hints) -> None:
        self.source = source
        self.hints = hints
        self.paths = [name for name in source.names() if PurePosixPath(name.lower()).suffix in IMAGE_SUFFIXES]
        self.spellings: dict[str, list[str]] = defaultdict(list)
        self.names = frozenset(self.paths)
        for path in self.paths:
            pure = PurePosixPath(path)
            for spelling in dict.fromkeys([str(pure), pure.name, str(pure.with_suffix("")), pure.stem]):
                self.spellings[_fold(spelling)].append(path)

    def find(self, name: str) -> str:
        """Return the name of the member. Raise NotFound if no name or several names match."""
        matches = self.list_matches(name)
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise NotFound(f"image {name!r} could be {' or '.join(sorted(matches)[:3])}; give its path")
        hint = self._suggest_name(_fold(_clean_path(name)))
        raise NotFound(f"image {name!r} is not among the {len(self.paths)} images{hint}")

    def list_matches(self, name: str) -> list[str]:
        """Return the members that the name may mean."""
        path = _clean_path(name)
        if path in self.names:
            return [path]
        return self.spellings.get(_fold(path)) or self.spellings.get(_fold(PurePosixPath(path).name), [])

    def _suggest_name(self, path: str) -> str:
        """Return a similar name as the end of a message. Return "" if there is none or no `hints` are left.

        Only names of similar length are compared.
        """
        if not self.hints or len(path) > LONGEST_NAME:
            return ""
        self.hints -= 1
        candidates = (name for name in self.spellings if abs(len(name) - len(path)) <= LENGTHS_APART)
        closest = find_closest(path, islice(candidates, COMPARED))
        return f"; the nearest is {self.spellings[closest][0]!r}" if closest else ""


def _read_member_name(member: zipfile.ZipInfo) -> str:
    """Return the member's name. Some programs write UTF-8 without its flag, which zipfile reads as code page 437."""
    if member.flag_bits & UTF8_NAME:
        return member.filename
    try:
        return member.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return member.filename


def _fold(name: str) -> str:
    """Return a spelling for comparison. File names of macOS are decomposed: an umlaut is two characters."""
    return unicodedata.normalize("NFC", name).casefold()


def _clean_path(name: str) -> str:
    return name.strip().replace("\\", "/").removeprefix("./")


def _is_clutter(name: str) -> bool:
    """Return whether the name is a file that operating systems add to archives and folders."""
    path = PurePosixPath(name)
    return "__MACOSX" in path.parts or path.name.lower() in LEFT_BEHIND or path.name.startswith("._")
