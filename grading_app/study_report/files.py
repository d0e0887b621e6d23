"""The files of a report, by format."""

from __future__ import annotations

from grading_app.study_report.archive import render_zip
from grading_app.study_report.document import Document
from grading_app.study_report.html import render_html
from grading_app.study_report.pdf import render_pdf

FILE_TYPES = {"html": "text/html; charset=utf-8", "pdf": "application/pdf", "zip": "application/zip"}
_WRITERS = {"html": render_html, "pdf": render_pdf, "zip": render_zip}


def write_report(document: Document, file_format: str) -> bytes:
    """Return the document in one of FILE_TYPES. Raise TypesettingError if a PDF takes too long."""
    return _WRITERS[file_format](document)
