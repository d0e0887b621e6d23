"""Reading of tables: line ends, delimiters, encodings and shapes of real files."""

import io
import json

import pyarrow
import pytest
from pyarrow import parquet

from datasets_app.importing import LIMITS, FileError, Limits, read_columns, read_items
from tests.factories.files import build_upload, list_messages
from tests.factories.recordings import find_recording


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_any_line_end_and_any_delimiter(end, delimiter):
    lines = [
        delimiter.join(cells) for cells in (["id", "question", "answer"], ["a", "One, two?", "1"], ["b", "B", "2"])
    ]
    text = end.join(lines).replace("One, two?", '"One, two?"') + end
    reading = read_items(build_upload(text))
    assert reading.errors == []
    assert [(item.key, item.input, item.target) for item in reading.items] == [("a", "One, two?", "1"), ("b", "B", "2")]


def test_a_line_end_inside_quotes_stays_and_the_next_row_knows_its_line():
    reading = read_items(build_upload('id,question\na,"first\nsecond"\na,other\n'))
    assert reading.items[0].input == "first\nsecond"
    assert list_messages(reading.errors) == ["row 2 (line 4), key: 'a' is the key of row 1 already"]


def test_a_byte_order_mark_is_not_part_of_the_first_name():
    assert read_items(build_upload("\ufeffid,question\na,b\n")).columns == ["id", "question"]


def test_spreadsheets_that_save_utf16_are_read():
    reading = read_items(build_upload("id\tquestion\na\tWie geht’s?\n".encode("utf-16"), "items.txt"))
    assert [item.input for item in reading.items] == ["Wie geht’s?"]


def test_windows_text_is_read_and_reported():
    reading = read_items(build_upload("id,question\na,Caf\xe9 – d\xe9j\xe0 vu\n".encode("cp1252")))
    assert reading.items[0].input == "Café – déjà vu"
    assert "Windows-1252" in str(reading.warnings[0])


def test_bytes_in_no_known_encoding_are_refused():
    assert list_messages(read_items(build_upload(b"id,question\na,\x81\x8d\xff\n")).errors) == [
        "file: the text is neither UTF-8 nor Windows-1252; save it as UTF-8"
    ]


@pytest.mark.parametrize(
    ("first_bytes", "fault"),
    [
        (b"%PDF-1.7\n", "this is a PDF document, not a table; save the table as CSV"),
        (b"\x89PNG\r\n\x1a\n", "this is one image, not a table; upload a zip of images"),
        (b"\xff\xd8\xff\xe0", "this is one image, not a table; upload a zip of images"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "this is an old Excel or Word file; save the sheet as .xlsx or CSV"),
        (b"\x1f\x8b\x08", "this is a gzip file; unpack it first"),
    ],
)
def test_a_file_of_another_kind_is_refused_even_if_its_name_says_csv(first_bytes, fault):
    with pytest.raises(FileError, match=fault):
        read_columns(build_upload(first_bytes + b"a,b\n1,2\n", "items.csv"))
    assert list_messages(read_items(build_upload(first_bytes + b"a,b\n1,2\n", "items.csv")).errors) == [
        f"file: {fault}"
    ]


def test_a_table_with_only_a_header_is_refused_before_the_mapping():
    with pytest.raises(FileError, match="the table has no rows below its header"):
        read_columns(build_upload("id,question\n"))


def test_a_missing_quote_is_refused_with_its_line():
    errors = list_messages(read_items(build_upload('id,question\na,fine\nb,"never closed\nc,d\n')).errors)
    assert len(errors) == 1
    assert "line 3" in errors[0]


def test_a_row_with_too_many_cells_is_an_error_of_that_row():
    errors = list_messages(read_items(build_upload("id,question\na,b\nc,d,e\nf\n")).errors)
    assert errors == [
        "row 2 (line 3), row: has 3 cells where the header has 2",
        "row 3 (line 4), row: has 1 cells where the header has 2",
    ]


def test_blank_lines_are_skipped():
    reading = read_items(build_upload("\nid,question\n\na,b\n,\n\nc,d\n\n"))
    assert [item.key for item in reading.items] == ["a", "c"]
    assert reading.ok


def test_a_column_without_a_name_is_left_out_and_reported():
    reading = read_items(build_upload(",id,question\n0,a,b\n"))
    assert reading.columns == ["id", "question"]
    assert reading.items[0].metadata == {}
    assert "column 1 has no name" in str(reading.warnings[0])


def test_two_columns_of_one_name_are_refused():
    assert "twice: id" in str(read_items(build_upload("id,id,question\na,b,c\n")).errors[0])


@pytest.mark.parametrize("text", ["", "id,question\n", "\n\n"])
def test_a_file_without_rows_is_an_error(text):
    reading = read_items(build_upload(text))
    assert not reading.ok
    assert reading.items == []


