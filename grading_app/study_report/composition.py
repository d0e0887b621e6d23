"""A report as its author wants it: the generated document with sections left out and texts between them."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from typing import Any

from evalsite.lib.checksummed_zip import SUMS
from grading_app.models import ReportChoices, Snapshot
from grading_app.study_report.build import build_document
from grading_app.study_report.document import Document, Section
from grading_app.study_report.markdown import read_markdown
from runs_app.models import Experiment

END = "end"
PART = "report.json"
"""The part of a snapshot that holds the report as it was then."""


def compose(document: Document, choices: ReportChoices) -> Document:
    """Return the document with the author's choices. A text is a section without a title."""
    sections: list[Section] = []
    for section in document.sections:
        sections += _text_section(choices, section.name)
        if section.name not in choices.left_out:
            sections.append(section)
    return replace(document, sections=[*sections, *_text_section(choices, END)])


def _text_section(choices: ReportChoices, name: str) -> list[Section]:
    blocks = read_markdown(str(choices.texts.get(name, "")))
    return [Section(f"text-{name}", "", blocks)] if blocks else []


def freeze_report(experiment: Experiment) -> dict[str, Any]:
    """Return the report of the present rows with the author's choices, as JSON for a snapshot."""
    return compose(build_document(experiment), ReportChoices.of(experiment)).dump()


def read_frozen(snapshot: Snapshot) -> Document | None:
    """Return the report that a snapshot froze; None for a snapshot without one, or whose file is gone."""
    try:
        with zipfile.ZipFile(snapshot.path) as archive:
            if SUMS not in archive.namelist() or PART not in archive.namelist():
                return None
            return Document.load(json.loads(archive.read(PART)))
    except (FileNotFoundError, zipfile.BadZipFile, ValueError):
        return None
