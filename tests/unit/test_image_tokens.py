"""Image tokens by each provider's rule: the providers' worked examples, and the maximum of each rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.pricing.tokens import UNKNOWN, find_image_rule

sides = st.integers(1, 9000)
MODELS = [
    "gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano", "gpt-5", "gpt-5-mini-2025-08-07", "o3",
    "o4-mini",    "gpt-5.5", "gpt-6-sol", "claude-sonnet-4-5", "claude-opus-4-8", "gemini-2.5-pro", "gemini-3.5-flash",
    "Qwen/Qwen2.5-VL-7B-Instruct", "qwen3-vl", "sim-large",
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        # OpenAI, Images and vision: tiles, then patches, before the multiplier and after it.
        ("gpt-4o", 1024, 1024, 765),
        ("gpt-4o", 2048, 4096, 1105),
        ("gpt-4o", 512, 512, 255),
        ("gpt-4o-mini", 1024, 1024, 2833 + 4 * 5667),
        ("gpt-5", 1024, 1024, 70 + 4 * 140),
        ("o3", 1024, 1024, 75 + 4 * 150),
        ("o4-mini", 1024, 1024, 1762),  # 1,024 patches x 1.72
        ("gpt-4.1-mini", 1800, 2400, 2353),  # 1,452 patches x 1.62
        ("gpt-5-nano", 1024, 1024, 2520),  # 1,024 patches x 2.46
        # Anthropic, Vision: patches of 28 pixels; the finer tier since 4.7.
        ("claude-sonnet-4-5-20250929", 200, 200, 64),
        ("claude-3-5-sonnet-20241022", 1000, 1000, 1296),
        ("anthropic/claude-opus-4.6", 1092, 1092, 1521),
        ("claude-haiku-4-5", 1920, 1080, 1560),
        ("claude-sonnet-4-20250514", 3840, 2160, 1560),
        ("claude-opus-4-7", 1920, 1080, 2691),
        ("claude-opus-4-7", 3840, 2160, 4784),
        ("claude-next", 3840, 2160, 4784),
        # Google: the crop unit of 960 x 540 is 360, which makes six tiles; one image costs the same since Gemini 3.
        ("gemini-2.5-flash", 384, 384, 258),
        ("gemini-2.0-flash", 960, 540, 6 * 258),
        ("gemini-3.5-flash", 4000, 3000, 1120),
        # Qwen2-VL, section 2.1: 224 x 224 pixels are 66 tokens.
        ("Qwen/Qwen2-VL-7B-Instruct", 224, 224, 66),
        ("qwen/qwen3-vl-8b:free", 1024, 1024, 1026),
    ],
)
def test_worked_examples_of_the_providers_are_reproduced(model, width, height, tokens):
    assert find_image_rule(model).count_tokens(width, height) == tokens


@pytest.mark.parametrize(("width", "height", "tokens"), [(1, 1, 255), (500, 400, 255), (768, 768, 765), (513, 1, 425)])
def test_small_images_are_not_enlarged_into_more_tiles(width, height, tokens):
    assert find_image_rule("gpt-4o").count_tokens(width, height) == tokens


@given(sides, sides)
def test_orientation_does_not_change_the_tokens_of_an_image(width, height):
    for model in MODELS:
        assert (
            find_image_rule(model).count_tokens(width, height) == find_image_rule(model).count_tokens(height, width) > 0
        )


@given(sides, sides)
def test_no_image_exceeds_the_maximum_of_its_rule(width, height):
    maximum = {
        "o4-mini": 1536 * 1.72 + 1,
        "gpt-5.5": 12_000,
        "claude-haiku-4-5": 1568,
        "claude-opus-4-8": 4784,
        "qwen3-vl": 16_386,
    }
    for model, limit in maximum.items():
        assert find_image_rule(model).count_tokens(width, height) <= limit


@given(sides, sides)
def test_a_model_without_a_rule_uses_the_most_expensive_rule(width, height):
    assert find_image_rule("sim-large") is UNKNOWN
    for model in MODELS:
        if model != "gpt-4o-mini":
            assert find_image_rule(model).count_tokens(width, height) <= UNKNOWN.count_tokens(width, height)


def test_every_rule_names_its_source_and_date():
    for model in MODELS[:-1]:
        rule = find_image_rule(model)
        assert rule.source
        assert rule.description
        assert rule.read.year >= 2026


def test_an_image_without_a_size_is_refused():
    with pytest.raises(ValueError, match="0 x 5"):
        find_image_rule("gpt-4o").count_tokens(0, 5)
