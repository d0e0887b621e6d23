"""Upper bounds of the tokens of a design's requests. Cost ceilings rest on them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.contrib.postgres.aggregates import BoolOr
from django.core.cache import cache
from django.db.models import Expression, F, Func, IntegerField, Q, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from datasets_app.importing import LIMITS
from datasets_app.models import Dataset, Item
from evalsite.lib.text.hashing import canonical_json, hash_content
from runs_app.engine import requests as requests_module
from runs_app.llm import judge_prompt, prompts
from runs_app.models import Dimension, LanguageModel, Prompt
from runs_app.pricing import token_counter, tokens
from runs_app.pricing.tokens import TextRule

CANDIDATES = 3  # The items to render if bytes are counted. Their order by size is not exact to the byte.
SAMPLE_SALT = "a1b2c3d4e5"  # It has the most tokens that a salt can have: no two characters form one token.
SAMPLE_IMAGE = "data:,"
CACHED_S = 24 * 3600


def bound_input_tokens(
    model: LanguageModel,
    prompt: Prompt,
    dataset: Dataset,
    dimensions: Sequence[Dimension],
    judge_variables: Mapping[str, str] | None = None,
) -> int:
    """Return the tokens of the largest request of this prompt for a model, over active items and dimensions.

    The largest image is added to the largest text, even if they belong to different items. `judge_variables` has a
    judge's variables besides those of the item. In them, letters stand for an answer whose length alone is known, so
    bytes are counted, too.
    """
    rule = tokens.find_text_rule(model.model)
    rule = rule if judge_variables is None else rule.with_byte_bound()
    shape = _RequestShape(prompt, list(dimensions), judge_variables, model.structured_output)
    text = shape.get_schema_charge(rule) + _bound_text_tokens(rule, shape, dataset)
    return text + (_bound_image_tokens(model, dataset) if prompts.uses_variable(prompt.messages, prompts.IMAGE) else 0)


@dataclass(frozen=True, slots=True)
class _RequestShape:
    """The parts of a request that are the same for every item."""

    prompt: Prompt
    dimensions: list[Dimension]
    judge_variables: Mapping[str, str] | None
    structured: bool

    def iter_requests(self, item: Item) -> Iterator[list[str]]:
        """Yield the texts of each request about this item.

        Skip requests that cannot be rendered, because their trials cost nothing.
        """
        dimensions: list[Dimension | None] = [*self.dimensions] or [None]
        for dimension in dimensions:
            if texts := _render_texts(self, item, dimension):
                yield texts

    def get_schema_charge(self, rule: TextRule) -> int:
        return rule.schema_charge if self.structured and self.prompt.answer_format == "rating" else 0

    @property
    def identity(self) -> list[Any]:
        """Return the content of its texts except the items, as a cache key."""
        return [
            self.prompt.messages,
            self.prompt.answer_format,
            [dimension.content for dimension in self.dimensions],
            dict(self.judge_variables) if self.judge_variables is not None else None,
            self.structured,
        ]


def _bound_text_tokens(rule: TextRule, shape: _RequestShape, dataset: Dataset) -> int:
    """Return the largest count by the tokenizer, or by bytes without a tokenizer."""
    if rule.tokenizer is not None:
        try:
            return _remember(rule.description, shape, dataset, lambda: _count_largest(rule, shape, dataset))
        except token_counter.CountError:
            pass  # `describe_token_rules` reports this beside the price.
    return _remember("bytes", shape, dataset, lambda: _count_largest_bytes(shape, dataset))


def _remember(rule: str, shape: _RequestShape, dataset: Dataset, count: Callable[[], int]) -> int:
    """Return the count, from the cache if the dataset is frozen: models with equal rules share it."""
    if dataset.is_draft:
        return count()
    key = f"largest-text-{hash_content([rule, dataset.pk, dataset.content_hash, shape.identity])}"
    return cache.get_or_set(key, count, CACHED_S) or 0


def _count_largest_bytes(shape: _RequestShape, dataset: Dataset) -> int:
    longest = _order_by_size(shape.prompt, dataset)[:CANDIDATES]
    return max((tokens.estimate_by_bytes(texts) for item in longest for texts in shape.iter_requests(item)), default=0)


def _count_largest(rule: TextRule, shape: _RequestShape, dataset: Dataset) -> int:
    """Count from the longest item down. Beyond the rule's limit of bytes, the bound is one token per byte."""
    rest: list[list[str]] = []
    items = _order_by_size(shape.prompt, dataset)
    largest = token_counter.count_largest(_iter_up_to(rule.max_bytes, shape, items, rest), rule)
    return max([largest, *map(rule.bound, rest)])


def _iter_up_to(
    max_bytes: int, shape: _RequestShape, items: QuerySet[Item], rest: list[list[str]]
) -> Iterator[list[str]]:
    """Yield the longest requests, up to `max_bytes`. Add the requests of the first item beyond them to `rest`."""
    n_bytes = 0
    for item in items.iterator(chunk_size=500):
        requests = list(shape.iter_requests(item))
        is_first = n_bytes == 0
        n_bytes += sum(map(tokens.count_bytes, requests))
        if n_bytes > max_bytes and not is_first:
            rest += requests
            return
        yield from requests


