"""Designs of other tools in the form of an experiment file, to launch here. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grading_app.study_import.itemeval_config import find_config_file, read_config
from grading_app.study_import.itemeval_design import build_design
from grading_app.study_import.oasis_run_config import is_run_config, read_run_config
from grading_app.study_import.reasonscape import find_space_files
from grading_app.study_import.study import StudyError

SPACE = (
    "Generate its dataset first (Datasets, Generate dataset, or `dataset parametric FILE`). Then create an experiment "
    "over it, with the stopping rules of the dataset (`adaptive: dataset`)"
)


@dataclass(frozen=True)
class DesignNames:
    """Names that a person chose for the experiment, its dataset and its endpoint. Empty: those of the file."""

    experiment: str = ""
    dataset: str = ""
    endpoint: str = ""


NAMES_OF_FILE = DesignNames()


@dataclass(frozen=True)
class Design:
    """A design. content: as an experiment file has it. notes: what was not taken, and why."""

    tool: str
    content: Mapping[str, Any]
    notes: Sequence[str]


def read_design(path: Path, names: DesignNames) -> Design | None:
    """Return the design of a YAML file, or of a folder with one; None if there is none. Raise StudyError."""
    options = {"name": names.experiment, "dataset": names.dataset, "endpoint": names.endpoint}
    if is_run_config(path):
        return Design("OASIS-LLM", *read_run_config(path, **options))
    if (config_file := find_config_file(path)) is not None:
        config = read_config(*config_file, root=path if path.is_dir() else path.parent)
        return Design("itemeval", *build_design(config, **options))
    if spaces := find_space_files(path):
        raise StudyError([f"{name}: an experiment of ReasonScape has tasks, but no models. {SPACE}" for name in spaces])
    return None
