"""The check of a snapshot in a process of its own, without keys or database, under limits of memory and time.

Any member may upload a file that verifies. The worker that imports it holds keys and the database, so it does not parse
the file: the process does, and the worker copies the checked lines as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from datasets_app.importing.limited_reader import FileToRead, run_reader
from datasets_app.importing.limits import LIMITS, Limits
from datasets_app.importing.records import FileError, ScratchFolder
from grading_app.publish.export.row_checks import ColumnRule, Rules
from grading_app.publish.export.snapshot_check import SnapshotFileError, SnapshotVerdict, describe_damage, verify

READER = "grading_app.study_import.snapshot_reader:read"
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
        run_reader(scratch, READER, {"snapshot": FileToRead(path, path.name)}, limits, rules=dict(rules))
    except FileError as error:
        raise SnapshotFileError(str(error)) from error
    if (scratch.path / PROBLEM).exists():
        raise SnapshotFileError(json.loads((scratch.path / PROBLEM).read_text(encoding="utf-8")))
    return SnapshotVerdict(**json.loads((scratch.path / VERDICT).read_text(encoding="utf-8")))


def read(request: Mapping[str, Any], out: Path, limits: Limits) -> None:
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
