"""How many tokens a request has, by the rule of the model that it goes to. Pure; the counting itself is `counting`.

Where the tokenizer is public, it counts. Where it is not, a token is charged for each three bytes, and that is said.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from runs_app.pricing import litellm_data
from runs_app.pricing.costs import tokens_estimate

CHARGE_FOR_A_TURN = 4  # Role markers and separators that chat formats put around each message, in tokens.
CHARGE_FOR_A_REPLY = 3  # What opens the turn that the model answers in (OpenAI, "How to count tokens").

Texts = Sequence[str]
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class TextRule:
    """How the tokens of a text are counted for a family of models.

    `said` names the rule to people. Without a `tokenizer` it is a token for each three bytes; with one, its count times
    `margin`, and never less than by bytes where `also_bytes`. One that `normalizes` reads NFKC, which may be longer.
    `most_bytes` of requests are counted in one go. `schema_charge`: tokens that a provider adds to a request whose
    answer is held to a schema, besides the schema's.
    """

    said: str
    tokenizer: str | None = None
    margin: Fraction = Fraction(1)
    also_bytes: bool = False
    normalizes: bool = False
    most_bytes: int = 16_000_000
    schema_charge: int = 50

    def of_count(self, count: int, texts: Texts) -> int:
        """Tokens of a request whose texts the tokenizer makes so many of."""
        counted = math.ceil(count * self.margin)
        if self.also_bytes:
            counted = max(counted, sum(map(tokens_estimate, texts)))
        return counted + charge_for(texts)

    def bound(self, texts: Texts) -> int:
        """What a request of these texts cannot pass: no token is shorter than a byte."""
        seen = [unicodedata.normalize("NFKC", text) for text in texts] if self.normalizes else texts
        return math.ceil(bytes_of(seen) * self.margin) + charge_for(texts)

    def or_bytes(self) -> TextRule:
        """The same where parts of a request are not known yet, only how long they may become."""
        if self.tokenizer is None or self.also_bytes:
            return self
        return replace(self, said=f"{self.said}, at least a token per 3 bytes", also_bytes=True)


BYTES = TextRule("a token per 3 bytes: no tokenizer is known")
MISSING = TextRule("a token per 3 bytes: its tokenizer's file is missing or changed")
FAILED = TextRule("a token per 3 bytes: its tokenizer could not be run")
O200K = TextRule("o200k_base", "o200k_base")
CL100K = TextRule("cl100k_base", "cl100k_base")
CLAUDE = TextRule(
    "Claude 2's tokenizer x 1.6, at least a token per 3 bytes",
    "claude",
    Fraction(16, 10),
    also_bytes=True,
    normalizes=True,
    most_bytes=4_000_000,
    schema_charge=530,  # Its schema goes out as a tool (Anthropic, "Tool use", tokens of the system prompt).
)

# By the model's own name. OpenAI's families as tiktoken has them; where it knows none (GPT-6), none is guessed: litellm
# falls back to cl100k_base there, which is no bound. Of Claude only the second's tokenizer is public: later ones make
# more tokens of the same text, Claude 4.7 and its successors up to 1.35 times those of the models before (Anthropic,
# "Token counting", read 2026-11-20); the rest of the margin is for what Claude 3 added.
_FAMILIES: tuple[tuple[re.Pattern[str], TextRule], ...] = (
    (re.compile(r"gpt-oss|gpt-5|gpt-4\.[15]|gpt-4o|chatgpt-4o|o[134](-|$)"), O200K),
    (re.compile(r"gpt-4(-|$)|gpt-3\.5|gpt-35-turbo"), CL100K),
    (re.compile(r"claude"), CLAUDE),
)


def bare_name(model: str) -> str:
    """A model's own name, out of an id as gateways write it: "openai/gpt-4o:free" and "ft:gpt-4o:lab" are gpt-4o."""
    return model.lower().rsplit("/", 1)[-1].removeprefix("ft:").split(":", 1)[0]


def rule_for(model: str) -> TextRule:
    """By which rule texts are counted for a model of this id."""
    name = bare_name(model)
    rule = next((rule for family, rule in _FAMILIES if family.match(name)), BYTES)
    if rule.tokenizer is not None and litellm_data.tokenizer_file(rule.tokenizer) is None:
        return MISSING
    return rule


def charge_for(texts: Texts) -> int:
    """Tokens that stand around the texts of a request."""
    return CHARGE_FOR_A_TURN * len(texts) + CHARGE_FOR_A_REPLY if texts else 0


def by_bytes(texts: Texts) -> int:
    """Tokens of a request, by a token for each three bytes."""
    return sum(map(tokens_estimate, texts)) + charge_for(texts)


def bytes_of(texts: Texts) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def largest(requests: Iterable[Texts], rule: TextRule, count: Count) -> int:
    """Tokens of the largest of these requests, 0 without any; `count` is the tokenizer's.

    Requests that cannot pass the largest so far are not counted; it is quickest with the longest first.
    """
    most = 0
    for texts in requests:
        if rule.bound(texts) > most:
            most = max(most, rule.of_count(sum(map(count, texts)), texts))
    return most
