"""Model families. A judge may prefer answers of models of its own family. Pure."""

from __future__ import annotations

import re

from runs_app.llm.providers import PROVIDERS

# Most specific first: the first pattern that matches a model's name decides.
FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("claude", r"\bclaude|\bsonnet\b|\bopus\b|\bhaiku\b"),
        ("gemma", r"\bgemma"),
        ("gemini", r"\bgemini|\bpalm\b"),
        ("gpt", r"\bgpt|\bchatgpt|\bo[1-9]\b|\bdavinci"),
        ("llama", r"\bllama|\bcodellama"),
        ("mistral", r"\bmi[sx]tral|\bministral|\bmagistral|\bcodestral|\bpixtral|\bdevstral"),
        ("qwen", r"\bqwen|\bqwq\b|\bqvq\b"),
        ("deepseek", r"\bdeepseek"),
        ("grok", r"\bgrok"),
        ("phi", r"\bphi\b|\bphi-?\d"),
        ("command", r"\bcommand\b|\bcohere\b|\baya\b"),
        ("glm", r"\bglm|\bchatglm"),
        ("kimi", r"\bkimi|\bmoonshot"),
        ("nova", r"\bnova\b"),
        ("olmo", r"\bolmo"),
    )
)
BY_PROVIDER = {name: provider.family for name, provider in PROVIDERS.items() if provider.family}


def find_family(provider: str, model: str) -> str:
    """Return a model's family by its name, or by its provider if the provider serves only its own models.

    The family of an unknown model is its vendor, or else its name without the version.
    """
    name = model.lower()
    words = re.sub(r"[^a-z0-9]+", " ", name)
    for family, pattern in FAMILIES:
        if pattern.search(words):
            return family
    if provider in BY_PROVIDER:
        return BY_PROVIDER[provider]
    vendor, slash, _ = name.rpartition("/")
    return vendor.rpartition("/")[2] if slash else re.split(r"[-_:.\s]", name, maxsplit=1)[0]


def is_same_family(judge: tuple[str, str], solver: tuple[str, str]) -> bool:
    """Return whether judge and solver, each given as (provider, model), belong to the same family."""
    return find_family(*judge) == find_family(*solver)
