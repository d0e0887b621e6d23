"""The reading of studies and snapshots in a process of its own, without keys or database, under limits.

`limited_reader.run_reader` runs `read` in that process, and `read_study_upload` in the worker takes over its results.
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
from grading_app.publish.export.snapshot_check import SnapshotFileError, SnapshotVerdict, describe_damage, verify
from grading_app.study_import.study import NAMES_OF_FILE, DesignNames, Study, StudyDesign, StudyError
from grading_app.study_import.study_files import link_or_copy, load_study_files, write_study_files

READER = "grading_app.study_import.upload_reader:read"
SNAPSHOT = "snapshot"
COMMAND_HINT = re.compile(r"no known format; name one with --format: .*", re.DOTALL)
PAGE_HINT = "the format is not recognised; choose it under Format, or import a table of items as a dataset"
PROBLEMS, DESIGN, IS_SNAPSHOT = "problems.json", "design.json", "snapshot"
STUDY = "study"  # The folder of several files; a study without a name is called so.
ODD = re.compile(r"[^\w. ()+,=@-]")
LONGEST_NAME = 120


@dataclass
class StudyReading:
    """The result of reading an upload: a study or a design; neither for the archive of a snapshot or bundle."""

    study: Study | None
    scratch: ScratchFolder
    design: StudyDesign | None = None


def read_study_upload(
    files: Mapping[str, FileToRead],
    format_name: str,
    limits: Limits = LIMITS,
    watch: Watch | None = None,
    names: DesignNames = NAMES_OF_FILE,
) -> StudyReading:
    """Read the files in a separate process. Raise FileError or StudyError if they cannot be imported."""
    scratch = ScratchFolder()
    run_reader(scratch, READER, files, limits, watch, format=format_name, names=asdict(names))
    if (scratch.path / PROBLEMS).exists():
        raise StudyError(json.loads((scratch.path / PROBLEMS).read_text(encoding="utf-8")))
    if (scratch.path / IS_SNAPSHOT).exists():
        return StudyReading(None, scratch)
    if (scratch.path / DESIGN).exists():
        design = StudyDesign(**json.loads((scratch.path / DESIGN).read_text(encoding="utf-8")))
        return StudyReading(None, scratch, design)
    return StudyReading(replace(load_study_files(scratch.path), scratch=(scratch,)), scratch)


def read(request: Mapping[str, Any], out: Path, limits: Limits) -> None:
    """Read the files of the request in the limited process, and write the study or its problems into the folder."""
    from grading_app.study_import.importers import read_source

    files = [FileToRead(Path(path), name) for path, name in request["files"].values()]
    format_name = request["format"]
    try:
        if format_name in ("", SNAPSHOT) and is_snapshot(files[0].path):
            if len(files) > 1:
                raise StudyError([f"{files[0].name} is a snapshot or bundle: choose it alone"])
            _check_size(files[0], limits)
            (out / IS_SNAPSHOT).touch()
        elif format_name == SNAPSHOT:
            raise StudyError([f"{files[0].name} is no snapshot or bundle of Evalsite"])
        else:
            names = DesignNames(**request["names"])
            source = read_source(place_files(files, out / STUDY), format_name, names, report_progress(out))
            if isinstance(source, StudyDesign):
                (out / DESIGN).write_text(json.dumps(asdict(source)), encoding="utf-8")
            else:
                write_study_files(source, out)
    except StudyError as error:
        # The problems must not name the path of the temporary folder or the options of the command.
        (out / PROBLEMS).write_text(
            json.dumps(
                [COMMAND_HINT.sub(PAGE_HINT, problem.replace(f"{out / STUDY}/", "")) for problem in error.problems]
            ),
            encoding="utf-8",
        )


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


# --- snapshots and bundles --------------------------------------------------------------------------------------------

# Any member may upload a file that verifies, and the worker that imports it holds keys and the database. So the process
# parses the file, and the worker copies the checked lines as they are.

READER_OF_SNAPSHOTS = "grading_app.study_import.upload_reader:read_snapshot"
VERDICT, PROBLEM = "verdict.json", "problem.json"
SECONDS = 6 * 3600  # A million trials take about a minute.


def verify_in_limits(path: Path, rules: Mapping[str, Any]) -> SnapshotVerdict:
    """Check the file and its rows. Raise SnapshotFileError if it cannot be read within the limits.

    rules: as `study_rows.build_rules` returns them.
    """
    if not path.is_file():
        raise SnapshotFileError(describe_damage(path, FileNotFoundError()))
    scratch = ScratchFolder()
    limits = replace(LIMITS, reader_seconds=SECONDS)
    try:
        run_reader(scratch, READER_OF_SNAPSHOTS, {"snapshot": FileToRead(path, path.name)}, limits, rules=dict(rules))
    except FileError as error:
        raise SnapshotFileError(str(error)) from error
    if (scratch.path / PROBLEM).exists():
        raise SnapshotFileError(json.loads((scratch.path / PROBLEM).read_text(encoding="utf-8")))
    return SnapshotVerdict(**json.loads((scratch.path / VERDICT).read_text(encoding="utf-8")))


def read_snapshot(request: Mapping[str, Any], out: Path, limits: Limits) -> None:
    """Check the file of the request in the limited process, and write the verdict into the folder."""
    try:
        verdict = verify(Path(request["files"]["snapshot"][0]), load_rules(request["rules"]))
    except SnapshotFileError as error:
        (out / PROBLEM).write_text(json.dumps(str(error)), encoding="utf-8")
        return
    (out / VERDICT).write_text(json.dumps(asdict(verdict)), encoding="utf-8")


def load_rules(content: Mapping[str, Any]) -> Rules:
    return {
        table: {name: ColumnRule(**{**rule, "choices": tuple(rule["choices"])}) for name, rule in columns.items()}
        for table, columns in content.items()
    }
