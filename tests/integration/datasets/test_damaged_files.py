"""Truncated, damaged and malicious files end as errors of the reading, never as an exception."""

import io
import re
import tracemalloc
from contextlib import suppress

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from datasets_app.importing import FileError, ItemReading, Limits, read_columns, read_items, read_norms
from tests.factories.files import build_archive, build_picture, build_upload, list_messages


def write_parquet() -> bytes:
    buffer = io.BytesIO()
    table = {"id": ["a", "b"], "question": ["q", "r"], "choices": [["x", "y"], None], "v_mean": [1.0, 2.0]}
    parquet.write_table(pyarrow.table(table), buffer)
    return buffer.getvalue()


WHOLE = {
    "a.csv": b'id,question,choices,v_mean\na,"Q ""x""",x|y,1\nb,R,"[""a"",""b""]",2\n',
    "a.jsonl": b'{"id": "a", "question": "Q", "m": {"a": [1]}}\n{"id": 2, "question": "R", "v_mean": 1}\n',
    "a.json": b'[{"id": "a", "question": "Q"}, {"id": "b", "question": "R"}]',
    "a.parquet": write_parquet(),
    "table.zip": build_archive({"a/cat.jpg": build_picture(), "i.csv": "id,image\n1,cat.jpg\n"}).getvalue(),
    "images.zip": build_archive(
        {"a/cat.gif": build_picture(form="GIF"), "b/x.webp": build_picture(form="WEBP")}
    ).getvalue(),
}
INSERTED = st.binary(max_size=4) | st.sampled_from([b'"', b"\r", b"{", b"[", b"\x00", b"\xff\xfe", b"|", b"1e999"])
DAMAGE = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), INSERTED), max_size=8)


def damage_content(content: bytes, damage) -> bytes:
    """Replace bytes at each position, which is a share of the length."""
    data = bytearray(content)
    for place, cut, inserted in damage:
        start = round(place * len(data))
        data[start : start + cut] = inserted
    return bytes(data)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(WHOLE)), DAMAGE)
def test_a_damaged_file_gives_a_reading_that_says_what_is_wrong(name, damage):
    data = damage_content(WHOLE[name], damage)
    reading = read_items(build_upload(data, name))
    assert isinstance(reading, ItemReading)
    assert reading.ok or all(str(error) for error in reading.errors)
    norms = read_norms(build_upload(data, name), {"a": "x", "b": ""})
    assert norms.ok or norms.report.errors
    with suppress(FileError):
        read_columns(build_upload(data, name))


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_the_files_are_valid_before_they_are_damaged(name):
    assert read_items(build_upload(WHOLE[name], name)).ok


def test_bytes_that_only_look_like_utf16_are_an_error():
    assert not read_items(build_upload(b"\xff\xfeid,text\na,b\n", "a.csv")).ok


def test_a_member_without_a_name_is_refused():
    content = build_archive({"x": b"x", "a.jpg": build_picture()}).getvalue()
    central = content.index(b"PK\x01\x02")
    name = central + 46  # The name follows the fixed part of the entry; its length stands at 28, a comment's at 32.
    moved = (
        content[: central + 28]
        + b"\0\0"
        + content[central + 30 : central + 32]
        + b"\1\0"
        + content[central + 34 : name]
    )
    assert "without a name" in list_messages(read_items(build_upload(moved + content[name:], "a.zip")).errors)[0]


def test_bytes_where_text_belongs_are_an_error_of_the_row():
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({"id": ["a"], "question": [[b"\xff"]]}), buffer)
    assert list_messages(read_items(build_upload(buffer.getvalue(), "a.parquet")).errors) == [
        "row 1, input: contains values that are not text"
    ]


def write_repeated_text(text: str, rows: int, *, listed: bool = False) -> bytes:
    """Return a Parquet file of a repeated text, which Parquet stores only once."""
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, pyarrow.int32()), pyarrow.array([text]))
    if listed:
        texts = pyarrow.ListArray.from_arrays(pyarrow.array([0, rows], pyarrow.int32()), texts)
    table = pyarrow.table({"id": [str(number) for number in range(len(texts))], "question": texts})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression="zstd", dictionary_pagesize_limit=100_000_000)
    return buffer.getvalue()


def test_a_text_that_expands_to_gigabytes_is_refused_row_by_row():
    """Each of 5,000 rows has a text that is too long: 2 GB of decoded data, a few kilobytes in the file."""
    data = write_repeated_text("x" * 400_000, 5000)
    assert len(data) < 100_000
    tracemalloc.start()
    reading = read_items(build_upload(data, "a.parquet"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    most = 512 * 2**20 // 400_000
    assert most <= reading.report.error_total <= most + 2
    assert "at most 200,000 are taken" in str(reading.errors[0])
    assert peak < 200 * 2**20


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        build_upload(write_repeated_text("x" * 5_000, 90_000), "bomb.parquet"),
        build_upload("id,question\n" + "".join(f"{n},{'x' * 500}\n" for n in range(5_000)), "bomb.csv"),
        build_upload("".join(f'{{"id": {n}, "question": "{"x" * 500}"}}\n' for n in range(5_000)), "bomb.jsonl"),
        build_upload(
            "[" + ",".join(f'{{"id": {n}, "question": "{"x" * 500}"}}' for n in range(5_000)) + "]", "bomb.json"
        ),
        build_archive({"bomb.csv": "id,question\n" + "".join(f"{n},{'x' * 500}\n" for n in range(5_000))}, "bomb.zip"),
    ],
    ids=lambda file: file.name,
)
def test_decoded_data_is_counted_while_a_table_is_read(file):
    """A Parquet file of a few kilobytes decodes to 450 MB of short texts; only the first 2 MiB are read."""
    tracemalloc.start()
    reading = read_items(file, limits=Limits(decoded_bytes=2**21))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (error,) = list_messages(reading.errors)
    assert re.search(r"bomb\.\w+ has more than 2 MiB of data once decoded \(by row [\d,]+\); split it", error)
    assert len(reading.items) < 35_000
    assert peak < 80 * 2**20


def test_values_without_a_text_are_counted_by_the_header_of_a_parquet_file():
    table = pyarrow.table({"id": ["a"], "question": ["Q"], "many": [[0] * 100_000]})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    assert len(buffer.getvalue()) < 10_000
    reading = read_items(build_upload(buffer.getvalue(), "a.parquet"), limits=Limits(decoded_bytes=500_000))
    assert list_messages(reading.errors) == ["file: the table has more than 0 MiB of data once decoded"]


def test_a_single_row_that_expands_to_gigabytes_is_refused():
    assert "a row has more than" in str(
        read_items(build_upload(write_repeated_text("x" * 400_000, 5000, listed=True), "a.parquet")).errors[0]
    )


def test_a_repeated_text_of_a_normal_length_is_read():
    reading = read_items(build_upload(write_repeated_text("How many?", 1000), "a.parquet"))
    assert reading.ok
    assert {item.input for item in reading.items} == {"How many?"}
