"""The tokens of a request, by the rule of its model. Pure; `token_counter` runs the tokenizer.

A public tokenizer counts the tokens. Without one, the estimate is one token per three bytes, and pages say so.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from runs_app.pricing import litellm_data
from runs_app.pricing.costs import estimate_tokens

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
    if rule.tokenizer is not None and litellm_data.find_tokenizer_file(rule.tokenizer) is None:
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
