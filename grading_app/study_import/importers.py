"""The formats that can be imported. To add one, write its module and list it here."""

from __future__ import annotations

from pathlib import Path

from grading_app.study_import.inspect_logs import INSPECT
from grading_app.study_import.oasis_llm import OASIS_LLM
from grading_app.study_import.reasonscape import REASONSCAPE
from grading_app.study_import.study import Study, StudyError, StudyFormat

FORMATS: dict[str, StudyFormat] = {one.name: one for one in (OASIS_LLM, INSPECT, REASONSCAPE)}


def read_study(path: Path, format_name: str = "") -> Study:
    """Return the study at the path, in the named format or in the one that it looks like.

    Raise StudyError if the path does not exist, no format fits, or the content is invalid.
    """
    if not path.exists():
        raise StudyError([f"{path}: no such file or folder"])
    fitting = [FORMATS[format_name]] if format_name else [one for one in FORMATS.values() if one.recognises(path)]
    if not fitting:
        raise StudyError([f"{path}: no known format; name one with --format: {', '.join(FORMATS)}"])
    return fitting[0].read(path)
