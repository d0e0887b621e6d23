import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.rating_scale import RatingScale
from runs_app.llm.rating_parser import Parsed, parse_rating, strip_thinking
from tests.factories.recordings import read_csv_rows

SEVEN = RatingScale(1, 7)
BIPOLAR = RatingScale(-3, 3)
HUNDRED = RatingScale(0, 100)


@pytest.mark.parametrize(
    ("reply", "rating", "step"),
    [
        ('{"rating": 6}', 6, "json"),
        (' {"rating": "6"} ', 6, "json"),
        ('{"Rating": 6.0}', 6, "json"),
        ('{"rating": "6/7"}', 6, "json"),
        ('```json\n{"rating": 6}\n```', 6, "json"),
        ('Here it is:\n```\n{"rating": 6}\n```\nHope it helps with 2 things.', 6, "json"),
        ('```json\n{"rating": 2}\n```\nNo, rather:\n```json\n{"rating": 6}\n```', 6, "json"),
        ('json\n{"rating": 6}\n```', 6, "braces"),
        ('I give {"rating": 6, "why": {"n": 2}} here', 6, "braces"),
        ("6", 6, "digit"),
        ("6.", 6, "digit"),
        ("I rate it 6/7.", 6, "digit"),
        ('": 6,\n    "reasoning": "3 bears"\n}\n```', 6, "digit"),
        ("On a scale from 1 to 7, this is a 6.", 6, "digit"),
        ("(1-7): **6**", 6, "digit"),
        ("[6]", 6, "digit"),
        ("In 2024, 3.5 and 1,000 and 7B and x2 and 5% are no answers, but 6 is", 6, "digit"),
    ],
)
def test_a_rating_is_found_by_the_first_step_that_matches(reply, rating, step):
    parsed = parse_rating(reply, SEVEN)
    assert (parsed.rating, parsed.step, parsed.error) == (rating, step, None)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (None, "empty"),
        ("", "empty"),
        (" \n ", "empty"),
        ("<think>it is a 5</think>", "empty"),
        ("<think>it is a 5, or", "empty"),
        ("I cannot rate this image.", "no_rating_found"),
        ('{"rating": null}', "no_rating_found"),
        ('{"rating": true}', "no_rating_found"),
        ('{"rating": [6]}', "no_rating_found"),
        ('{"rating": "high"}', "no_rating_found"),
        ('{"rating": 9, "reasoning": "2 dogs"}', "out_of_scale"),
        ('{"rating": 0}', "out_of_scale"),
        ("9", "out_of_scale"),
        ("-5", "out_of_scale"),
        ('{"rating": 3.5}', "not_an_integer"),
        ('{"rating": NaN}', "not_an_integer"),
        ('{"rating": 1e400}', "not_an_integer"),
    ],
)
def test_a_missing_rating_has_an_error_code(reply, error):
    parsed = parse_rating(reply, SEVEN)
    assert (parsed.rating, parsed.error) == (None, error)


@pytest.mark.parametrize(
    ("reply", "scale", "rating"),
    [
        ("-2", BIPOLAR, -2),
        ("−2", BIPOLAR, -2),
        ("0", BIPOLAR, 0),
        ('{"rating": -3}', BIPOLAR, -3),
        ("from -3 to 3 I say +1", BIPOLAR, 1),
        ("85", HUNDRED, 85),
        ("between 0 and 100: 40", HUNDRED, 40),
    ],
)
def test_ratings_are_read_on_any_scale(reply, scale, rating):
    assert parse_rating(reply, scale).rating == rating


def test_the_reasoning_is_read_with_the_rating():
    assert parse_rating('{"rating": 2, "reasoning": "dark"}', SEVEN) == Parsed(2, "dark", "json", None)
    assert parse_rating('{"rating": 2, "reasoning": 4}', SEVEN).reasoning is None


def test_the_reasoning_is_kept_for_a_rating_outside_the_scale():
    assert parse_rating('{"rating": 8, "reasoning": "wild"}', SEVEN) == Parsed(None, "wild", "json", "out_of_scale")


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("plain", "plain"),
        ("<think>5?</think> 6", "6"),
        ("a<think>b</think>c<THINK>d</THINK>e", "ace"),
        ("<thinking>5</thinking>\n6", "6"),
        ("thought without an opening tag</think>6", "6"),
        ("<think>the tag <think> itself</think>6", "6"),
        ("before <think> cut off", "before"),
        ("1 < 2 and <thinker> stays", "1 < 2 and <thinker> stays"),
    ],
)
def test_ratings_in_thoughts_are_ignored(text, visible):
    assert strip_thinking(text) == visible


@given(st.integers(1, 7), st.text(), st.booleans(), st.integers(0, 3))
def test_every_json_reply_gives_its_rating(rating, reasoning, fenced, indent):
    reply = json.dumps({"rating": rating, "reasoning": reasoning}, indent=indent or None)
    parsed = parse_rating(f"```json\n{reply}\n```" if fenced else reply, SEVEN)
    assert parsed.rating == rating
    if "`" not in reasoning and "<" not in reasoning:
        assert parsed == Parsed(rating, reasoning, "json", None)


@given(st.text(alphabet=st.sampled_from('0179-+.,/{}[]"`<>think :rating\n')) | st.text())
def test_any_text_gives_either_a_rating_or_an_error(text):
    parsed = parse_rating(text, SEVEN)
    assert (parsed.rating is None) == (parsed.error is not None)
    assert parsed.rating is None or parsed.rating in SEVEN
    assert parsed.rating is None or parsed.step


@pytest.mark.parametrize("piece", ["<think>", "</think>", "{", "[", "```", "1-", '{"rating":', "9" * 10, "`", "1 to "])
def test_hostile_replies_take_linear_time(piece):
    started = time.process_time()
    parse_rating(piece * (400_000 // len(piece)), SEVEN)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("model", ["gemma", "qwen"])
def test_recorded_replies_of_real_models_give_the_recorded_ratings(model):
    rows = [row for row in read_csv_rows(f"uniform40-trials-{model}.csv") if row["status"] == "done"]
    assert len(rows) == {"gemma": 1600, "qwen": 1560}[model]
    for row in rows:
        parsed = parse_rating(row["raw_response"], SEVEN)
        assert parsed.rating == int(row["rating"])
        assert (parsed.reasoning or "") == row["reasoning"]
