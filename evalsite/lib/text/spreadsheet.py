"""Protection against cells that a spreadsheet would run as a formula. All CSV writers of the site use it. Pure.

An escaped cell gets an apostrophe in front. The rule is a single regular expression for both Python and PostgreSQL,
because the database formats exports.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import Any

# Full-width and small forms are included: some spreadsheets read them as the plain character.
FORMULA_STARTS = r"=+\-@\uFF1D\uFF0B\uFF0D\uFF20\uFE66\uFE62\uFE63\uFE6B"
# A spreadsheet may drop these before it reads the cell: delimiters of other locales, white space, controls, and
# characters without width.
SKIPPED = r";,|\u0001-\u0020\u007F-\u00A0\u00AD\u061C\u1680\u180E\u2000-\u200F\u2028-\u202F\u205F-\u206F\u3000\uFEFF"
ALWAYS_ESCAPED = r"\t\r\n"  # A cell that starts with one of these is always escaped.
FORMULA = rf"^(?:[{ALWAYS_ESCAPED}]|[{SKIPPED}]*[{FORMULA_STARTS}])"
PLAIN_NUMBER = r"^[+-]?[0-9]+(?:\.[0-9]+)?$"

_formula = re.compile(FORMULA)
_plain_number = re.compile(PLAIN_NUMBER.replace("$", r"\Z"))


def _list_first_codes() -> str:
    """Return the code points with which an escaped cell can start, for SQL that tests few cells by the expression."""
    starts = re.compile(f"[{SKIPPED}{FORMULA_STARTS}]")
    return ", ".join(str(code) for code in range(1, 0x10000) if starts.match(chr(code)))


FIRST_CODES = _list_first_codes()


def escape_cell(cell: Any) -> Any:
    """Return the cell in a form that is safe in CSV. Only text changes, and a plain number never does."""
    if isinstance(cell, str) and _formula.match(cell) and not _plain_number.match(cell):
        return f"'{cell}"
    return cell


def escape_cell_sql(cell: str) -> str:
    """Return SQL for the same rule, applied to a SQL expression of type text."""
    return (
        f"CASE WHEN ascii({cell}) IN ({FIRST_CODES}) AND {cell} ~ '{FORMULA}' AND {cell} !~ '{PLAIN_NUMBER}' "
        f"THEN '''' || {cell} ELSE {cell} END"
    )


def format_csv_line(cells: Iterable[Any]) -> str:
    """Return one line of CSV, safe for spreadsheets, with its line end."""
    out = io.StringIO()
    csv.writer(out).writerow([escape_cell(cell) for cell in cells])
    return out.getvalue()
