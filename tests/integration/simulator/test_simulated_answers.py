"""Simulated answers are deterministic, on the scale, and as accurate as the model's skill."""

import json
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.simulator.known_answers import AnswerKey
from runs_app.simulator.model_behaviour import Answerer, PromptScale, find_choices, find_scale
from runs_app.simulator.request_parser import ChatRequest, read_chat
from tests.integration.simulator.http_client import IMAGE, IMAGE_SHA, make_question

RATE = 'Rate the {dimension} of the image. Answer with JSON alone: {{"rating": N}}, an integer from {low} to {high}.'


def make_request(text: str, model: str = "sim/a", **more: Any) -> ChatRequest:
    return read_chat(json.dumps(make_question(text, model, **more)).encode())


def make_answerer(seed: int = 0, rows: tuple[dict[str, Any], ...] = (), **skills: float) -> Answerer:
    key = AnswerKey()
    for row in rows:
        key.add(row)
    return Answerer(seed, {name.replace("_", "/"): skill for name, skill in skills.items()}, key)


def make_rating_schema(**bounds: object) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"rating": {"type": "integer", **bounds}}, "required": ["rating"]}
    return {"type": "json_schema", "json_schema": {"name": "rating", "strict": True, "schema": schema}}


def rate_image(provider: Answerer, model: str, image: bytes, salt: int = 0, dimension: str = "valence") -> int:
    text = RATE.format(dimension=dimension, low=1, high=7) + f"\n\n[{salt:010x}]"
    return json.loads(provider.answer(make_request(text, model, image=image)).content)["rating"]


@given(st.text(max_size=200), st.text(min_size=1, max_size=20), st.integers(), st.integers(0, 2**31))
def test_the_same_request_gets_the_same_answer(text: str, model: str, server_seed: int, seed: int) -> None:
    chat_request = make_request(text, model, seed=seed)
    assert make_answerer(server_seed).answer(chat_request) == make_answerer(server_seed).answer(chat_request)


@given(st.integers(-5, 5), st.integers(1, 100), st.text(max_size=80), st.booleans())
def test_a_rating_is_on_the_scale_of_the_schema(low: int, width: int, text: str, is_enumerated: bool) -> None:
    high = low + width
    points: dict[str, object] = {"enum": list(range(low, high + 1))}
    chat_request = make_request(
        text, response_format=make_rating_schema(**(points if is_enumerated else {"minimum": low, "maximum": high}))
    )
    rating = json.loads(make_answerer().answer(chat_request).content)["rating"]
    assert isinstance(rating, int)
    assert low <= rating <= high


@given(st.integers(0, 3), st.integers(1, 10), st.integers(0, 10**6))
def test_a_rating_is_on_the_scale_named_in_the_prompt(low: int, width: int, salt: int) -> None:
    text = RATE.format(dimension="arousal", low=low, high=low + width)
    rating = json.loads(make_answerer().answer(make_request(f"{text}\n\n[{salt:010x}]")).content)["rating"]
    assert low <= rating <= low + width


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("an integer from 1 to 7", (1, 7)),
        ("from 1 (very negative) to 9 (very positive)", (1, 9)),
        ("a number between 0 and 10", (0, 10)),
        ("on a 1-5 scale", (1, 5)),
        ("a scale of 0–100", (0, 100)),
        ("1 = not at all\n2 = a little\n3 = very much", (1, 3)),
        ("1: Very low\n4: Neutral\n7: Very high", (1, 7)),
        ("from -3 to 3", (-3, 3)),
        ("no scale here", (1, 7)),
        ("version 2.1-2.9 of 2024", (1, 7)),
    ],
)
def test_scales_are_read_from_prompt_text(text: str, scale: tuple[int, int]) -> None:
    assert find_scale(text, PromptScale(1, 7)) == PromptScale(*scale)


def test_reasoning_is_given_only_if_the_prompt_requests_it() -> None:
    without = json.loads(make_answerer().answer(make_request('Answer as {"rating": N} from 1 to 7')).content)
    reasoned = json.loads(
        make_answerer().answer(make_request('Answer as {"rating": N, "reasoning": "..."}, 1 to 7')).content
    )
    assert set(without) == {"rating"}
    assert set(reasoned) == {"rating", "reasoning"}
    assert len(reasoned["reasoning"]) > 10


def test_ratings_vary_across_images_and_correlate_between_models() -> None:
    provider = make_answerer()
    images = [f"image {number}".encode() for number in range(80)]
    one = [rate_image(provider, "sim/a", image) for image in images]
    other = [rate_image(provider, "sim/b", image) for image in images]
    assert len(set(one)) >= 5
    assert one != other
    assert 0.5 < statistics.correlation(one, other) < 0.99


def test_repetitions_vary_with_salt_or_seed_around_the_mean_of_the_image() -> None:
    provider = make_answerer()
    ratings = [rate_image(provider, "sim/a", b"one image", salt) for salt in range(60)]
    assert len(set(ratings)) >= 2
    assert statistics.stdev(ratings) < 1.5
    text = RATE.format(dimension="valence", low=1, high=100)
    seeded = {provider.answer(make_request(text, seed=seed)).content for seed in range(30)}
    assert len(seeded) > 5


