"""How large the requests of a design can become: what a ceiling of cost rests on."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.core.cache import cache
from django.db.models import Expression, F, Func, IntegerField, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from datasets_app.importing import LIMITS
from datasets_app.models import Dataset, Item
from evalsite.lib.text.hashing import canonical_json, content_hash
from runs_app.engine import requests as requests_module
from runs_app.llm import judge_prompt, prompts
from runs_app.models import Dimension, LanguageModel, Prompt
from runs_app.pricing import image_tokens, token_counter, tokens
from runs_app.pricing.tokens import TextRule

CANDIDATES = 3  # Items that are rendered where bytes count: they rank the items well, though not quite to the byte.
A_SALT = "a1b2c3d4e5"  # As dense as a salt can be: no two of its characters are one token.
AN_IMAGE = "data:,"
REMEMBERED_S = 24 * 3600


def largest_input(
    model: LanguageModel,
    prompt: Prompt,
    dataset: Dataset,
    dimensions: Sequence[Dimension],
    told: Mapping[str, str] | None = None,
) -> int:
    """Tokens of the largest request that this prompt makes of any active item on any of the dimensions, for a model.

    The largest image of all items is counted with the largest text, whether or not they are of one item. `told` is
    what a judge is told beside the item, where letters stand for an answer of which only the length is known: so there
    bytes count, too.
    """
    rule = tokens.rule_for(model.model)
    rule = rule if told is None else rule.or_bytes()
    asked = _Asked(prompt, list(dimensions), told, model.structured_output)
    text = asked.schema_charge(rule) + _largest_text(rule, asked, dataset)
    return text + (_largest_image(model, dataset) if prompts.uses(prompt.messages, prompts.IMAGE) else 0)


def said_of(model: LanguageModel, *, shows_images: bool = False) -> str:
    """By which rules a model's tokens are counted, for people."""
    rule = tokens.rule_for(model.model)
    said = f"texts by {tokens.FAILED.said if rule.tokenizer in token_counter.failed else rule.said}"
    if not shows_images:
        return said
    images = image_tokens.rule_for(model.model)
    return f"{said}; images by {images.said} ({images.read.isoformat()})"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of each item."""

    prompt: Prompt
    dimensions: list[Dimension]
    told: Mapping[str, str] | None
    structured: bool

    def requests(self, item: Item) -> Iterator[list[str]]:
        """The texts of each request on this item; none where it cannot be rendered: such a trial costs nothing."""
        asked_on: list[Dimension | None] = [*self.dimensions] or [None]
        for dimension in asked_on:
            if texts := _texts(self, item, dimension):
                yield texts

    def schema_charge(self, rule: TextRule) -> int:
        return rule.schema_charge if self.structured and self.prompt.answer_format == "rating" else 0

    @property
    def identity(self) -> list[Any]:
        """All that its texts are made of, but the items."""
        return [
            self.prompt.messages,
            self.prompt.answer_format,
            [dimension.content for dimension in self.dimensions],
            dict(self.told) if self.told is not None else None,
            self.structured,
        ]


def _largest_text(rule: TextRule, asked: _Asked, dataset: Dataset) -> int:
    """By the tokenizer, once in this process for what cannot change any more; by bytes where there is none."""
    try:
        if rule.tokenizer is not None and dataset.is_draft:
            return _counted(rule, asked, dataset)
        if rule.tokenizer is not None:
            return _remembered(rule, asked, dataset)
    except token_counter.CountError:
        pass  # Said beside the price: `said_of`.
    longest = _longest(asked.prompt, dataset)[:CANDIDATES]
    return max((tokens.by_bytes(texts) for item in longest for texts in asked.requests(item)), default=0)


def _remembered(rule: TextRule, asked: _Asked, dataset: Dataset) -> int:
    key = f"largest-text-{content_hash([rule.said, dataset.pk, dataset.content_hash, asked.identity])}"
    known: int | None = cache.get(key)
    if known is None:
        known = _counted(rule, asked, dataset)
        cache.set(key, known, REMEMBERED_S)
    return known


def _counted(rule: TextRule, asked: _Asked, dataset: Dataset) -> int:
    """From the longest item down; what is too much to count is taken at a token a byte."""
    rest: list[list[str]] = []
    largest = token_counter.largest_of(_up_to(rule.most_bytes, asked, _longest(asked.prompt, dataset), rest), rule)
    return max([largest, *map(rule.bound, rest)])


def _up_to(most_bytes: int, asked: _Asked, items: QuerySet[Item], rest: list[list[str]]) -> Iterator[list[str]]:
    """Requests of so many bytes together, longest first. Those of the first item that is left over go into `rest`."""
    n_bytes = 0
    for item in items.iterator(chunk_size=500):
        requests = list(asked.requests(item))
        n_bytes, before = n_bytes + sum(map(tokens.bytes_of, requests)), n_bytes
        if before and n_bytes > most_bytes:
            rest += requests
            return
        yield from requests


def missing_variables(prompt: Prompt, items: QuerySet[Item]) -> Iterator[tuple[str, int]]:
    """(variable, number of items without a value) for what this prompt names and some items do not have."""
    for name in _variables(prompt):
        if name == prompts.IMAGE:
            lacking = items.filter(image=None)
        elif name.startswith(prompts.META):
            lacking = items.exclude(metadata__has_key=name.removeprefix(prompts.META))
        else:
            continue
        if count := lacking.count():
            yield name, count


def longest_request(prompt: Prompt, dataset: Dataset, dimensions: Sequence[Dimension]) -> tuple[str, int]:
    """Return the key of the item of which this prompt makes the longest request, and its characters; 0 if all fit.

    The items are only looked at if the prompt names so many of their fields that the request could be too long.
    """
    times = sum(number for name, number in _variables(prompt).items() if _column_of(name) is not None)
    template = sum(len(turn["content"]) for turn in prompt.messages)
    if template + times * LIMITS.text_chars <= prompts.MOST_CHARS:
        return "", 0
    asked_on: list[Dimension | None] = [*dimensions] or [None]
    sizes = (
        (item.key, prompts.rendered_chars(prompt.messages, requests_module.build_question(item, dimension).variables))
        for item in _longest(prompt, dataset)[:CANDIDATES]
        for dimension in asked_on
    )
    return max(sizes, key=lambda found: found[1], default=("", 0))


def _variables(prompt: Prompt) -> Counter[str]:
    """How often each variable stands in the prompt."""
    return Counter(name for turn in prompt.messages for name in prompts.VARIABLE.findall(turn["content"]))


def _longest(prompt: Prompt, dataset: Dataset) -> QuerySet[Item]:
    """The active items, those first that make the most bytes of this prompt."""
    size: Any = Value(0, output_field=IntegerField())
    for name, times in _variables(prompt).items():
        if (text := _column_of(name)) is not None:
            size = size + Value(times) * _bytes(text)
    found: QuerySet[Item] = dataset.items.active().annotate(size=size).select_related("image").order_by("-size", "pk")
    return found


def _column_of(name: str) -> Expression | F | None:
    """Where an item keeps the value of a variable; None for one that does not come from the item."""
    if name.startswith(prompts.META):
        return KeyTextTransform(name.removeprefix(prompts.META), "metadata")
    if name == "choices":
        return Cast("choices", TextField())
    return F(name) if name in ("input", "key", "category", *judge_prompt.OF_ITEM) else None


def _bytes(text: Expression | F) -> Expression:
    return Coalesce(Func(text, function="OCTET_LENGTH", output_field=IntegerField()), 0)


def _largest_image(model: LanguageModel, dataset: Dataset) -> int:
    rule = image_tokens.rule_for(model.model)
    images = dataset.items.active().exclude(image=None)
    sizes = images.order_by().values_list("image__width", "image__height").distinct()
    return max((rule.of(width, height) for width, height in sizes), default=0)


def _texts(asked: _Asked, item: Item, dimension: Dimension | None) -> list[str]:
    """The texts of the request, and the schema that its answer is held to; none where it cannot be rendered."""
    question, prompt = requests_module.build_question(item, dimension), asked.prompt
    if asked.told is not None:
        question = question.for_judging(asked.told)
    try:
        form = cast(prompts.AnswerFormat, prompt.answer_format)
        hint = prompts.format_hint(form, question.scale)
        # Letters stand for a judge's answers, as long as these can be: most are shorter, and those are sent and paid.
        most = prompts.MOST_CHARS if asked.told is None else sys.maxsize
        messages = prompts.render(
            prompt.messages, question.variables, AN_IMAGE, hint=hint, salt=A_SALT, most_chars=most
        )
        schema = prompts.response_format(form, question.scale) if asked.structured else None
    except prompts.PromptError:
        return []
    texts = [text for message in messages for text in _texts_of(message["content"])]
    return texts + ([canonical_json(schema)] if schema else [])


def _texts_of(content: str | list[dict[str, Any]]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text"]
