"""The reader of Excel and OpenDocument sheets. python-calamine is imported only when such a file is read.

Formulas are not computed: a cell has the value that the program saved last. A cell with an error is empty.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, BinaryIO

from datasets_app.importing.archives import ZipMembers
from datasets_app.importing.limits import Limits
from datasets_app.importing.records import FileError, ReadingReport, TableRow
from evalsite.lib.text.names import did_you_mean

SPREADSHEET_SUFFIXES = frozenset({".xlsx", ".xlsm", ".ods"})
HEADER_WITHIN = 20  # Rows in which the header is searched. Titles and notes may precede it.
EXACT_BELOW = 2**53  # Whole numbers up to here are exact; the file stores every number as a floating-point number.


def list_sheets(file: BinaryIO, limits: Limits) -> list[str]:
    """Return the names of the visible sheets, or of all sheets if none is visible. Their cells are not read."""
    with _open_workbook(file, limits) as workbook:
        return _name_sheets(workbook)


def read_spreadsheet(
    file: BinaryIO, report: ReadingReport, limits: Limits, sheet: str = ""
) -> tuple[list[tuple[int, Any]], Iterator[tuple[int, list[Any]]]]:
    """Return the cells of the header and an iterator over (row of the sheet, cells) of the rows below it.

    sheet: a name, or "" for the first visible sheet with cells.
    """
    with _open_workbook(file, limits) as workbook:
        names = _name_sheets(workbook)
        if sheet and sheet not in workbook.sheet_names:
            hint = did_you_mean(sheet[:100], workbook.sheet_names, shown=repr)
            raise FileError(f"map sheet: no sheet {sheet!r}; {hint or 'the sheets are ' + ', '.join(names[:20])}")
        table = _find_sheet(workbook, [sheet] if sheet else names)
        if not sheet and len(names) > 1:
            others = ", ".join(repr(name) for name in names[:20] if name != table.name)
            report.warning(None, "sheet", f"{table.name!r} is read; the file has other sheets, too: {others}")
        last_row, last_column = (place + 1 for place in table.end)
        if last_row > limits.rows + HEADER_WITHIN:
            raise FileError(f"the sheet has {last_row:,} rows; at most {limits.rows:,} are read")
        if last_column > limits.columns:
            raise FileError(f"the sheet has {last_column:,} columns; at most {limits.columns} are read")
        return _split_header(((number, list(cells)) for number, cells in enumerate(table.iter_rows(), 1)), report)


def _open_workbook(file: BinaryIO, limits: Limits) -> Any:
    """Open the workbook. Raise FileError if it is damaged, protected, or would unpack to too much."""
    import python_calamine

    ZipMembers(file, limits)  # Checks names, sizes and ratios before the native code unpacks anything.
    file.seek(0)
    try:
        return python_calamine.CalamineWorkbook.from_filelike(file)
    except python_calamine.PasswordError:
        raise FileError("the file has a password; save it without one") from None
    except (python_calamine.CalamineError, OSError, ValueError) as error:
        raise FileError(f"the spreadsheet cannot be read: {error}") from None


def _name_sheets(workbook: Any) -> list[str]:
    import python_calamine

    sheets = [one for one in workbook.sheets_metadata if one.typ == python_calamine.SheetTypeEnum.WorkSheet]
    visible = [one.name for one in sheets if one.visible == python_calamine.SheetVisibleEnum.Visible]
    return visible or [one.name for one in sheets]


def _find_sheet(workbook: Any, names: Sequence[str]) -> Any:
    """Return the first of these sheets that has cells. Raise FileError if there is none."""
    import python_calamine

    try:
        for name in names:
            table = workbook.get_sheet_by_name(name)
            if table.start is not None:
                return table
    except (python_calamine.CalamineError, OSError, ValueError) as error:
        raise FileError(f"the sheet {name!r} cannot be read: {error}") from None
    raise FileError(f"no cell of {', '.join(map(repr, names[:20])) or 'the file'} has a value")


def _split_header(
    rows: Iterator[tuple[int, list[Any]]], report: ReadingReport
) -> tuple[list[Any], Iterator[tuple[int, list[Any]]]]:
    """Return the header and the rows below it.

    The header is the first of the first rows that fills more than half as many cells as the fullest of them. So a title
    or a note above a table is not a header.
    """
    filled = ((number, cells) for number, cells in rows if any(map(_is_filled, cells)))
    first = list(islice(filled, HEADER_WITHIN))
    counts = [sum(map(_is_filled, cells)) for _, cells in first]
    place = next((at for at, count in enumerate(counts) if 2 * count > max(counts)), 0)
    if place:
        report.warning(None, "header", f"row {first[place][0]} of the sheet is the header; rows above it are left out")
    return first[place][1] if first else [], chain(first[place + 1 :], filled)


def _is_filled(cell: Any) -> bool:
    return cell is not None and str(cell).strip() != ""


def iterate_rows(rows: Iterator[tuple[int, list[Any]]], columns: Sequence[str]) -> Iterator[TableRow]:
    """Yield the rows with their values by column. "" is the name of a column that is left out."""
    for number, (line, cells) in enumerate(rows, 1):
        yield TableRow(number, line, {name: to_value(cell) for name, cell in zip(columns, cells, strict=False) if name})


def to_value(cell: Any) -> Any:
    """Return a cell as JSON data. Times become ISO text, and TRUE and FALSE are texts, as in a CSV file of Excel."""
    if isinstance(cell, bool):
        return "TRUE" if cell else "FALSE"
    if isinstance(cell, float):
        return int(cell) if cell.is_integer() and abs(cell) < EXACT_BELOW else cell
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(sep=" ")
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell) if isinstance(cell, datetime.timedelta) else cell
