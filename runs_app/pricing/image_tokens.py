"""Image tokens: the tokens of an image in a request, by the rule of the model's provider. Pure.

Our requests set no detail, which means "auto". The rules assume the finest detail that a model then chooses. A model
without a rule is charged by the most expensive rule. Each rule has its source and the date when it was read. The
providers' own worked examples are in `tests/unit/test_image_tokens.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial

from runs_app.pricing.tokens import get_bare_name

READ = date(2026, 11, 20)
OPENAI = "OpenAI, Images and vision"
ANTHROPIC = "Anthropic, Vision"
GOOGLE = "Google, Understand and count tokens; Media resolution"
QWEN = "Qwen, Qwen2-VL (arXiv:2409.12191) and model cards"


@dataclass(frozen=True, slots=True)
class ImageRule:
    """A rule for the tokens of an image of (width, height) in pixels. `description` is its name on pages."""

    description: str
    source: str
    tokens: Callable[[int, int], int]
    read: date = READ

    def count_tokens(self, width: int, height: int) -> int:
        if width < 1 or height < 1:
            raise ValueError(f"invalid image size: {width} x {height} pixels")
        return self.tokens(width, height)


def count_tiles(base: int, each: int, width: int, height: int) -> int:
    """Return `base` plus `each` for every tile of 512 x 512 pixels.

    The image is first scaled down to fit into 2048 x 2048, then until its shorter side is at most 768.
    """
    scale = min(1.0, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    # Round first: a rounding error in 1024 * 0.75 must not add a tile.
    return base + each * math.ceil(round(width * scale, 6) / 512) * math.ceil(round(height * scale, 6) / 512)


def count_patches(most: int, multiplier: float, width: int, height: int) -> int:
    """Return the number of patches of 32 x 32 pixels, at most `most`, times a multiplier.

    A larger image is scaled down until it fits and its sides are whole patches.
    """
    needed = _count_cells(width, height, 32)
    if needed > most:
        shrink = math.sqrt(most * 32**2 / (width * height))
        across, down = width * shrink / 32, height * shrink / 32
        shrink = min(math.floor(across) / across, math.floor(down) / down)
        # A strip thinner than a patch has no whole patches, so it is charged the maximum.
        needed = round(across * shrink) * round(down * shrink) if shrink else most
    return math.ceil(round(needed * multiplier, 6))


def count_visual_tokens(longest_side: int, most: int, width: int, height: int) -> int:
    """Return the patches of 28 x 28 pixels of the image at the largest size within both limits."""
    long, short = max(width, height), min(width, height)
    low, high = 1, min(long, longest_side)
    while low < high:
        middle = (low + high + 1) // 2
        if _count_cells(middle, middle * short / long, 28) <= most:
            low = middle
        else:
            high = middle - 1
    return min(most, _count_cells(low, low * short / long, 28))


def count_pan_and_scan(width: int, height: int) -> int:
    """Return 258 for an image of at most 384 pixels on both sides, else 258 for each tile.

    A tile's side is two thirds of the image's shorter side, between 256 and 768 pixels.
    """
    if max(width, height) <= 384:
        return 258
    side = min(768, max(256, math.floor(min(width, height) / 1.5)))
    return 258 * _count_cells(width, height, side)


def count_fixed(tokens: int, width: int, height: int) -> int:
    """Return the same number for an image of any size."""
    return tokens


def count_merged_patches(side: int, least: int, most: int, width: int, height: int) -> int:
    """Return the number of patches of this side, within limits, plus one token before and one after them."""
    return min(most, max(least, _count_cells(width, height, side))) + 2


def _count_cells(width: float, height: float, side: int) -> int:
    return math.ceil(round(width / side, 6)) * math.ceil(round(height / side, 6))


def _build_openai_rule(description: str, count: Callable[[int, int], int]) -> ImageRule:
    return ImageRule(f"OpenAI's {description}", OPENAI, count)


# Matched by the start of the model's own name; the first match counts. An image in GPT-4o mini has many tokens, because
# OpenAI charges as many dollars for it as in GPT-4o.
_BY_NAME: tuple[tuple[str, ImageRule], ...] = (
    (r"gpt-4o-mini", _build_openai_rule("tiles of 5,667", partial(count_tiles, 2833, 5667))),
    (r"gpt-(4\.1|5|5\.4)-mini", _build_openai_rule("1,536 patches x 1.62", partial(count_patches, 1536, 1.62))),
    (r"gpt-(4\.1|5|5\.4)-nano", _build_openai_rule("1,536 patches x 2.46", partial(count_patches, 1536, 2.46))),
    (r"o4-mini", _build_openai_rule("1,536 patches x 1.72", partial(count_patches, 1536, 1.72))),
    (r"gpt-4o|chatgpt-4o|gpt-4\.[15]|gpt-4-", _build_openai_rule("tiles of 170", partial(count_tiles, 85, 170))),
    (r"gpt-5($|-chat|-20)", _build_openai_rule("tiles of 140", partial(count_tiles, 70, 140))),
    (r"o[13](-pro|-20|$)", _build_openai_rule("tiles of 150", partial(count_tiles, 75, 150))),
    (r"computer-use-preview", _build_openai_rule("tiles of 129", partial(count_tiles, 65, 129))),
    (r"gpt-5\.[45]($|-20|-pro)", _build_openai_rule("10,000 patches x 1.2", partial(count_patches, 10_000, 1.2))),
    (r"gpt-5\.6|gpt-6", _build_openai_rule("30,000 patches x 1.2", partial(count_patches, 30_000, 1.2))),
    (r"gemini-[12]", ImageRule("Gemini's tiles of 258", GOOGLE, count_pan_and_scan)),
    (r"gemini-", ImageRule("Gemini 3's 1,120 per image", GOOGLE, partial(count_fixed, 1120))),
    (r"qwen2(\.5)?-vl", ImageRule("Qwen's patches of 28 px", QWEN, partial(count_merged_patches, 28, 4, 16_384))),
    (r"qwen3(\.\d)?-vl", ImageRule("Qwen's patches of 32 px", QWEN, partial(count_merged_patches, 32, 64, 16_384))),
)
_CLAUDE = ImageRule("Anthropic's 1,568 patches of 28 px", ANTHROPIC, partial(count_visual_tokens, 1568, 1568))
_FINE_CLAUDE = ImageRule("Anthropic's 4,784 patches of 28 px", ANTHROPIC, partial(count_visual_tokens, 2576, 4784))
_FINE_SINCE = (4, 7)
_CLAUDE_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_EXCEPTIONAL_RULE = "gpt-4o-mini"


def _count_by_most_expensive_rule(width: int, height: int) -> int:
    rules = [rule for name, rule in _BY_NAME if name != _EXCEPTIONAL_RULE]
    return max(rule.count_tokens(width, height) for rule in (*rules, _CLAUDE, _FINE_CLAUDE))


UNKNOWN = ImageRule("the most expensive rule (this model has none)", "", _count_by_most_expensive_rule)


def find_image_rule(model: str) -> ImageRule:
    """Return the rule that counts images for a model of this id."""
    name = get_bare_name(model)
    if name.startswith("claude"):
        # The rule of a Claude model. Models since 4.7 see finer images, and so do models of unknown version.
        match = _CLAUDE_VERSION.match(name)
        version = (int(match[1]), int(match[2] or 0)) if match else _FINE_SINCE
        return _CLAUDE if version < _FINE_SINCE else _FINE_CLAUDE
    return next((rule for start, rule in _BY_NAME if re.match(start, name)), UNKNOWN)
