"""How large the requests of a design can become: what a ceiling of cost rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from django.db.models import Expression, F, Func, IntegerField, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from datasets_app.models import Item
from runs_app import briefing, costs, prompts
from runs_app.engine import asking
from runs_app.models import Dimension, Prompt

CANDIDATES = 3  # Items that are rendered to find the largest: bytes rank them well, though not quite to the token.
A_SALT = "0123456789"
AN_IMAGE = "data:,"


def largest_input(
    prompt: Prompt,
    items: QuerySet[Item],
    dimensions: Sequence[Dimension],
    told: Mapping[str, str] | None = None,
) -> int:
    """Tokens of the largest request that this prompt makes of any of the items on any of the dimensions, estimated.

    The largest image of all items is counted with the longest text, whether or not they are of one item. `told` is
    what a judge is told beside the item, with the longest answer that it will meet.
    """
    asked_on: list[Dimension | None] = [*dimensions] or [None]
    images = [_largest_image(items)] if prompts.uses(prompt.messages, prompts.IMAGE) else []
    sizes = [
        costs.input_tokens_estimate(texts, [size for size in images if size])
        for item in _longest(prompt, items)
        for dimension in asked_on
        if (texts := _texts(prompt, item, dimension, told))
    ]
    return max(sizes, default=0)


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


def _variables(prompt: Prompt) -> Counter[str]:
    """How often each variable stands in the prompt."""
    return Counter(name for turn in prompt.messages for name in prompts.VARIABLE.findall(turn["content"]))


def _longest(prompt: Prompt, items: QuerySet[Item]) -> Iterable[Item]:
    size: Any = Value(0, output_field=IntegerField())
    for name, times in _variables(prompt).items():
        if (text := _column_of(name)) is not None:
            size = size + Value(times) * _bytes(text)
    return items.annotate(size=size).select_related("image").order_by("-size", "pk")[:CANDIDATES]


def _column_of(name: str) -> Expression | F | None:
    """Where an item keeps the value of a variable; None for one that does not come from the item."""
    if name.startswith(prompts.META):
        return KeyTextTransform(name.removeprefix(prompts.META), "metadata")
    if name == "choices":
        return Cast("choices", TextField())
    return F(name) if name in ("input", "key", "category", *briefing.OF_ITEM) else None


def _bytes(text: Expression | F) -> Expression:
    return Coalesce(Func(text, function="OCTET_LENGTH", output_field=IntegerField()), 0)


def _largest_image(items: QuerySet[Item]) -> tuple[int, int] | None:
    sizes = items.exclude(image=None).order_by().values_list("image__width", "image__height").distinct()
    return max(sizes, key=lambda size: costs.image_tokens(*size), default=None)


def _texts(prompt: Prompt, item: Item, dimension: Dimension | None, told: Mapping[str, str] | None) -> list[str]:
    """The texts of the request; none where it cannot be rendered, since such a trial costs nothing."""
    question = asking.question_of(item, dimension)
    if told is not None:
        question = question.for_judging(told)
    try:
        hint = prompts.format_hint(cast(prompts.AnswerFormat, prompt.answer_format), question.scale)
        messages = prompts.render(prompt.messages, question.variables, AN_IMAGE, hint=hint, salt=A_SALT)
    except prompts.PromptError:
        return []
    return [text for message in messages for text in _texts_of(message["content"])]


def _texts_of(content: str | list[dict[str, Any]]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text"]
