"""Where images are looked up: a zip, read member by member under limits, or a folder."""

from __future__ import annotations

import re
import stat
import zipfile
import zlib
from collections import defaultdict
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from datasets_app.importing.limits import MIB, Limits
from datasets_app.importing.records import Refused

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif"})
LEFT_BEHIND = frozenset({".ds_store", "thumbs.db", "desktop.ini"})
ENCRYPTED = 0x1
DRIVE = re.compile(r"[A-Za-z]:")
DAMAGED = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, EOFError, ValueError)


class NotFound(Exception):
    """No image of that name, or more than one; the message says which names are near."""


class ImageSource(Protocol):
    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...


class ZipMembers:
    """The files of a zip archive. The whole archive is refused if one member's name or size is not to be trusted."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self.limits = limits
        self.unpacked = 0
        try:
            self.archive = zipfile.ZipFile(file)
        except DAMAGED as error:
            raise Refused(f"the archive cannot be opened: {error}") from None
        self.members = self._checked(self.archive.infolist())

    def names(self) -> list[str]:
        return list(self.members)

    def read(self, name: str) -> bytes:
        """At most what the member declares, and no more than the limits leave: a declared size may be a lie."""
        member = self.members[name]
        try:
            with self.archive.open(member) as stream:
                data = stream.read(member.file_size + 1)
        except DAMAGED as error:
            raise Refused(f"{name} in the archive is damaged: {error}") from None
        self.unpacked += len(data)
        if len(data) > member.file_size or self.unpacked > self.limits.unpacked_bytes:
            raise Refused(f"{name} unpacks to more than the archive declares")
        return data

    def _checked(self, members: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        limits = self.limits
        if len(members) > limits.zip_members:
            raise Refused(f"the archive has {len(members):,} members; at most {limits.zip_members:,} are read")
        if sum(member.file_size for member in members) > limits.unpacked_bytes:
            raise Refused(f"the archive unpacks to more than {limits.unpacked_bytes // MIB} MiB")
        found: dict[str, zipfile.ZipInfo] = {}
        for member in members:
            self._check(member)
            if member.filename in found:
                raise Refused(f"the archive holds {member.filename!r} twice")
            if not member.is_dir() and not _is_clutter(member.filename):
                found[member.filename] = member
        return found

    def _check(self, member: zipfile.ZipInfo) -> None:
        name = member.filename
        path = PurePosixPath(name.replace("\\", "/"))
        if not name:
            raise Refused("the archive holds a file without a name")
        if path.is_absolute() or ".." in path.parts or DRIVE.match(name) or "\x00" in member.orig_filename:
            raise Refused(f"the archive names a file outside itself: {name!r}")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise Refused(f"{name!r} in the archive is a link")
        if member.flag_bits & ENCRYPTED:
            raise Refused(f"{name!r} in the archive is encrypted")
        large = member.file_size > self.limits.ratio_from_bytes
        if large and member.file_size > self.limits.member_ratio * max(member.compress_size, 1):
            raise Refused(f"{name!r} in the archive unpacks to more than {self.limits.member_ratio} times its size")


class FolderMembers:
    """The files below a folder, by their path relative to it. Links that lead out of it are not followed."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder.resolve()
        self.limits = limits
        if not self.folder.is_dir():
            raise Refused(f"{folder} is neither a folder nor an archive")
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
    """Finds the image that a table means: by path, by file name, or by the name without its ending, in any case."""

    def __init__(self, source: ImageSource) -> None:
        self.source = source
        self.paths = [name for name in source.names() if PurePosixPath(name.lower()).suffix in IMAGE_SUFFIXES]
        self.spellings: dict[str, list[str]] = defaultdict(list)
        for path in self.paths:
            pure = PurePosixPath(path)
            for spelling in dict.fromkeys([str(pure), pure.name, str(pure.with_suffix("")), pure.stem]):
                self.spellings[spelling.casefold()].append(path)

    def find(self, wanted: str) -> str:
        """The member's name; NotFound where none or several fit."""
        asked = wanted.strip().replace("\\", "/").removeprefix("./")
        if asked in self.paths:
            return asked
        found = self.spellings.get(asked.casefold()) or self.spellings.get(PurePosixPath(asked).name.casefold(), [])
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(f"image {wanted!r} could be {' or '.join(sorted(found)[:3])}; give its path")
        near = get_close_matches(asked.casefold(), self.spellings, n=1)
        hint = f"; the nearest is {self.spellings[near[0]][0]!r}" if near else ""
        raise NotFound(f"image {wanted!r} is not among the {len(self.paths)} images{hint}")


def _is_clutter(name: str) -> bool:
    """What operating systems leave in archives and folders."""
    path = PurePosixPath(name)
    return "__MACOSX" in path.parts or path.name.lower() in LEFT_BEHIND or path.name.startswith("._")
