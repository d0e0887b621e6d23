"""Excel and OpenDocument sheets become items: header, sheets, dates, numbers, formulas, and hostile files."""

import datetime
import io
import zipfile

import pytest

from datasets_app.importing.item_reader import read_items
from datasets_app.importing.limited_reader import FileToRead, read_table_columns, read_upload
from datasets_app.importing.limits import Limits
from datasets_app.importing.records import FileError
from tests.factories.files import build_picture
from tests.factories.spreadsheets import replace_member, write_ods, write_xlsx

HEADER = ["id", "question", "answer"]
ROWS = [HEADER, ["a", "What is 2 plus 3?", 5], ["b", "Which share?", 0.25]]


def save(folder, content, name="items.xlsx"):
    path = folder / "upload"
    path.write_bytes(content)
    return FileToRead(path, name)


def read(content, name="items.xlsx", **options):
    file = io.BytesIO(content)
    file.name = name
    return read_items(file, **options)


def list_warnings(reading):
    return [str(remark) for remark in reading.report.warnings]


def test_a_sheet_is_read_like_a_csv_file():
    reading = read(write_xlsx({"Data": ROWS}))
    assert [(item.key, item.input, item.target) for item in reading.items] == [
        ("a", "What is 2 plus 3?", "5"),
        ("b", "Which share?", "0.25"),
    ]
    assert list_warnings(reading) == []


def test_an_opendocument_sheet_is_read_too():
    reading = read(write_ods(ROWS), name="items.ods")
    assert [(item.key, item.target) for item in reading.items] == [("a", "5"), ("b", "0.25")]


def test_a_title_above_the_table_is_not_the_header():
    reading = read(write_xlsx({"Data": [["Our study"], [], *ROWS]}))
    assert [item.key for item in reading.items] == ["a", "b"]
    assert list_warnings(reading) == ["header: row 3 of the sheet is the header; rows above it are left out"]


def test_errors_name_the_row_of_the_sheet():
    reading = read(write_xlsx({"Data": [*ROWS, [], ["c", None, 7]]}))
    assert [str(error) for error in reading.report.errors] == [
        "row 3 (line 5), input: neither an input nor an image",
    ]


def test_dates_are_iso_texts_and_flags_are_words():
    rows = [["id", "question", "day", "time", "flag"]]
    rows += [["a", "When?", datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, 13, 30), True]]  # noqa: DTZ001 - a sheet has no zones
    (item,) = read(write_xlsx({"Data": rows})).items
    assert item.metadata == {"day": "2024-05-01", "time": "2024-05-01 13:30:00", "flag": "TRUE"}


def test_a_formula_has_the_value_that_was_saved_with_it():
    content = write_xlsx({"Data": [HEADER, ["a", "Sum?", "=2+3"]]})
    assert read(content).items[0].target == "", "openpyxl saves no value"
    saved = replace_member(content, "xl/worksheets/sheet1.xml", "<f>2+3</f><v></v>", "<f>2+3</f><v>5</v>")
    assert read(saved).items[0].target == "5"


def test_the_first_visible_sheet_is_read_unless_another_one_is_chosen(tmp_path):
    other = [HEADER, ["z", "Another?", 1]]
    content = write_xlsx({"Notes": [["secret"]], "Empty": [], "First": ROWS, "Second": other}, hidden=["Notes"])
    reading = read(content)
    assert [item.key for item in reading.items] == ["a", "b"]
    assert list_warnings(reading) == ["sheet: 'First' is read; the file has other sheets, too: 'Empty', 'Second'"]
    chosen = read(content, mapping={"sheet": "Second"})
    assert [item.key for item in chosen.items] == ["z"]
    assert list_warnings(chosen) == []
    table = read_table_columns(save(tmp_path, content), sheet="Second")
    assert (table.sheets, table.sheet, table.first_rows) == (
        ["Empty", "First", "Second"],
        "Second",
        [["z", "Another?", "1"]],
    )


def test_an_unknown_sheet_is_refused_with_the_nearest_name():
    reading = read(write_xlsx({"Data": ROWS}), mapping={"sheet": "Date"})
    (error,) = reading.report.errors
    assert "no sheet 'Date'" in error.message
    assert "'Data'" in error.message


def test_a_sheet_travels_in_a_zip_with_images(tmp_path):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("study.xlsx", write_xlsx({"Data": [["image", "Valence_mean"], ["cat.png", 5.5]]}))
        archive.writestr("images/cat.png", build_picture(form="PNG"))
    reading, _ = read_upload({"items": save(tmp_path, content.getvalue(), "study.zip")}, {})
    assert [remark.message for remark in reading.report.errors] == []
    assert [(item.image.original_name, item.norms[0].mean) for item in reading.items] == [("cat.png", 5.5)]


@pytest.mark.parametrize(
    ("content", "name", "reason"),
    [
        (b"PK\x03\x04 not a zip", "a.xlsx", "archive cannot be opened"),
        (b"id,question\n1,Why?\n", "a.xlsx", "this is not a spreadsheet"),
        (write_xlsx({"Data": []}), "a.xlsx", "no cell of 'Data' has a value"),
        (write_xlsx({"Data": ROWS}), "a.zip", "ends in .xlsx or .ods"),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "a.xls", "save the sheet as .xlsx"),
    ],
)
def test_a_file_that_is_no_spreadsheet_is_refused_with_a_reason(tmp_path, content, name, reason):
    with pytest.raises(FileError, match=reason):
        read_table_columns(save(tmp_path, content, name))


def test_too_many_rows_are_refused_before_they_are_read():
    reading = read(write_xlsx({"Data": [HEADER, *([n, "?", 1] for n in range(60))]}), limits=Limits(rows=20))
    assert [error.message for error in reading.report.errors] == ["the sheet has 61 rows; at most 20 are read"]


def test_a_cell_far_away_cannot_exhaust_memory(tmp_path):
    content = write_xlsx({"Data": ROWS})
    far = replace_member(
        content,
        "xl/worksheets/sheet1.xml",
        "</sheetData>",
        '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>',
    )
    with pytest.raises(FileError, match="far below or beside its table"):
        read_table_columns(save(tmp_path, far))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    content = replace_member(
        write_xlsx({"Data": ROWS}), "xl/worksheets/sheet1.xml", "</sheetData>", "</sheetData>" + " " * 60_000_000
    )
    assert len(content) < 200_000
    with pytest.raises(FileError, match="unpacks to more than 200 times its size"):
        read_table_columns(save(tmp_path, content))


def test_entities_of_xml_are_not_expanded(tmp_path):
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {after} "{f"&{before};" * 10}">' for before, after in zip("abcdefgh", "bcdefghi", strict=True)
    )
    content = write_xlsx({"Data": [["id", "question"], ["a", "MARK"]]})
    content = replace_member(content, "xl/sharedStrings.xml", "<sst", f"{bomb}]><sst")
    content = replace_member(content, "xl/sharedStrings.xml", "MARK", "&i;")
    try:
        table = read_table_columns(save(tmp_path, content))
    except FileError:
        return
    assert all(len(cell) < 100 for row in table.first_rows for cell in row)
