"""Spreadsheets for tests, written by openpyxl, and hostile ones that no program writes."""

import io
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import openpyxl

ODS_TYPE = "application/vnd.oasis.opendocument.spreadsheet"


def write_xlsx(sheets: Mapping[str, Iterable[Iterable[Any]]], *, hidden: Iterable[str] = ()) -> bytes:
    """Return a workbook with these rows. Its formulas have no values, as openpyxl computes none."""
    workbook = openpyxl.Workbook()
    workbook.remove(workbook.active)
    for name, rows in sheets.items():
        sheet = workbook.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
        sheet.sheet_state = "hidden" if name in hidden else "visible"
    content = io.BytesIO()
    workbook.save(content)
    return content.getvalue()


def replace_member(content: bytes, name: str, old: str, new: str) -> bytes:
    """Return the workbook with a changed member, such as the value that a spreadsheet program saved with a formula."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as target:
        for member in source.infolist():
            data = source.read(member)
            if member.filename == name:
                assert old.encode() in data
                data = data.replace(old.encode(), new.encode())
            target.writestr(member.filename, data)
    return changed.getvalue()


def write_ods(rows: Iterable[Iterable[str | float]]) -> bytes:
    """Return an OpenDocument sheet, as LibreOffice writes the cells of texts and numbers."""
    cells = [
        "".join(
            f'<table:table-cell office:value-type="string"><text:p>{cell}</text:p></table:table-cell>'
            if isinstance(cell, str)
            else f'<table:table-cell office:value-type="float" office:value="{cell}"/>'
            for cell in row
        )
        for row in rows
    ]
    table = "".join(f"<table:table-row>{row}</table:table-row>" for row in cells)
    document = (
        '<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
        'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
        'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:spreadsheet>'
        f'<table:table table:name="Daten">{table}</table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    manifest = (
        '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{ODS_TYPE}"/></manifest:manifest>'
    )
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("mimetype", ODS_TYPE)
        archive.writestr("META-INF/manifest.xml", manifest)
        archive.writestr("content.xml", document)
    return content.getvalue()
