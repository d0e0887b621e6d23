"""A small file causes little work: limits are checked first, and no comparison is quadratic."""

import time

import pytest

from datasets_app.importing import FileError, Limits, archives, read_columns, read_items
from datasets_app.importing.archives import ImageFinder, NotFound
from datasets_app.importing.column_map import BoundMapping
from datasets_app.importing.records import NoValue
from tests.factories.files import build_upload, list_messages


class Names:
    def __init__(self, names):
        self._names = names

    def names(self):
        return self._names

    def read(self, name):
        raise AssertionError("nothing is read")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("wide.csv", ",".join(f"c{n}" for n in range(40_000)) + "\n"),
        ("wide.json", "[{" + ",".join(f'"c{n}": 1' for n in range(40_000)) + "}]"),
        ("wide.jsonl", "{" + ",".join(f'"c{n}": 1' for n in range(40_000)) + "}\n"),
    ],
)
def test_a_table_of_40000_columns_is_refused_before_its_columns_are_looked_at(name, content):
    started = time.process_time()
    with pytest.raises(FileError, match=r"the table has [\d,]+ columns; at most 500 are read"):
        read_columns(build_upload(content, name))
    assert time.process_time() - started < 5


def test_many_unnamed_columns_are_counted_too():
    with pytest.raises(FileError, match="the table has 501 columns"):
        read_columns(build_upload("a" + "," * 500 + "\n1\n"))


def test_a_column_s_name_is_bounded():
    with pytest.raises(FileError, match="the name of column 2 has 501 characters; at most 500"):
        read_columns(build_upload("a," + "b" * 501 + "\n1,2\n"))


def test_similar_names_are_suggested_only_for_the_first_missing_images(monkeypatch):
    compared = []

    def get_close_matches(word, candidates, **how):
        compared.append(len(list(candidates)))
        return []

    monkeypatch.setattr("evalsite.lib.text.names.get_close_matches", get_close_matches)
    finder = ImageFinder(Names([f"folder/image{n:05}.png" for n in range(5_000)]), hints=20)
    for number in range(1_000):
        with pytest.raises(NotFound, match="is not among the 5000 images"):
            finder.find(f"missing{number:05}.png")
    assert len(compared) == 20
    assert max(compared) <= archives.COMPARED


def test_an_image_is_found_by_its_path_without_a_search():
    finder = ImageFinder(Names([f"a/{n}.png" for n in range(10)]))
    assert finder.find("a/7.png") == "a/7.png"
    assert isinstance(finder.names, frozenset)


def test_a_template_stops_as_soon_as_it_is_longer_than_a_field_may_be():
    read_names = []

    class Row(dict):
        def get(self, name, default=None):
            read_names.append(name)
            return super().get(name, default)

    bound = BoundMapping({"input": "{text}" * 300, "key": "+".join(["text"] * 300)}, ["text"])
    for field in ("input", "key"):
        read_names.clear()
        with pytest.raises(NoValue, match="has more than 200,000 characters"):
            bound.evaluate(field, Row(text="x" * 150_000))
        assert len(read_names) == 2


def test_a_template_is_filled_as_before():
    bound = BoundMapping({"input": "a{x}b{x|after:#}{y}c"}, ["x", "y"])
    assert bound.evaluate("input", {"x": "1#2", "y": "3"}) == "a1#2b23c"


@pytest.mark.parametrize("name", ["long.csv", "long.jsonl"])
def test_a_line_is_read_no_further_than_the_limit(name):
    reading = read_items(build_upload("id,question\n" if name.endswith("csv") else "", name=name), limits=Limits())
    assert not reading.ok
    content = "id,question\na," + "x" * 5_000 + "\n" if name.endswith("csv") else '{"id": "' + "x" * 5_000 + '"}\n'
    (error,) = list_messages(read_items(build_upload(content, name), limits=Limits(line_chars=1_000)).errors)
    assert "is longer than 1,000 characters" in error


def test_text_that_cannot_be_stored_is_an_error_of_its_row_in_every_format():
    lines = '{"id": "a", "q": "fine"}\n{"id": "b", "q": "half \\ud800"}\n{"id": "c", "q": "\\u0000"}\n'
    for name, content in (
        ("a.jsonl", lines),
        ("a.json", "[" + ",".join(lines.splitlines()) + "]"),
    ):
        reading = read_items(build_upload(content, name), mapping={"key": "id", "input": "q"})
        assert [(error.row, error.field) for error in reading.errors] == [(2, "q"), (3, "q")]
        columns, rows, _ = read_columns(build_upload(content, name))
        assert (columns, rows) == (["id", "q"], [["a", "fine"]])
    reading = read_items(build_upload("id,q\na,fine\nb,no\x00ne\n"), mapping={"key": "id", "input": "q"})
    assert list_messages(reading.errors) == ["row 2 (line 3), q: contains a NUL character"]


@pytest.mark.parametrize("name", ["\\ud800", "\\u0000"])
def test_a_column_s_name_that_cannot_be_stored_is_refused(name):
    with pytest.raises(FileError, match="the name of column 2"):
        read_columns(build_upload(f'{{"id": "a", "{name}": "x"}}\n', "a.jsonl"))
