"""Lines of a snapshot: long texts are fine, much else is not, and no line takes long to measure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.publish.export import snapshot_check
from grading_app.publish.export.snapshot_check import TEXT, check_line

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_the_texts_of_a_line_are_found_exactly(value):
    def list_texts(value):
        if isinstance(value, str):
            yield value
        parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
        for part in parts:
            yield from list_texts(part)

    line = json.dumps(value).encode()
    found = [json.loads(match[0]) for match in TEXT.finditer(line)]
    assert sorted(found) == sorted(list_texts(value))


def test_a_long_text_passes_and_as_many_brackets_do_not(monkeypatch):
    monkeypatch.setattr(snapshot_check, "MAX_MARKUP", 1000)
    check_line(json.dumps({"answer": '"\\' * 100_000}).encode())
    check_line(b"[" * 999)
    for line in (b"[" * 1001, b'["",' * 600, b'"' + b"a" * 5000 + b'"' + b"[" * 1001):
        with pytest.raises(ValueError, match="besides its texts"):
            check_line(line)


def test_quotes_that_never_close_are_one_text():
    """Each of them tried again, to the end of a line of 64 MiB, would take days."""
    assert len(list(TEXT.finditer(b'"' + b'\\"' * 1000))) == 1
    assert len(list(TEXT.finditer(b'["a", "' + b'\\"' * 1000 + b"\\"))) == 2
