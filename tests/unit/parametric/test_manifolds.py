"""The values of one parameter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from datasets_app.parametric.manifolds import GridAxis, ManifoldAxis, Resample, Window

EXAMPLE = {
    "range": [8, 16, 24, 32, 40, 48],
    "window": {"skip": "degree", "body": 4},
    "resample:corner": {"first": 1, "last": 1},
}


@pytest.mark.parametrize(
    ("degree", "density", "values"),
    [
        (0, "normal", [8, 16, 24, 32]),
        (1, "normal", [16, 24, 32, 40]),
        (2, "normal", [24, 32, 40, 48]),
        (0, "corner", [8, 32]),
        (1, "corner", [16, 40]),
        (1, "lowdef", [16, 24, 32, 40]),
        (5, "normal", [48]),
        (6, "normal", []),
    ],
)
def test_the_example_gives_the_published_values(degree, density, values):
    assert ManifoldAxis.model_validate(EXAMPLE).resolve(degree, density) == values


@given(
    st.lists(st.integers(), max_size=12), st.integers(0, 5), st.integers(0, 5), st.none() | st.integers(0, 8),
    st.integers(0, 6),
)  # fmt: skip
def test_a_window_is_the_head_and_the_body_after_skipped_values(values, head, skip, body, degree):
    window = {"head": head, "skip": skip} | ({} if body is None else {"body": body})
    values_taken = Window.model_validate(window).take(values, degree)
    remaining = values[head:][skip:]
    assert values_taken == values[:head] + (remaining if body is None else remaining[:body])


def test_each_part_of_a_window_can_refer_to_the_degree():
    values = list(range(10))
    assert Window(head="degree", skip=0, body=0).take(values, 3) == [0, 1, 2]
    assert Window(head=1, skip="degree", body="degree").take(values, 2) == [0, 3, 4]


def test_a_sample_takes_each_value_once():
    assert Resample(first=2, last=2).take([1, 2, 3]) == [1, 2, 3]
    assert Resample(first=1, last=2).take([1, 2, 3, 4, 5]) == [1, 4, 5]
    assert Resample(first=1).take([1, 2, 3]) == [1]
    assert Resample(last=1).take([1, 2, 3]) == [3]


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (3, [3]),
        ("ON_OFF", ["ON_OFF"]),
        (True, [True]),
        ([8, 16, 8], [8, 16]),
        ([1, True, 1.0], [1, True, 1.0]),
        ({"range": [1, 2]}, [1, 2]),
        ({"from": 8, "to": 48, "step": 20}, [8, 28, 48]),
        ({"from": 1, "to": 3}, [1, 2, 3]),
        ({"from": 8, "to": 47, "step": 20}, [8, 28]),
        ({"from": 0.1, "to": 0.3, "step": 0.1}, [0.1, 0.2, 0.3]),
    ],
)
def test_a_parameter_is_a_value_a_list_or_a_range(content, values):
    result = GridAxis.model_validate(content).resolve(0, "normal")
    assert [(type(value), value) for value in result] == [(type(value), value) for value in values]
    assert ManifoldAxis.model_validate(content).resolve(3, "corner") == result


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"from": 8}, "lacks to"),
        ({"from": 9, "to": 8}, "runs upwards"),
        ({"from": 1, "to": 9, "step": 0}, "runs upwards"),
        ({"from": 1, "to": 10**9}, "at most 1000 values"),
        ({"from": "a", "to": 8}, "are numbers"),
        ([], "at least 1 item"),
        ([[1]], "a value is a number, a text, or true or false"),
        (None, "a value is a number"),
    ],
)
def test_an_invalid_parameter_is_refused(content, message):
    with pytest.raises(ValidationError, match=message):
        GridAxis.model_validate(content)


def test_an_empty_sample_or_window_is_refused():
    with pytest.raises(ValidationError, match="first or last"):
        Resample(first=0, last=0)
    with pytest.raises(ValidationError, match="at least one of head, skip and body"):
        Window.model_validate({})