def find_missing_variables(prompt: Prompt, items: QuerySet[Item]) -> Iterator[tuple[str, int]]:
    """Yield (variable, number of items without a value) for each variable of this prompt that some items lack."""
    for name in _count_variables(prompt):
        if name == prompts.IMAGE:
            without_value = items.filter(image=None)
        elif name.startswith(prompts.META):
            without_value = items.exclude(metadata__has_key=name.removeprefix(prompts.META))
        else:
            continue
        if n := without_value.count():
            yield name, n


def find_unfillable(prompts_to_check: Collection[Prompt], items: QuerySet[Item]) -> dict[int, str]:
    """Return why no item can fill a prompt, by the prompt's key. Prompts that some item can fill are left out.

    One query reads the items, however many prompts there are.
    """
    tests = {prompts.IMAGE: Q(image__isnull=False), "input": ~Q(input="")}
    for prompt in prompts_to_check:
        for name in _count_variables(prompt):
            if name.startswith(prompts.META):
                tests[name] = Q(metadata__has_key=name.removeprefix(prompts.META))
    names = sorted(tests)
    found = items.aggregate(**{f"has_{at}": BoolOr(tests[name]) for at, name in enumerate(names)})
    missing = {name for at, name in enumerate(names) if not found[f"has_{at}"]}
    reasons = {}
    for prompt in prompts_to_check:
        if lacking := [prompts.format_placeholder(name) for name in _count_variables(prompt) if name in missing]:
            shown = ", ".join(lacking[:2]) + (f" and {len(lacking) - 2} more" if len(lacking) > 2 else "")
            reasons[prompt.pk] = f"no item has {shown}"
    return reasons


def find_longest_request(prompt: Prompt, dataset: Dataset, dimensions: Sequence[Dimension]) -> tuple[str, int]:
    """Return the item key and the characters of the longest request of this prompt; ("", 0) if all requests fit.

    The items are read only if the prompt has enough item fields to exceed the limit.
    """
    times = sum(n for name, n in _count_variables(prompt).items() if _get_column(name) is not None)
    template = sum(len(turn["content"]) for turn in prompt.messages)
    if template + times * LIMITS.text_chars <= prompts.MAX_CHARS:
        return "", 0
    on_dimensions: list[Dimension | None] = [*dimensions] or [None]
    sizes = (
        (
            item.key,
            prompts.count_rendered_chars(prompt.messages, requests_module.build_question(item, dimension).variables),
        )
        for item in _order_by_size(prompt, dataset)[:CANDIDATES]
        for dimension in on_dimensions
    )
    return max(sizes, key=lambda size: size[1], default=("", 0))


def _count_variables(prompt: Prompt) -> Counter[str]:
    """Return the number of occurrences of each variable in the prompt."""
    return Counter(name for turn in prompt.messages for name in prompts.VARIABLE.findall(turn["content"]))


def _order_by_size(prompt: Prompt, dataset: Dataset) -> QuerySet[Item]:
    """Return the active items in the order of the bytes that they add to this prompt, largest first."""
    size: Any = Value(0, output_field=IntegerField())
    for name, times in _count_variables(prompt).items():
        if (text := _get_column(name)) is not None:
            size = size + Value(times) * Coalesce(Func(text, function="OCTET_LENGTH", output_field=IntegerField()), 0)
    items: QuerySet[Item] = dataset.items.active().annotate(size=size).select_related("image").order_by("-size", "pk")
    return items


def _get_column(name: str) -> Expression | F | None:
    """Return the expression for a variable's value in an item; None if it does not come from the item."""
    if name.startswith(prompts.META):
        return KeyTextTransform(name.removeprefix(prompts.META), "metadata")
    if name == "choices":
        return Cast("choices", TextField())
    return F(name) if name in ("input", "key", "category", *judge_prompt.OF_ITEM) else None


def _bound_image_tokens(model: LanguageModel, dataset: Dataset) -> int:
    rule = tokens.find_image_rule(model.model)
    images = dataset.items.active().exclude(image=None)
    sizes = images.order_by().values_list("image__width", "image__height").distinct()
    return max((rule.count_tokens(width, height) for width, height in sizes), default=0)


def _render_texts(shape: _RequestShape, item: Item, dimension: Dimension | None) -> list[str]:
    """Return the texts of a request and the schema of its answer; empty if it cannot be rendered."""
    question, prompt = requests_module.build_question(item, dimension), shape.prompt
    if shape.judge_variables is not None:
        question = question.with_judge_variables(shape.judge_variables)
    try:
        form = cast(prompts.AnswerFormat, prompt.answer_format)
        hint = prompts.format_hint(form, question.scale)
        # For a judge, letters stand for answers of the maximum length. Real answers are shorter, so they fit.
        most = prompts.MAX_CHARS if shape.judge_variables is None else sys.maxsize
        messages = prompts.render(
            prompt.messages, question.variables, SAMPLE_IMAGE, hint=hint, salt=SAMPLE_SALT, max_chars=most
        )
        schema = prompts.build_response_format(form, question.scale) if shape.structured else None
    except prompts.PromptError:
        return []
    texts = [text for message in messages for text in _list_texts(message["content"])]
    return texts + ([canonical_json(schema)] if schema else [])


def _list_texts(content: str | list[dict[str, Any]]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text"]
