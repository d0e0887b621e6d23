"""inspect_ai: the files of logs, `.eval` (a zip) or `.json`, read under limits."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grading_app.study_import.study import StudyError

ZSTANDARD = 93  # zipfile of this Python refuses it.
MAX_BYTES = 256 * 2**20  # Of one member, unpacked.
# Most errors of pyarrow derive from these.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
Log = Mapping[str, Any]


def find_log_files(path: Path) -> list[Path]:
    return sorted([*path.rglob("*.eval"), *path.rglob("*.json")]) if path.is_dir() else [path]


def looks_like_a_log(file: Path) -> bool:
    if file.suffix == ".eval":
        return file.is_file()  # Include a damaged one, so that it is reported.
    if file.suffix != ".json" or not file.is_file():
        return False
    with file.open("rb") as start:
        return b'"eval"' in start.read(20_000)


def read_header(file: Path) -> Log:
    if file.suffix == ".json":
        return {name: value for name, value in _read_json_log(file).items() if name != "samples"}
    with _open(file) as archive:
        names = set(archive.namelist())
        name = "header.json" if "header.json" in names else "_journal/start.json"
        if name not in names:
            raise StudyError([f"{file.name}: neither header.json nor _journal/start.json"])
        return _parse(_read_member(file, archive, archive.getinfo(name)), f"{file.name}, {name}")


def read_samples(file: Path) -> Iterator[tuple[str, Log]]:
    """Yield each sample with its place. A repeated member counts once, as it was last written."""
    if file.suffix == ".json":
        samples = _read_json_log(file).get("samples") or []
        if not isinstance(samples, list):
            raise StudyError([f"{file.name}: samples is no list"])
        for number, sample in enumerate(samples, start=1):
            where = f"{file.name}, sample {number}"
            if not isinstance(sample, dict):
                raise StudyError([f"{where}: not an object"])
            yield where, sample
        return
    with _open(file) as archive:
        members = {info.filename: info for info in archive.infolist() if info.filename.startswith("samples/")}
        for name, info in members.items():
            where = f"{file.name}, {name}"
            yield where, _parse(_read_member(file, archive, info), where)


def _open(file: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise StudyError([f"{file.name}: not a complete log; copy it again ({error})"]) from error


def _read_member(file: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the content of a member. Raise StudyError if it is too large or damaged."""
    if info.file_size > MAX_BYTES:
        raise StudyError([f"{file.name}, {info.filename}: larger than {MAX_BYTES // 2**20} MB"])
    try:
        return _unpack_member(file, archive, info)
    except DAMAGED as error:
        raise StudyError([f"{file.name}, {info.filename}: damaged"]) from error


def _unpack_member(file: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.compress_type != ZSTANDARD:
        return archive.read(info)
    import pyarrow as pa

    with file.open("rb") as raw:
        raw.seek(info.header_offset)
        *_, name_length, extra_length = LOCAL_HEADER.unpack(raw.read(LOCAL_HEADER.size))
        raw.seek(name_length + extra_length, io.SEEK_CUR)
        compressed = raw.read(info.compress_size)
    with pa.CompressedInputStream(pa.BufferReader(compressed), "zstd") as stream:
        content: bytes = stream.read(MAX_BYTES + 1)
    if len(content) != info.file_size:
        raise ValueError("another size than declared")
    return content


def _read_json_log(file: Path) -> Log:
    if file.stat().st_size > MAX_BYTES:
        raise StudyError([f"{file.name}: larger than {MAX_BYTES // 2**20} MB"])
    return _parse(file.read_bytes(), file.name)


def _parse(content: bytes, where: str) -> Log:
    try:
        log = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StudyError([f"{where}: not complete JSON; copy the log again ({error})"]) from error
    if not isinstance(log, dict):
        raise StudyError([f"{where}: not an object"])
    return log
