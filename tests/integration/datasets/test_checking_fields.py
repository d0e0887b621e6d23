"""Errors of cells name the row, the field and the remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_app.content_hash import hash_contents
from datasets_app.importing import ItemRecord, Limits, read_items
from tests.factories.files import build_upload, list_messages


def list_errors(text: str, **how) -> list[str]:
    return list_messages(read_items(build_upload(text, how.pop("name", "items.csv")), **how).errors)


def test_an_empty_key_and_an_empty_row_are_errors():
    assert list_errors("id,text,x\n ,Q,1\nb,,1\n") == [
        "row 1 (line 2), key: is empty",
        "row 2 (line 3), input: neither an input nor an image",
    ]


def test_a_key_is_one_line_without_blanks_around_it():
    reading = read_items(build_upload('id,text\n" a ",Q\n"b\nc",R\n'))
    assert list_messages(reading.warnings) == ["row 1 (line 2), key: ' a ' is read as 'a'"]
    assert "line break" in str(reading.errors[0])


def test_keys_that_look_the_same_are_the_same():
    assert "is the key of row 1" in list_errors("id,text\nCafe\u0301,Q\nCaf\u00e9,R\n")[0]


@pytest.mark.parametrize("written", ['["x", "y"]', "x|y", "x | y"])
def test_choices_are_written_as_a_json_list_or_with_bars(written):
    cell = '"' + written.replace('"', '""') + '"'
    assert read_items(build_upload(f"id,text,choices\na,Q,{cell}\n")).items[0].choices == ("x", "y")


@pytest.mark.parametrize("written", ["x, y", "[x, y]", '["x"]', "x||y", "7"])
def test_choices_that_are_not_a_list_are_errors(written):
    cell = '"' + written.replace('"', '""') + '"'
    errors = list_errors(f"id,text,choices\na,Q,{cell}\n")
    assert len(errors) == 1
    assert errors[0].startswith("row 1 (line 2), choices:")


def test_choices_in_the_shape_of_published_sets():
    line = '{"id": "a", "question": "Q", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answer": "B"}'
    assert read_items(build_upload(line, "a.jsonl")).items[0].choices == ("x", "y")


@pytest.mark.parametrize(
    ("target", "warned"), [("A", False), ("b", False), ("y", False), ("1", False), ("C", True), ("z", True)]
)
def test_a_target_outside_the_choices_is_a_warning(target, warned):
    reading = read_items(build_upload(f"id,text,choices,answer\na,Q,x|y,{target}\n"))
    assert reading.ok
    assert bool(reading.warnings) is warned


def test_texts_that_the_database_cannot_store_are_errors():
    lines = (
        '{"id": "a", "text": "x\\u0000"}\n{"id": "b", "text": "\\ud800"}\n{"id": "c", "text": "Q", "m": ["\\u0000"]}\n'
    )
    assert list_errors(lines, name="a.jsonl") == [
        "row 1 (line 1), text: contains a NUL character",
        "row 2 (line 2), text: is not Unicode text at character 1",
        "row 3 (line 3), m: contains a NUL character",
    ]


def test_texts_that_are_too_long_are_errors():
    small = Limits(text_chars=40, key_chars=5, category_chars=4, metadata_chars=20)
    text = "id,text,category,m\ntoolongkey,Q,A,\nb,Q,Animals,\nc,Q,A," + "m" * 30 + "\n"
    assert [error.split(":")[0] for error in list_errors(text, limits=small)] == [
        "row 1 (line 2), key",
        "row 2 (line 3), category",
        "row 3 (line 4), metadata",
    ]


def make_item(key: str, **fields) -> dict:
    return ItemRecord(key=key, **fields).content()


def test_the_hash_of_a_set_does_not_depend_on_its_order():
    one, two = make_item("a", input="Q"), make_item("b", input="R")
    assert hash_contents([one, two]) == hash_contents([two, one])


@pytest.mark.parametrize(
    "changed",
    [
        dict(key="z"),
        dict(input="q"),
        dict(target="1"),
        dict(choices=("x", "y")),
        dict(grading_scheme="g"),
        dict(category="c"),
        dict(metadata={"a": 1}),
    ],
)
def test_every_field_is_part_of_the_hash(changed):
    assert hash_contents([make_item(**({"key": "a", "input": "Q"} | changed))]) != hash_contents(
        [make_item("a", input="Q")]
    )


@pytest.mark.slow
@given(st.dictionaries(st.text("abc", max_size=3), st.integers() | st.text(max_size=4)))
def test_the_order_of_metadata_does_not_change_the_hash(metadata):
    backwards = dict(reversed(metadata.items()))
    assert hash_contents([make_item("a", metadata=metadata)]) == hash_contents([make_item("a", metadata=backwards)])
