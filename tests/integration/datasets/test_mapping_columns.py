"""Columns to fields: guesses, lists, templates, and messages that name the field."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_app.importing import FileError, guess_mapping, parse_mapping, read_items
from datasets_app.importing.column_map import BoundMapping
from tests.factories.files import build_upload, list_messages


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["id", "question", "answer"], {"key": "id", "input": "question", "target": "answer"}),
        (["Image ID", "File", "Theme"], {"key": "Image ID", "image": "File", "category": "Theme"}),
        (["text", "label", "options"], {"input": "text", "target": "label", "choices": "options"}),
        (["prompt", "ground_truth"], {"input": "prompt", "target": "ground_truth"}),
        (["a", "b"], {}),
        (["key", "input", "Valence_mean", "Valence_SD"], {"key": "key", "input": "input", "dims": "valence"}),
    ],
)
def test_common_names_are_guessed(columns, expected):
    assert guess_mapping(columns) == expected


def test_columns_joined_make_a_key():
    reading = read_items(build_upload("subject,n,text\nmath,1,Q\nmath,2,R\n"), mapping={"key": "subject+n"})
    assert [item.key for item in reading.items] == ["math:1", "math:2"]


def test_columns_joined_make_the_choices():
    reading = read_items(build_upload("id,text,a,b,c\nx,Q,one,two,\n"), mapping={"choices": "a+b+c"})
    assert reading.items[0].choices == ("one", "two")


def test_a_template_may_use_the_text_after_the_last_marker():
    table = build_upload('id,text,answer\nx,Q,"1 + 1 #### no #### 2 "\n')
    reading = read_items(table, mapping={"target": "{answer|after:####}", "input": "Q: {text} ({id})"})
    assert (reading.items[0].target, reading.items[0].input) == ("2", "Q: Q (x)")


def test_a_missing_marker_is_an_error_of_its_row():
    reading = read_items(build_upload("id,text,answer\nx,Q,2\n"), mapping={"target": "{answer|after:####}"})
    assert list_messages(reading.errors) == ["row 1 (line 2), target: '####' does not occur in column answer"]


def test_the_text_of_a_cell_is_never_a_template():
    reading = read_items(build_upload("id,text\nx,{id} {id.__class__} {0}\n"), mapping={"input": "{text}!"})
    assert reading.items[0].input == "{id} {id.__class__} {0}!"


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"kee": "id"}, "mapping: map kee: unknown field; the fields are key, input"),
        ({"key": "idd"}, "mapping: map key: no column 'idd'; did you mean 'id'?"),
        ({"key": "id+nope"}, "mapping: map key: no column 'nope'"),
        ({"input": "{nope}"}, "mapping: map input: no column 'nope'"),
        ({"input": "{text|upper}"}, "mapping: map input: write {column}"),
        ({"input": "{text} {"}, "mapping: map input: write {column}"),
        ({"dims": "fear"}, "mapping: map dims: no column fear_mean"),
        ({"metadata": "id+zzz"}, "mapping: map metadata: no column 'zzz'"),
    ],
)
def test_an_invalid_mapping_is_refused_with_the_field(mapping, message):
    errors = list_messages(read_items(build_upload("id,text\nx,Q\n"), mapping=mapping).errors)
    assert len(errors) == 1
    assert errors[0].startswith(message)


def test_the_command_lines_pairs_are_parsed():
    assert parse_mapping(["key=id", "target={a|after:=}"]) == {"key": "id", "target": "{a|after:=}"}
    for mapping in (["key"], ["key=a", "key=b"], ["nope=a"]):
        with pytest.raises(FileError):
            parse_mapping(mapping)


def test_a_field_with_an_empty_mapping_stays_empty():
    item = read_items(build_upload("id,text,label\nx,Q,L\n"), mapping={"target": ""}).items[0]
    assert (item.target, item.metadata) == ("", {"label": "L"})


def test_a_partly_used_column_stays_complete_in_the_metadata():
    table = "id,question,answer\na,Q,Because. #### 7\n"
    item = read_items(build_upload(table), mapping={"target": "{answer|after:####}"}).items[0]
    assert (item.target, item.metadata) == ("7", {"answer": "Because. #### 7"})
    mapped_item = read_items(build_upload(table), mapping={"target": "The answer: {answer}"}).items[0]
    assert mapped_item.metadata == {}, "a template holds all of the column"


def test_other_columns_become_metadata_unless_some_are_named():
    table = "id,text,source,page\nx,Q,book,7\n"
    assert read_items(build_upload(table)).items[0].metadata == {"source": "book", "page": "7"}
    assert read_items(build_upload(table), mapping={"metadata": "page"}).items[0].metadata == {"page": "7"}
    assert read_items(build_upload(table), mapping={"metadata": ""}).items[0].metadata == {}


def test_rows_are_numbered_without_a_column_of_keys():
    reading = read_items(build_upload("text\nQ\nR\n"))
    assert [item.key for item in reading.items] == ["row-00001", "row-00002"]
    assert "no column contains keys" in str(reading.warnings[0])


def test_a_name_with_a_plus_in_it_is_a_column_first():
    assert read_items(build_upload("a+b,text\nx,Q\n"), mapping={"key": "a+b"}).items[0].key == "x"


NAMES = st.text(string.ascii_letters + string.digits + "_ ", min_size=1, max_size=8).map(str.strip).filter(bool)


@given(st.dictionaries(NAMES, st.text(max_size=20), min_size=1, max_size=5), st.data())
def test_a_template_of_all_columns_is_the_texts_in_order(row, data):
    columns = list(row)
    order = data.draw(st.permutations(columns))
    bound = BoundMapping({"input": "|".join(f"{{{name}}}" for name in order)}, columns)
    assert bound.evaluate("input", row) == "|".join(row[name] for name in order)
    assert bound.metadata == []
