"""The files of a report, by format."""

from __future__ import annotations

import threading
from collections import OrderedDict

from evalsite.lib.text.hashing import content_hash
from grading_app.study_report.archive import render_zip
from grading_app.study_report.document import Document
from grading_app.study_report.html import render_html
from grading_app.study_report.pdf import render_pdf
from grading_app.study_report.typst_process import TypesettingError

FILE_TYPES = {"html": "text/html; charset=utf-8", "pdf": "application/pdf", "zip": "application/zip"}
_WRITERS = {"html": render_html, "pdf": render_pdf, "zip": render_zip}
MAX_CACHED_FILES = 4
"""Files that a process caches, because readers of a shared report ask for the same one."""
WAIT_S = 20.0
_cached_files: OrderedDict[str, bytes] = OrderedDict()
_typesetting_lock = threading.Lock()


def write_report(document: Document, file_format: str) -> bytes:
    """Return the document in one of FILE_TYPES. Raise TypesettingError if a PDF takes too long."""
    return _WRITERS[file_format](document)


def get_file(document: Document, file_format: str) -> bytes:
    """Return a file for a page: the cached one, or a new one as soon as this process typesets no other.

    Anonymous readers may ask for files, so a process typesets one at a time. Raise TypesettingError after WAIT_S.
    """
    key = content_hash([document.dump(), file_format])
    if not _typesetting_lock.acquire(timeout=WAIT_S):
        raise TypesettingError("another report is being typeset; try again in a minute")
    try:
        if key not in _cached_files:
            _cached_files[key] = write_report(document, file_format)
            while len(_cached_files) > MAX_CACHED_FILES:
                _cached_files.popitem(last=False)
        _cached_files.move_to_end(key)
        return _cached_files[key]
    finally:
        _typesetting_lock.release()
