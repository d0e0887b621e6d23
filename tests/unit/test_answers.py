import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.scorers.answer_extraction import (
    find_chosen_letter,
    find_final_part,
    find_last_number,
    find_target_letter,
)

FILMS = ("Dark Phoenix", "The Incredible Hulk", "Hacksaw Ridge")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("just this", "just this"),
        ("thinking\nANSWER: 42\n", "42"),
        ("ANSWER: 1\nno\nANSWER: 2", "2"),
        ("**Answer:** `blue`\nThank you.", "blue"),
        ("**ANSWER**: blue", "blue"),
        ("ANSWER:\n\n42", "42"),
        ("Final Answer: (C) Hacksaw Ridge", "(C) Hacksaw Ridge"),
        ("<think>ANSWER: 1</think>two", "two"),
        ("ANSWER:", ""),
        ("the answers: many", "the answers: many"),
    ],
)
def test_the_final_part_follows_the_last_answer_line(text, part):
    assert find_final_part(text) == part


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("18", 18),
        ("A: 1,234,567.50", 1234567.5),
        ("$1,234", 1234),
        ("-$5.25", -5.25),
        ("$-5", -5),
        ("50%", 50),
        ("It is -3", -3),
        ("−3", -3),
        ("7 - 3", 3),
        ("7-3", 3),
        (".5", 0.5),
        ("so ...18", 18),
        ("18.", 18),
        ("18, 19,", 19),
        ("1,2,3", 3),
        ("3,5", 3.5),
        ("-0,125 kg", -0.125),
        ("12,50 €", 12.5),
        ("1.234,5", 1234.5),
        ("1.234.567,89 insgesamt", 1234567.89),
        ("1.5, 2.5,3.5", 3.5),
        ("1,234.5,6", 6),
        ("1e3", 1000),
        ("1.5E-2", 0.015),
        ("3/4", 0.75),
        ("1 1/2", 1.5),
        (r"\boxed{\frac{3}{4}}", 0.75),
        (r"2\dfrac{1}{2}", 2.5),
        ("-1/2", -0.5),
        ("1{,}000", 1000),
        ("2*9=<<2*9=18>>18", 18),
        ("18kg of H2O", 18),
        ("on 1/2/2024", None),
        ("5 on 1/2/2024", 5),
        ("4/0", None),
        ("1e999", None),
        ("none", None),
        ("x2", None),
        ("9" * 400, None),
    ],
)
def test_the_last_number_of_a_text_is_found(text, number):
    result = find_last_number(text)
    assert (result and result[0]) == (number if number is None else pytest.approx(number))


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12), st.booleans())
def test_every_number_written_is_read_back(number, separated):
    written = f"{number:,.6f}" if separated else repr(number)
    assert find_last_number(f"first 7, then {written}")[0] == pytest.approx(number, rel=1e-9, abs=1e-6)


@given(st.text(alphabet="0123456789,./-+ $eE%{}frac\\"))
def test_no_text_makes_number_extraction_fail(text):
    result = find_last_number(text)
    assert result is None or (isinstance(result[0], float) and result[1] != "")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("(B)", "B"),
        ("b.", "B"),
        ("Hacksaw Ridge", "C"),
        ("hacksaw ridge.", "C"),
        ("D", None),
        ("Ridge", None),
    ],
)
def test_a_target_is_a_letter_or_the_text_of_a_choice(text, letter):
    assert find_target_letter(text, FILMS) == letter


def test_the_text_of_a_choice_takes_precedence_over_its_letter():
    assert find_target_letter("A", ("B", "A")) == "B"


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("C", "C"),
        ("c", "C"),
        ("**C**", "C"),
        ("(C) Hacksaw Ridge", "C"),
        ("C) because A) and B) fail", "C"),
        ("hacksaw ridge", "C"),
        ("I considered (A) and (B).\nANSWER: C", "C"),
        ("Final Answer: (C) Hacksaw Ridge", "C"),
        ("Of A, B and C, the correct answer is **B**.", "B"),
        ("A. Jones is wrong: the answer is C.", "C"),
        ("Tempting is (A). I take (B).", "B"),
        (r"so \boxed{B}", "B"),
        ("I think A film like that is B", "B"),
        ("It's a wonderful film", None),
        ("I do not know", None),
        ("ANSWER: E", None),
        ("", None),
    ],
)
def test_the_chosen_letter_of_an_answer_is_found(text, letter):
    assert find_chosen_letter(text, FILMS) == letter


def test_any_letter_is_accepted_without_choices():
    assert find_chosen_letter("ANSWER: H", ()) == "H"


@given(st.sampled_from("ABC"), st.sampled_from(["{}", "({})", "ANSWER: {}", "**{}**", "The answer is {}.", "{}) yes"]))
def test_a_chosen_letter_is_read_in_every_common_form(letter, form):
    assert find_chosen_letter(form.format(letter), FILMS) == letter


@pytest.mark.parametrize(
    "piece", ["1,", "1/", "1 ", "A ", "(A", "answer", "answer is ", "answer:", "\\frac{1}", "-", " "]
)
def test_hostile_answers_take_linear_time(piece):
    text = piece * (300_000 // len(piece))
    started = time.process_time()
    find_last_number(text)
    find_chosen_letter(text, FILMS)
    assert time.process_time() - started < 3
