"""Pages of a dataset's items by key of order, at any size: no OFFSET, and only what a list shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.db.models.functions import Left, Length

from datasets_app.models import Item

PAGE = 48
EXCERPT = 240


class Cursor(NamedTuple):
    """Where an item stands: its place in the set, and its key where two share a place. In an address: "12.345"."""

    position: int
    pk: int

    def __str__(self) -> str:
        return f"{self.position}.{self.pk}"


@dataclass(frozen=True)
class Page:
    """Items in their order, and the cursors of the pages around them, None where there is nothing more."""

    items: list[Item]
    after: Cursor | None = None
    before: Cursor | None = None


def parse_cursor(text: str) -> Cursor | None:
    """None for anything that `str(cursor)` did not write."""
    position, _, pk = text.partition(".")
    if not (position.isdecimal() and pk.isdecimal()) or len(position) > 9 or len(pk) > 18:
        return None
    return Cursor(int(position), int(pk))


def find(items: QuerySet[Item], *, after: Cursor | None = None, before: Cursor | None = None, size: int = PAGE) -> Page:
    """The items behind a cursor, else those before one, else the first ones; each as `in_short` has it.

    The keys are found first, and only the items of the page are then read: texts are wide, and a sort carries them.
    """
    if before is not None and after is None:
        keys = [Cursor(*key) for key in _backwards(items, before)[: size + 1]]
        shown = keys[:size][::-1]
        return _page(items, shown, after=shown[-1:], before=shown[:1] if len(keys) > size else [])
    keys = [Cursor(*key) for key in _forwards(items, after)[: size + 1]]
    shown = keys[:size]
    return _page(items, shown, after=shown[-1:] if len(keys) > size else [], before=shown[:1] if after else [])


def _page(items: QuerySet[Item], keys: list[Cursor], *, after: list[Cursor], before: list[Cursor]) -> Page:
    rows = in_short(items.filter(pk__in=[key.pk for key in keys])).order_by("position", "pk") if keys else []
    return Page(list(rows), after=next(iter(after), None), before=next(iter(before), None))


def neighbours(items: QuerySet[Item], item: Item) -> tuple[int | None, int | None]:
    """The keys of the items before and behind this one, among those of the set."""
    here = Cursor(item.position, item.pk)
    before, after = _backwards(items, here).first(), _forwards(items, here).first()
    return Cursor(*before).pk if before else None, Cursor(*after).pk if after else None


def in_short(items: QuerySet[Item]) -> QuerySet[Item]:
    """With the start of the input as `excerpt` and whether that is all of it, and without what a list never shows."""
    is_cut = ExpressionWrapper(Q(length__gt=EXCERPT), output_field=BooleanField())
    return (
        items.select_related("image")
        .defer("input", "choices", "grading_scheme", "metadata")
        .annotate(excerpt=Left("input", EXCERPT), target_excerpt=Left("target", 80), length=Length("input"))
        .annotate(is_cut=is_cut)
    )


def _forwards(items: QuerySet[Item], cursor: Cursor | None) -> Any:
    beyond = Q()
    if cursor is not None:
        beyond = Q(position__gt=cursor.position) | Q(position=cursor.position, pk__gt=cursor.pk)
    return _keys(items.filter(beyond).order_by("position", "pk"))


def _backwards(items: QuerySet[Item], cursor: Cursor) -> Any:
    beyond = Q(position__lt=cursor.position) | Q(position=cursor.position, pk__lt=cursor.pk)
    return _keys(items.filter(beyond).order_by("-position", "-pk"))


def _keys(items: QuerySet[Item]) -> Any:
    return items.values_list("position", "pk")
