"""The reading of studies, designs and snapshots in a process of its own, without keys or database, under limits.

Any member may upload a file, and the worker that imports it holds keys and the database. `run_reader` runs `read` in
the process, and `read_study_upload` in the worker takes over its result. The worker copies the lines of a snapshot as
they are, after the process has checked each value.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from datasets_app.importing.archives import DAMAGED
from datasets_app.importing.limited_reader import FileToRead, Watch, run_reader
from datasets_app.importing.limits import LIMITS, MIB, Limits
from datasets_app.importing.reader_process import report_progress
from datasets_app.importing.records import FileError, ScratchFolder
from evalsite.lib.checksummed_zip import SUMS
from grading_app.publish.export.row_checks import ColumnRule, Rules
from grading_app.publish.export.snapshot_check import SnapshotFileError, SnapshotVerdict, verify
from grading_app.study_import.study import NAMES_OF_FILE, DesignNames, StudyDesign, StudyError
from grading_app.study_import.study_files import Study, build_record, encode_value, link_or_copy, load_study

READER = "grading_app.study_import.upload_reader:read"
SNAPSHOT = "snapshot"
COMMAND_HINT = re.compile(r"no known format; name one with --format: .*", re.DOTALL)
PAGE_HINT = "the format is not recognised; choose it under Format, or import a table of items as a dataset"
LOCAL_SNAPSHOT = "local snapshot"  # Of an operator: without the limits of uploads.
RESULT = "result.json"
SECONDS = 6 * 3600  # A million trials of a snapshot take about a minute.
STUDY = "study"  # The folder of several files; a study without a name is called so.
ODD = re.compile(r"[^\w. ()+,=@-]")
LONGEST_NAME = 120


@dataclass(frozen=True)
class SnapshotFile:
    """A snapshot or bundle, with the verdict of a check of all its rows. scratch: the folder that holds it, if any."""

    path: Path
    verdict: SnapshotVerdict
    scratch: ScratchFolder | None = None


def read_study_upload(
    files: Mapping[str, FileToRead],
    format_name: str,
    limits: Limits = LIMITS,
    watch: Watch | None = None,
    names: DesignNames = NAMES_OF_FILE,
) -> Study | StudyDesign | SnapshotFile:
    """Read the files in a separate process. Raise FileError if they cannot be imported."""
    scratch = ScratchFolder()
    result = _run_reader(scratch, files, format_name, limits, watch, names)
    if "problems" in result:
        raise StudyError(result["problems"])
    if "design" in result:
        return build_record(StudyDesign, result["design"])
    if "verdict" in result:
        path = place_files(list(files.values()), scratch.path / "archive")
        return SnapshotFile(path, SnapshotVerdict(**result["verdict"]), scratch)
    return load_study(scratch)


def read_snapshot(path: Path) -> SnapshotFile:
    """Check the file and its rows in a separate process. Raise SnapshotFileError if it cannot be read."""
    limits = replace(LIMITS, reader_seconds=SECONDS)
    try:
        result = _run_reader(ScratchFolder(), {"snapshot": FileToRead(path, path.name)}, LOCAL_SNAPSHOT, limits)
    except FileError as error:
        raise SnapshotFileError(str(error)) from error
    return SnapshotFile(path, SnapshotVerdict(**result["verdict"]))


def _run_reader(
    scratch: ScratchFolder,
    files: Mapping[str, FileToRead],
    format_name: str,
    limits: Limits,
    watch: Watch | None = None,
    names: DesignNames = NAMES_OF_FILE,
) -> dict[str, Any]:
    from grading_app.publish.export.study_rows import build_rules  # The process has no models.

    request = {"format": format_name, "names": asdict(names), "rules": build_rules()}
    run_reader(scratch, READER, files, limits, watch, **request)
    result: dict[str, Any] = json.loads((scratch.path / RESULT).read_text(encoding="utf-8"))
    return result


def read(request: Mapping[str, Any], out: Path, limits: Limits) -> None:
    """Read the files of the request in the limited process, and write the result into the folder.

    The result is the verdict on a snapshot, a design, or nothing for a study, whose files are in the folder.
    """
    from grading_app.study_import.importers import read_source

    files = [FileToRead(Path(path), name) for path, name in request["files"].values()]
    format_name = request["format"]
    result: dict[str, Any] = {}
    try:
        if format_name == LOCAL_SNAPSHOT:
            result["verdict"] = asdict(verify(files[0].path, load_rules(request["rules"])))
        elif format_name in ("", SNAPSHOT) and is_snapshot(files[0].path):
            if len(files) > 1:
                raise StudyError([f"{files[0].name} is a snapshot or bundle: choose it alone"])
            _check_size(files[0], limits)
            result["verdict"] = asdict(verify(place_files(files, out / STUDY), load_rules(request["rules"])))
        elif format_name == SNAPSHOT:
            raise StudyError([f"{files[0].name} is no snapshot or bundle of Evalsite"])
        else:
            names = DesignNames(**request["names"])
            source = read_source(place_files(files, out / STUDY), format_name, names, report_progress(out))
            if isinstance(source, Study):
                source.write(out)
            else:
                result["design"] = source
    except StudyError as error:
        # The problems must not name the path of the temporary folder or the options of the command.
        problems = [problem.replace(f"{out / STUDY}/", "") for problem in error.problems]
        result = {"problems": [COMMAND_HINT.sub(PAGE_HINT, problem) for problem in problems]}
    (out / RESULT).write_text(json.dumps(result, default=encode_value), encoding="utf-8")


def is_snapshot(path: Path) -> bool:
    """Return whether the file is a zip with the parts that every snapshot and bundle has."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {SUMS, "counts.json"} <= set(archive.namelist())
    except DAMAGED:
        return False


