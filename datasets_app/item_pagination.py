"""Keyset pagination of a dataset's items. It needs no OFFSET and reads only the columns that a list shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import Q

from datasets_app.models import Item
from datasets_app.models.items import ItemQuerySet

PAGE = 48


class Cursor(NamedTuple):
    """The sort key of an item: its position, then its primary key for equal positions. In a URL: "12.345"."""

    position: int
    pk: int

    def __str__(self) -> str:
        return f"{self.position}.{self.pk}"


@dataclass(frozen=True)
class PageOfItems:
    """Items in order, and the cursors of the next and the previous page. A cursor is None if there is no such page."""

    items: list[Item]
    after: Cursor | None = None
    before: Cursor | None = None


def parse_cursor(text: str) -> Cursor | None:
    """Parse a cursor of the query string. Return None if `str(cursor)` cannot have written the text."""
    position, _, pk = text.partition(".")
    if not (position.isdecimal() and pk.isdecimal()) or len(position) > 9 or len(pk) > 18:
        return None
    return Cursor(int(position), int(pk))


def fetch_page(
    items: ItemQuerySet, *, after: Cursor | None = None, before: Cursor | None = None, size: int = PAGE
) -> PageOfItems:
    """Return the items after a cursor, else those before a cursor, else the first items, each as from `with_excerpts`.

    The first query selects only keys, and the second reads the items of the page. Texts are wide, and a sort would
    carry them along.
    """
    if before is not None and after is None:
        keys = [Cursor(*key) for key in _list_backwards(items, before)[: size + 1]]
        visible = keys[:size][::-1]
        return _load_page(items, visible, after=visible[-1:], before=visible[:1] if len(keys) > size else [])
    keys = [Cursor(*key) for key in _list_forwards(items, after)[: size + 1]]
    visible = keys[:size]
    return _load_page(
        items, visible, after=visible[-1:] if len(keys) > size else [], before=visible[:1] if after else []
    )


def _load_page(items: ItemQuerySet, keys: list[Cursor], *, after: list[Cursor], before: list[Cursor]) -> PageOfItems:
    rows = items.filter(pk__in=[key.pk for key in keys]).with_excerpts().order_by("position", "pk") if keys else []
    return PageOfItems(list(rows), after=next(iter(after), None), before=next(iter(before), None))


def find_neighbours(items: ItemQuerySet, item: Item) -> tuple[int | None, int | None]:
    """Return the primary keys of the items before and after this one, or None."""
    cursor = Cursor(item.position, item.pk)
    before, after = _list_backwards(items, cursor).first(), _list_forwards(items, cursor).first()
    return Cursor(*before).pk if before else None, Cursor(*after).pk if after else None


def _list_forwards(items: ItemQuerySet, cursor: Cursor | None) -> Any:
    beyond = Q()
    if cursor is not None:
        beyond = Q(position__gt=cursor.position) | Q(position=cursor.position, pk__gt=cursor.pk)
    return _select_keys(items.filter(beyond).order_by("position", "pk"))


def _list_backwards(items: ItemQuerySet, cursor: Cursor) -> Any:
    beyond = Q(position__lt=cursor.position) | Q(position=cursor.position, pk__lt=cursor.pk)
    return _select_keys(items.filter(beyond).order_by("-position", "-pk"))


def _select_keys(items: ItemQuerySet) -> Any:
    return items.values_list("position", "pk")
