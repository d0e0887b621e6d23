"""The ceiling counts rendered requests with the model's own tokenizer and names the counting rules."""

import sys
from decimal import Decimal

import pytest
from django.core.cache import cache

from datasets_app.models import Asset
from runs_app.planning import token_bounds
from runs_app.planning.cost_estimate import estimate
from runs_app.pricing import token_counter, tokens
from tests.factories.drafts import (
    make_draft_dimension,
    make_draft_experiment,
    make_question_prompt,
    make_questions,
    make_rehearsal_model,
)

pytestmark = pytest.mark.django_db
BARE = [{"role": "user", "content": "{{input}}"}]
DENSE = "7 {} [] 8 () ; 9 ! " * 12  # Two tokens per three bytes.
SALT = f"\n\n[{token_bounds.SAMPLE_SALT}]"
PLAIN = "a plain English sentence about nothing " * 8


@pytest.fixture(autouse=True)
def empty_caches(monkeypatch):
    cache.clear()
    monkeypatch.setattr(token_counter, "failed_tokenizers", set())


def bound_request(model_id, inputs, *, messages=BARE, dimensions=(), **fields):
    experiment = make_draft_experiment(
        dataset=make_questions(inputs),
        models=[make_rehearsal_model(model=model_id, **fields)],
        prompts=[make_question_prompt(messages=messages)],
        dimensions=dimensions,
    )
    (model,), (prompt,) = experiment.language_models.all(), experiment.prompts.all()
    return token_bounds.bound_input_tokens(model, prompt, experiment.dataset, list(dimensions))


def count_tokens(model_id, *requests):
    """Return the largest token count of these texts as sent, counted by the tokenizer itself."""
    salted = [[f"{text}{SALT}"] for text in requests]
    return token_counter.count_largest(salted, tokens.find_text_rule(model_id))


@pytest.mark.slow
def test_the_largest_request_has_the_most_tokens_and_not_the_most_bytes():
    assert len(PLAIN) > len(DENSE)
    bound = bound_request("gpt-4o", [PLAIN, "short", DENSE])
    assert bound == count_tokens("gpt-4o", DENSE) > count_tokens("gpt-4o", PLAIN)
    assert bound > tokens.estimate_by_bytes([f"{DENSE}{SALT}"])


@pytest.mark.slow
def test_plain_text_has_fewer_tokens_than_the_estimate_from_bytes():
    assert bound_request("gpt-4o", [PLAIN]) < 0.8 * tokens.estimate_by_bytes([PLAIN])


@pytest.mark.slow
def test_the_largest_request_is_the_maximum_over_items_and_dimensions():
    dimensions = [
        make_draft_dimension("a", instructions="short"),
        make_draft_dimension("b", instructions="1 2 3 4 5 6 7 8 9"),
    ]
    messages = [{"role": "user", "content": "{{input}} {{dimension_instructions}}"}]
    inputs = ["", "x", "猫 " * 20, "word " * 30, "1 2 3 " * 10]
    most = bound_request("gpt-4o", inputs, messages=messages, dimensions=dimensions)
    assert most == count_tokens(
        "gpt-4o", *(f"{text} {dimension.instructions}" for text in inputs for dimension in dimensions)
    )


@pytest.mark.slow
def test_requests_beyond_the_tokenizer_limit_are_bounded_by_one_token_per_byte(monkeypatch):
    few = tokens.TextRule("o200k_base", "o200k_base", max_bytes=400)
    monkeypatch.setattr(tokens, "find_text_rule", lambda model: few)
    inputs = ["a plain sentence " * 20, *["9 8 7 6 5 4 3 2 1 0 " * 10] * 3]
    most = bound_request("gpt-4o", inputs)
    assert most == len(inputs[1]) + len(SALT) + 4 + 3
    assert most >= token_counter.count_largest([[text] for text in inputs], few)


@pytest.mark.slow
def test_an_approved_dataset_is_counted_once(monkeypatch):
    experiment = make_draft_experiment(models=[make_rehearsal_model(model="gpt-4o")])
    first_ceiling = estimate(experiment).ceiling_usd
    monkeypatch.setattr(token_counter, "count_largest", lambda requests, rule: pytest.fail("counted again"))
    assert estimate(experiment).ceiling_usd == first_ceiling > 0


@pytest.mark.slow
def test_without_a_working_tokenizer_bytes_are_counted_and_reported(monkeypatch):
    experiment = make_draft_experiment(models=[make_rehearsal_model(model="gpt-4o")], dataset=make_questions([PLAIN]))
    counted_ceiling = estimate(experiment).ceiling_usd
    cache.clear()
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    forecast = estimate(experiment)
    assert forecast.ceiling_usd > counted_ceiling
    assert "the tokenizer could not run" in forecast.prices[0].counted


@pytest.mark.slow
def test_each_price_names_the_rules_that_counted_the_tokens():
    image = Asset.objects.create(sha256="a" * 64, format="png", width=1000, height=1000, size=1)
    messages = [{"role": "user", "content": "{{image}}{{input}}"}]
    names = {"gpt-4o": "gpt-4o", "sonnet": "claude-sonnet-4-5", "local": "sim-large"}
    experiment = make_draft_experiment(
        dataset=make_questions(["x"], image=image),
        models=[make_rehearsal_model(name, model=model) for name, model in names.items()],
        prompts=[make_question_prompt(messages=messages)],
    )
    counted_by_model = {price.model: price.counted for price in estimate(experiment).prices}
    assert counted_by_model["gpt-4o"] == "text by o200k_base; images by OpenAI's tiles of 170 (2026-11-20)"
    assert "Claude 2's tokenizer x 1.6" in counted_by_model["sonnet"]
    assert "images by Anthropic's 1,568 patches of 28 px (2026-11-20)" in counted_by_model["sonnet"]
    assert counted_by_model["local"].startswith("estimated: 1 token per 3 bytes; images by the most expensive rule")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt-4o", "claude-opus-4-8", "gemini-3.5-flash", "gpt-5-nano"])
def test_the_largest_image_is_counted_by_the_image_rule_of_the_model(model):
    image = Asset.objects.create(sha256="b" * 64, format="png", width=2000, height=1500, size=1)
    messages = [{"role": "user", "content": "{{image}}{{input}}"}]
    experiment = make_draft_experiment(
        dataset=make_questions(["x"], image=image),
        models=[make_rehearsal_model(model=model, input_price=Decimal(1), output_price=Decimal(0))],
        prompts=[make_question_prompt(messages=messages)],
    )
    in_text = (
        count_tokens(model, "x") if tokens.find_text_rule(model).tokenizer else tokens.estimate_by_bytes([f"x{SALT}"])
    )
    assert estimate(experiment).ceiling_usd * 1_000_000 == in_text + tokens.find_image_rule(model).count_tokens(
        2000, 1500
    )


@pytest.mark.slow
def test_judged_answers_of_known_length_are_estimated_from_bytes():
    experiment = make_draft_experiment(dataset=make_questions(["x"]), models=[make_rehearsal_model(model="gpt-4o")])
    (model,) = experiment.language_models.all()
    prompt = make_question_prompt("judge", [{"role": "user", "content": "{{input}} {{answer}}"}])
    most = token_bounds.bound_input_tokens(model, prompt, experiment.dataset, [], {"answer": "x" * 3000})
    assert most >= 1000