def test_mean_ratings_follow_a_known_norm() -> None:
    rows = (
        {"image": IMAGE_SHA, "dimension": "valence", "mean": 6.2, "sd": 0.8},
        {"image": IMAGE_SHA, "dimension": "arousal", "mean": 1.9, "sd": 0.8},
    )
    provider = make_answerer(rows=rows)
    models = [f"sim/{number}" for number in range(40)]
    valence = statistics.mean(rate_image(provider, model, IMAGE) for model in models)
    arousal = statistics.mean(rate_image(provider, model, IMAGE, dimension="arousal") for model in models)
    assert valence == pytest.approx(6.2, abs=0.4)
    assert arousal == pytest.approx(1.9, abs=0.4)


QUESTIONS = [f"Ann has {number} apples and buys {number + 3} more. How many has she?" for number in range(600)]
TARGETS = tuple({"text": text, "target": str(2 * at + 3)} for at, text in enumerate(QUESTIONS))


@pytest.mark.parametrize("skill", [0.0, 0.3, 0.85, 1.0])
def test_the_accuracy_of_a_model_equals_its_skill(skill: float) -> None:
    provider = make_answerer(rows=TARGETS, sim_a=skill)
    right = sum(is_right(provider, "sim/a", at) for at in range(len(QUESTIONS)))
    assert right / len(QUESTIONS) == pytest.approx(skill, abs=0.07)


def is_right(provider: Answerer, model: str, at: int) -> bool:
    content = provider.answer(make_request(f"Solve this.\n\n{QUESTIONS[at]}\n\nEnd with ANSWER:", model)).content
    return content.rpartition("ANSWER: ")[2] == str(2 * at + 3)


def test_item_difficulty_is_shared_between_models() -> None:
    provider = make_answerer(rows=TARGETS, sim_a=0.6, sim_b=0.6)
    pairs = [(is_right(provider, "sim/a", at), is_right(provider, "sim/b", at)) for at in range(len(QUESTIONS))]
    agreement = sum(a == b for a, b in pairs) / len(pairs)
    assert agreement > 0.57, "two independent models of skill 0.6 agree on 0.52"


def test_a_skill_is_found_with_and_without_the_provider_prefix() -> None:
    provider = make_answerer(rows=TARGETS, gpt=1.0)
    assert all(is_right(provider, "openai/gpt", at) for at in range(30))


@pytest.mark.parametrize("options", ["A) {}\nB) {}\nC) {}", "(A) {}\n(B) {}\n(C) {}", "A. {}\nB. {}\nC. {}"])
def test_a_multiple_choice_answer_ends_with_one_of_the_letters(options: str) -> None:
    lines = options.format("Oslo", "Bern", "Rome")
    content = make_answerer().answer(make_request(f"Which is the capital of Italy?\n{lines}")).content
    assert content.splitlines()[-1] in {"ANSWER: A", "ANSWER: B", "ANSWER: C"}
    assert find_choices(lines) == {"A": "Oslo", "B": "Bern", "C": "Rome"}


@pytest.mark.parametrize(("skill", "letters"), [(1.0, {"C"}), (0.0, {"A", "B"})])
def test_the_target_of_a_multiple_choice_question_can_be_the_text_of_an_option(skill: float, letters: set[str]) -> None:
    provider = make_answerer(rows=({"text": "capital of Italy", "target": "rome"},), sim_a=skill)
    for salt in range(20):
        chat_request = make_request(f"Which is the capital of Italy?\nA) Oslo\nB) Bern\nC) Rome\n\n[{salt:010x}]")
        assert provider.answer(chat_request).content.rpartition("ANSWER: ")[2] in letters


JUDGE = """Grade the answer on a scale from 0 to 10.
End with a fenced JSON block {{"score": number, "reasoning": text}}.

Reference answer: {reference}

Answer of the student:
It must be so.
ANSWER: {answer}"""


def test_a_judge_ends_with_a_fenced_block_and_scores_matching_answers_higher() -> None:
    def score_answer(answer: str, number: int) -> int:
        text = JUDGE.format(reference="42", answer=answer) + f"\n\nCase {number}"
        content = make_answerer().answer(make_request(text)).content
        assert content.endswith("\n```")
        return json.loads(content.rpartition("```json\n")[2].removesuffix("```"))["score"]

    right = [score_answer("42", number) for number in range(30)]
    scores_of_wrong = [score_answer("41", number) for number in range(30)]
    assert all(0 <= value <= 10 for value in right + scores_of_wrong)
    assert statistics.mean(right) > 7.5
    assert statistics.mean(scores_of_wrong) < 2.5


def test_an_answer_fills_every_field_of_a_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "answer": {"type": "string"},
            "sure": {"type": "boolean"},
            "colour": {"type": "string", "enum": ["red", "green"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "inner": {"type": "object", "properties": {"score": {"type": "number", "minimum": 0, "maximum": 5}}},
        },
    }
    chat_request = make_request(
        "What?", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    )
    filled = json.loads(make_answerer().answer(chat_request).content)
    assert set(filled) == set(schema["properties"])
    assert filled["colour"] in {"red", "green"}
    assert isinstance(filled["sure"], bool)
    assert isinstance(filled["tags"][0], str)
    assert 0 <= filled["inner"]["score"] <= 5