def test_json_lines_keep_numbers_lists_and_nested_values():
    line = {"id": 7, "question": "Q", "options": ["x", "y"], "answer": "A", "level": 2, "extra": {"a": [1, None]}}
    reading = read_items(build_upload(json.dumps(line) + "\n\n", "items.jsonl"))
    item = reading.items[0]
    assert (item.key, item.choices, item.target) == ("7", ("x", "y"), "A")
    assert item.metadata == {"level": 2, "extra": {"a": [1, None]}}


def test_each_line_that_is_not_json_is_an_error_with_its_number():
    text = '{"id": "a", "question": "Q"}\n{"id": "b", \n[1]\n{"id": "c", "question": NaN}\n'
    errors = list_messages(read_items(build_upload(text, "items.jsonl")).errors)
    assert [error.split(",")[0] for error in errors] == ["row 2 (line 2)", "row 3 (line 3)", "row 4 (line 4)"]
    assert "NaN is not JSON" in errors[2]


@pytest.mark.parametrize("name", ["items.jsonl", "items.json"])
def test_deeply_nested_json_is_an_error(name):
    bomb = "[" * 100_000 if name.endswith("json") else '{"id": ' + "[" * 100_000
    assert not read_items(build_upload(bomb, name)).ok


def test_a_json_array_of_objects_is_a_table():
    reading = read_items(build_upload('[{"id": "a", "question": "Q"}, {"id": "b", "question": "R"}]', "items.json"))
    assert [item.input for item in reading.items] == ["Q", "R"]
    assert "row 2, row" in str(read_items(build_upload('[{"id": "a", "question": "Q"}, 3]', "x.json")).errors[0])


def test_parquet_rows_become_items():
    buffer = io.BytesIO()
    table = {
        "id": [1, 2],
        "question": ["Q", "R"],
        "choices": [["x", "y"], None],
        "answer": ["A", "7"],
        "p": [0.5, None],
    }
    parquet.write_table(pyarrow.table(table), buffer)
    reading = read_items(build_upload(buffer.getvalue(), "items.parquet"))
    assert reading.errors == []
    assert [(i.key, i.choices, dict(i.metadata)) for i in reading.items] == [
        ("1", ("x", "y"), {"p": 0.5}),
        ("2", (), {}),
    ]


def test_a_broken_parquet_file_is_refused():
    assert "not Parquet" in str(read_items(build_upload(b"PAR1" + b"x" * 100, "items.parquet")).errors[0])


def test_an_office_document_is_refused_with_advice():
    from tests.factories.files import build_archive

    book = build_archive({"[Content_Types].xml": "<x/>", "word/document.xml": "<x/>"}, "items.docx")
    assert "a spreadsheet needs a name that ends in .xlsx" in str(read_items(book).errors[0])


def test_limits_apply_while_reading():
    few = Limits(rows=3, columns=2, text_chars=50, table_bytes=2000)
    rows = "id,question\n" + "".join(f"k{n},q\n" for n in range(5))
    assert "more than 3 rows" in str(read_items(build_upload(rows), limits=few).errors[0])
    assert "has 3 columns" in str(read_items(build_upload("id,question,x\na,b,c\n"), limits=few).errors[0])
    assert "at most" in str(read_items(build_upload("id,question\na," + "b" * 5000), limits=few).errors[0])
    assert "field" in str(read_items(build_upload("id,question\na," + "b" * 60 + "\n"), limits=few).errors[0])


def test_a_hundred_errors_are_kept_and_all_are_counted():
    reading = read_items(build_upload("id,question\n" + "a,b\n" * 251))
    assert (len(reading.errors), reading.report.error_total) == (LIMITS.remarks, 250)


def test_the_file_is_named_by_its_hash():
    text = "id,question\na,b\n"
    first, second = read_items(build_upload(text)), read_items(build_upload(text, "other.csv"))
    assert first.source_sha256 == second.source_sha256 != read_items(build_upload(text + " \n")).source_sha256
    assert second.source_name == "other.csv"


def test_the_first_rows_are_available_before_mapping():
    columns, rows, _ = read_columns(build_upload("id,question\n" + "".join(f"k{n},q{n}\n" for n in range(9))))
    assert columns == ["id", "question"]
    assert rows == [[f"k{n}", f"q{n}"] for n in range(5)]
    with pytest.raises(FileError):
        read_columns(build_upload(b""))


def test_a_missing_path_is_an_error(tmp_path):
    assert "not a readable file" in str(read_items(tmp_path / "none.csv").errors[0])


def test_the_real_word_problems_are_read_whole():
    reading = read_items(find_recording("gsm8k-test.jsonl"), mapping={"target": "{answer|after:####}"})
    assert reading.ok
    assert len(reading.items) == 1319
    assert all(item.target.replace(",", "").lstrip("-").isdigit() for item in reading.items)
