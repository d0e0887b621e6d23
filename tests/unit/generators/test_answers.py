"""Extraction of a final answer from a model's text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_app.generators.answer_rules import (
    INTEGER,
    LETTER,
    extract_final_answer,
    format_options,
    list_letters,
    normalize_integer,
)
from datasets_app.generators.registry import load_generators

SEED_ANSWER = (
    "(A) **Dark Phoenix**: A superhero film\n(C) **Hacksaw Ridge**: A historical drama\n\n"
    "Given the preference for historical dramas, the most similar film to the group would be:\n\n"
    "(C) **Hacksaw Ridge**\n\nFinal Answer: (C) Hacksaw Ridge"
)


def test_the_published_answer_is_read_as_recorded():
    reading = LETTER.read(SEED_ANSWER, ("(A)", "(B)", "(C)"))
    assert (reading.normalised, reading.extracted, reading.valid) == ("(C) Hacksaw Ridge", "(C)", True)
    assert LETTER.is_correct(reading, "(C)")


@pytest.mark.parametrize(
    ("text", "extracted"),
    [
        ("Final Answer: 42", "42"),
        ("**Final Answer:** 42 apples", "42"),
        ("final answer: 1,234", "1234"),
        ("Final Answer: −7", "-7"),
        ("Final Answer: $\\boxed{12}$", "12"),
        ("Final Answer:\n\n42.", "42"),
        ("Final Answer: 1\nNo, wait.\nFinal Answer: 2", "2"),
        ("I think so.\n42", "42"),
        ("Final Answer: 3 + 4 = 7", "7"),
        ("Final Answer: 3 - 10 = -7.", "-7"),
        ("Final Answer: 5 apples = lots", "5"),
        ("3 + 4 = 7", "7"),
        ("Final Answer: 12.5", None),
        ("Final Answer: x = 12.5", None),
        ("Final Answer: none", None),
        ("There are 42 of them", None),
        ("", None),
    ],
)
def test_an_integer_answer_is_the_result_or_the_first_integer(text, extracted):
    assert INTEGER.read(text).extracted == extracted


@pytest.mark.parametrize(
    ("text", "extracted"),
    [
        ("Final Answer: (B)", "(B)"),
        ("Final Answer: b", None),
        ("Final Answer: B", "(B)"),
        ("Final Answer: **(b)** the second", "(B)"),
        ("Final Answer: B) second", "(B)"),
        ("Final Answer: A good film", None),
    ],
)
def test_a_letter_is_read_with_or_without_parentheses(text, extracted):
    assert LETTER.read(text).extracted == extracted


def test_an_answer_outside_the_choices_is_read_but_not_valid():
    reading = LETTER.read("Final Answer: (D)", ("(A)", "(B)"))
    assert (reading.extracted, reading.valid) == ("(D)", False)
    assert not LETTER.is_correct(reading, "(D)")


@given(st.integers(-(10**30), 10**30))
def test_every_integer_is_read_with_and_without_separators(number):
    assert normalize_integer(f"{number:,}") == normalize_integer(str(number)) == str(number)
    assert INTEGER.read(f"Final Answer: {number:,}").extracted == str(number)


@pytest.mark.parametrize("name", load_generators())
@given(text=st.text(max_size=200))
def test_any_text_is_read_without_an_error(name, text):
    for written in (text, f"Final Answer: {text}"):
        reading = load_generators()[name].answer.read(written)
        assert reading.valid == (reading.extracted is not None)


@pytest.mark.parametrize("name", load_generators())
def test_a_hostile_text_is_read_as_any_other(name):
    """A pattern that looks back at each character would not end within the hour."""
    for text in (
        "(" * 200_000,
        "Final Answer: " + "= " * 100_000,
        "Final Answer: " * 20_000,
        "Final Answer: " + "1," * 100_000,
        " \n" * 100_000,
    ):
        reading = load_generators()[name].answer.read(text)
        assert reading.valid == (reading.extracted is not None)


def test_the_final_answer_is_the_line_after_the_last_mark():
    assert extract_final_answer("Final Answer: a\nFinal Answer: **b**\nmore") == ("b", True)
    assert extract_final_answer("one\ntwo\n") == ("two", False)


def test_options_are_lettered_up_to_z():
    assert format_options(["x", "y"]) == "Options:\n(A) x\n(B) y"
    assert list_letters(26)[-1] == "(Z)"
    with pytest.raises(ValueError, match="2 to 26"):
        list_letters(27)
