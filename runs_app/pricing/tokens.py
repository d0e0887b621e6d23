"""The tokens of a request's texts and images, by the rules of its model. Pure; `token_counter` runs the tokenizer.

A public tokenizer counts the tokens of a text. Without one, the estimate is one token per three bytes, and pages say
so. The tokenizers are files of the litellm package, which this module does not import, because that takes seconds.

Images: our requests set no detail, which means "auto". The rules assume the finest detail that a model then chooses. A
model without a rule is charged by the most expensive rule. Each rule has its source and the date when it was read. The
providers' own worked examples are in `tests/unit/test_image_tokens.py`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

from runs_app.pricing.costs import estimate_tokens

TOKENIZERS = "litellm_core_utils/tokenizers"
# The name of the file and the SHA-256 of its content. tiktoken names its files by the hash of their URL.
TOKENIZER_FILES: dict[str, tuple[str, str]] = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "claude": (
        "anthropic_tokenizer.json",
        "c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767",
    ),
}


def find_litellm_folder() -> Path | None:
    """Return the folder of the litellm package; None if it is not installed."""
    spec = importlib.util.find_spec("litellm")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]) if folders else None


@cache
def find_tokenizer_file(name: str) -> Path | None:
    """Return the file of a tokenizer; None if it is missing or its content differs."""
    folder = find_litellm_folder()
    file_name, sha256 = TOKENIZER_FILES[name]
    path = folder / TOKENIZERS / file_name if folder else None
    try:
        content = path.read_bytes() if path else b""
    except OSError:
        return None
    return path if hashlib.sha256(content).hexdigest() == sha256 else None


TOKENS_PER_TURN = 4  # Tokens of role markers and separators that chat formats add to each message.
TOKENS_PER_REPLY = 3  # Tokens that open the model's reply (OpenAI, "How to count tokens").

Texts = Sequence[str]
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class TextRule:
    """A rule that counts the tokens of a text for a family of models.

    `description` is the rule's name on pages. Without a `tokenizer`, it counts one token per three bytes. With one, it
    multiplies the count by `margin`. With `also_bytes`, it never counts less than by bytes. A tokenizer that
    `normalizes` reads NFKC, which may be longer. At most `max_bytes` of requests are counted at once. `schema_charge`
    is the number of tokens that a provider adds to a request with an answer schema, besides the schema itself.
    """

    description: str
    tokenizer: str | None = None
    margin: Fraction = Fraction(1)
    also_bytes: bool = False
    normalizes: bool = False
    max_bytes: int = 16_000_000
    schema_charge: int = 50

    def compute_tokens(self, count: int, texts: Texts) -> int:
        """Return the tokens of a request of these texts, for which the tokenizer counts `count`."""
        n_tokens = math.ceil(count * self.margin)
        if self.also_bytes:
            n_tokens = max(n_tokens, sum(map(estimate_tokens, texts)))
        return n_tokens + count_overhead(texts)

    def bound(self, texts: Texts) -> int:
        """Return an upper bound for a request of these texts: no token is shorter than a byte."""
        normalized = [unicodedata.normalize("NFKC", text) for text in texts] if self.normalizes else texts
        return math.ceil(count_bytes(normalized) * self.margin) + count_overhead(texts)

    def with_byte_bound(self) -> TextRule:
        """Return the rule with `also_bytes`, for requests with parts of known length but unknown content."""
        if self.tokenizer is None or self.also_bytes:
            return self
        return replace(self, description=f"{self.description}, at least 1 token per 3 bytes", also_bytes=True)


BYTES = TextRule("estimated: 1 token per 3 bytes")
MISSING = TextRule("estimated: 1 token per 3 bytes (the tokenizer file is missing or changed)")
FAILED = TextRule("estimated: 1 token per 3 bytes (the tokenizer could not run)")
O200K = TextRule("o200k_base", "o200k_base")
CL100K = TextRule("cl100k_base", "cl100k_base")
CLAUDE = TextRule(
    "Claude 2's tokenizer x 1.6, at least 1 token per 3 bytes",
    "claude",
    Fraction(16, 10),
    also_bytes=True,
    normalizes=True,
    max_bytes=4_000_000,
    schema_charge=530,  # The schema is sent as a tool (Anthropic, "Tool use", tokens of the system prompt).
)

# By the model's own name. OpenAI's families follow tiktoken. Models that it does not list (GPT-6) have no tokenizer:
# litellm's fallback, cl100k_base, is not an upper bound for them. For Claude, only the tokenizer of version 2 is
# public, and later versions have more tokens for the same text. Claude 4.7 and later have up to 1.35 times the tokens
# of earlier models (Anthropic, "Token counting", read 2026-11-20). The rest of the margin covers that of Claude 3.
_FAMILIES: tuple[tuple[re.Pattern[str], TextRule], ...] = (
    (re.compile(r"gpt-oss|gpt-5|gpt-4\.[15]|gpt-4o|chatgpt-4o|o[134](-|$)"), O200K),
    (re.compile(r"gpt-4(-|$)|gpt-3\.5|gpt-35-turbo"), CL100K),
    (re.compile(r"claude"), CLAUDE),
)


def get_bare_name(model: str) -> str:
    """Return a model's own name: "gpt-4o" for "openai/gpt-4o:free" and "ft:gpt-4o:lab"."""
    return model.lower().rsplit("/", 1)[-1].removeprefix("ft:").split(":", 1)[0]


def find_text_rule(model: str) -> TextRule:
    """Return the rule that counts texts for a model of this id."""
    name = get_bare_name(model)
    rule = next((rule for family, rule in _FAMILIES if family.match(name)), BYTES)
    if rule.tokenizer is not None and find_tokenizer_file(rule.tokenizer) is None:
        return MISSING
    return rule


def count_overhead(texts: Texts) -> int:
    """Return the tokens around the texts of a request."""
    return TOKENS_PER_TURN * len(texts) + TOKENS_PER_REPLY if texts else 0


def estimate_by_bytes(texts: Texts) -> int:
    """Return the tokens of a request, at one token per three bytes."""
    return sum(map(estimate_tokens, texts)) + count_overhead(texts)


def count_bytes(texts: Texts) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def find_largest(requests: Iterable[Texts], rule: TextRule, count: Count) -> int:
    """Return the tokens of the largest request; 0 without requests. `count` is the tokenizer's function.

    Requests whose bound is not above the largest count so far are skipped, so pass the longest first.
    """
    largest = 0
    for texts in requests:
        if rule.bound(texts) > largest:
            largest = max(largest, rule.compute_tokens(sum(map(count, texts)), texts))
    return largest


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
