"""The formats that can be imported. To add one, write its module and list it here.

A study is a file, a folder, or a zip of a folder. Files of a study are never trusted: a link, a path out of the archive
and a file that unpacks to too much are refused before a format reads anything.
"""

from __future__ import annotations

import csv
from pathlib import Path

from datasets_app.importing.archives import ZipMembers
from datasets_app.importing.limited_reader import Watch
from datasets_app.importing.limits import LIMITS
from datasets_app.importing.records import FileError, ScratchFolder
from grading_app.study_import.formats.every_eval_ever import EVERY_EVAL_EVER
from grading_app.study_import.formats.helm import HELM
from grading_app.study_import.formats.hub_eval import HUB_EVAL
from grading_app.study_import.formats.inspect_ai import INSPECT
from grading_app.study_import.formats.itemeval import ITEMEVAL
from grading_app.study_import.formats.label_studio import LABEL_STUDIO
from grading_app.study_import.formats.lm_eval import LM_EVAL
from grading_app.study_import.formats.oasis_llm import OASIS_DUCKDB, OASIS_LLM
from grading_app.study_import.formats.openai_evals import OPENAI_EVALS
from grading_app.study_import.formats.promptfoo import PROMPTFOO
from grading_app.study_import.formats.reasonscape import REASONSCAPE
from grading_app.study_import.study import NAMES_OF_FILE, DesignNames, StudyDesign, StudyError
from grading_app.study_import.study_draft import StudyFormat
from grading_app.study_import.study_files import Study

FORMATS: dict[str, StudyFormat] = {
    study_format.name: study_format
    for study_format in (
        OASIS_DUCKDB, OASIS_LLM, ITEMEVAL, INSPECT, REASONSCAPE, LM_EVAL, HELM, EVERY_EVAL_EVER, OPENAI_EVALS,
        PROMPTFOO, LABEL_STUDIO, HUB_EVAL,
    )
}  # fmt: skip
BROKEN = (OSError, UnicodeError, csv.Error)


def read_source(
    path: Path, format_name: str = "", names: DesignNames = NAMES_OF_FILE, watch: Watch | None = None
) -> Study | StudyDesign:
    """Return the study at the path, in the named format or in the one that it looks like, or a design without results.

    watch: is called with the number of trials so far. Raise StudyError if the path does not exist, no format fits, or
    the content is invalid.
    """
    if not path.exists():
        raise StudyError([f"{path}: no such file or folder"])
    try:
        if path.suffix.lower() != ".zip":
            return _read(path, format_name, names, watch)
        scratch = ScratchFolder()
        # A single folder around all files of an archive is left out.
        folder = scratch.path / path.stem
        folder.mkdir()
        with path.open("rb") as file:
            ZipMembers(file, LIMITS).extract(folder)
        inside = list(folder.iterdir())
        source = _read(inside[0] if len(inside) == 1 and inside[0].is_dir() else folder, format_name, names, watch)
        if isinstance(source, Study):
            source.folders.append(scratch)
        return source
    except StudyError:
        raise
    except (FileError, *BROKEN) as error:
        raise StudyError([f"{path.name}: {error}"]) from error


def _read(path: Path, format_name: str, names: DesignNames, watch: Watch | None) -> Study | StudyDesign:
    if path.is_dir():
        _check_folder(path)
    if path.is_file() and not path.stat().st_size:
        raise StudyError([f"{path.name}: the file is empty"])
    if path.is_dir() and not any(file.is_file() for file in path.rglob("*")):
        raise StudyError([f"{path.name}: there is no file in it"])
    formats = [candidate for candidate in FORMATS.values() if candidate.recognises(path)]
    for candidate in FORMATS.values() if not formats else ():
        design = candidate.find_design(path, names) if format_name in ("", candidate.name) else None
        if design is not None:
            return design
    if not formats and not format_name:
        raise StudyError([f"{path.name}: no known format; name one with --format: {', '.join(FORMATS)}"])
    study_format = FORMATS[format_name] if format_name else formats[0]
    study = study_format.read_study(path, watch)
    others = [candidate for candidate in formats if candidate is not study_format]
    study.notes += [f"Files of {candidate.label} are here, too. They are not taken." for candidate in others]
    return study


def _check_folder(folder: Path) -> None:
    """Raise StudyError for a link to another place, anything that is no file, or too many files."""
    home = folder.resolve()
    for number, path in enumerate(folder.rglob("*"), start=1):
        where = path.relative_to(folder).as_posix()
        if not path.resolve().is_relative_to(home):
            raise StudyError([f"{where}: a link to a place outside the folder"])
        if not (path.is_file() or path.is_dir()):
            raise StudyError([f"{where}: neither a file nor a folder"])
        if number > LIMITS.zip_members:
            raise StudyError([f"{folder.name}: more than {LIMITS.zip_members:,} files"])
