"""Two texts side by side: nothing is lost, and what is marked differs."""

from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.text.diff import side_by_side

TEXTS = st.text(alphabet="ab \n{}<", max_size=60)


def joined(side):
    return ["".join(piece.text for piece in pieces) for pieces in side if pieces is not None]


@given(TEXTS, TEXTS)
def test_each_side_is_the_text_that_it_came_from(before, after):
    rows = side_by_side(before, after)
    assert joined(row.before for row in rows) == before.splitlines()
    assert joined(row.after for row in rows) == after.splitlines()


@given(TEXTS)
def test_a_text_beside_itself_differs_nowhere(text):
    assert not any(row.differs for row in side_by_side(text, text))


def test_a_changed_word_is_marked_and_its_line_stands_beside_the_old_one():
    (row,) = side_by_side("Be fair to all.", "Be strict to all.")
    assert [piece.text for piece in row.before if piece.differs] == ["fair"]
    assert [piece.text for piece in row.after if piece.differs] == ["strict"]


def test_a_new_line_has_nothing_beside_it():
    first, second = side_by_side("one", "one\ntwo")
    assert not first.differs
    assert (second.before, [piece.text for piece in second.after]) == (None, ["two"])
