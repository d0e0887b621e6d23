"""A side-by-side comparison of two texts: complete, with only differences marked."""

from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.text.diff import compare_lines, compare_words

TEXTS = st.text(alphabet="ab \n{}<", max_size=60)


def join_pieces(side):
    return ["".join(piece.text for piece in pieces) for pieces in side if pieces is not None]


@given(TEXTS, TEXTS)
def test_each_side_contains_its_complete_text(before, after):
    rows = compare_lines(before, after)
    assert join_pieces(row.before for row in rows) == before.splitlines()
    assert join_pieces(row.after for row in rows) == after.splitlines()


@given(TEXTS)
def test_a_text_compared_with_itself_has_no_difference(text):
    assert not any(row.differs for row in compare_lines(text, text))


def test_a_changed_word_is_marked_and_its_line_is_beside_the_old_line():
    (row,) = compare_lines("Be fair to all.", "Be strict to all.")
    assert [piece.text for piece in row.before if piece.differs] == ["fair"]
    assert [piece.text for piece in row.after if piece.differs] == ["strict"]


def test_an_added_line_has_an_empty_side():
    first, second = compare_lines("one", "one\ntwo")
    assert not first.differs
    assert (second.before, [piece.text for piece in second.after]) == (None, ["two"])


@given(TEXTS, TEXTS)
def test_word_diff_pieces_form_both_texts(before, after):
    assert join_pieces(compare_words(before, after)) == [before, after]


def test_differing_words_are_marked_across_lines():
    before, after = compare_words("The sum is 4.\nSo 4.", "The sum is 5.\nSo 5.")
    assert [piece.text for piece in before if piece.differs] == ["4", "4"]
    assert [piece.text for piece in after if piece.differs] == ["5", "5"]


def test_texts_of_one_repeated_word_are_compared_only_by_prefix_and_suffix():
    before, after = compare_words("first " + "again " * 1000, "last " + "again " * 999)
    assert join_pieces((before, after)) == ["first " + "again " * 1000, "last " + "again " * 999]
    assert [piece.text[:6] for piece in before if piece.differs] == ["first "]