def _check_size(file: FileToRead, limits: Limits) -> None:
    """Raise StudyError for an archive that unpacks to more than an upload may, in all or for its packed size."""
    with zipfile.ZipFile(file.path) as archive:
        parts = archive.infolist()
    problem = ""
    if sum(part.file_size for part in parts) > limits.unpacked_bytes:
        problem = f"{file.name} unpacks to more than {limits.unpacked_bytes // MIB} MiB"
    for part in parts:
        is_large = part.file_size > limits.ratio_from_bytes
        if is_large and part.file_size > limits.member_ratio * max(part.compress_size, 1):
            name = part.filename[:80]
            problem = f"{name!r} in {file.name} unpacks to more than {limits.member_ratio} times its size"
    if problem:
        raise StudyError([f"{problem}; import it with `manage.py import_snapshot`"])


def place_files(files: list[FileToRead], folder: Path) -> Path:
    """Put the files into a folder under names like their own. Return the path of the only file, or of the folder."""
    folder.mkdir()
    targets = []
    for number, file in enumerate(files, start=1):
        target = folder / safe_name(file.name)
        if target.exists():
            target = folder / f"{number}-{target.name}"
        link_or_copy(file.path, target)
        targets.append(target)
    return targets[0] if len(targets) == 1 else folder


def safe_name(name: str) -> str:
    """Return the last part of a name, without the characters that a file system or a reader could take amiss."""
    plain = ODD.sub("_", PurePosixPath(name.replace("\\", "/")).name).lstrip(".") or "file"
    stem, dot, suffix = plain.rpartition(".")
    return plain if len(plain) <= LONGEST_NAME or not dot else f"{stem[: LONGEST_NAME - 20]}.{suffix[:18]}"


def load_rules(content: Mapping[str, Any]) -> Rules:
    """Return the rules as `study_rows.build_rules` made them, after a way through JSON."""
    return {
        table: {name: build_record(ColumnRule, rule) for name, rule in columns.items()}
        for table, columns in content.items()
    }
