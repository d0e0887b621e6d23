"""The tables of the datasets app: datasets, items, norms, and the history of any row."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.template.defaultfilters import floatformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from datasets_app.models import Dataset, Item
from evalsite.lib.history import StatusChange
from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format

NUMBER = {"th": {"class": "num"}, "td": {"class": "num"}}
TIGHT = {"td": {"class": "tight"}}
CLIP = {"td": {"class": "clip clip-short"}}


class DatasetTable(tables.Table):
    slug = tables.Column(verbose_name="Dataset", order_by=("slug", "-version"), attrs={"td": {"class": "primary"}})
    status = tables.Column()
    version = tables.Column(attrs=NUMBER)
    active_count = tables.Column(verbose_name="Items", attrs=NUMBER)
    n_categories = tables.Column(verbose_name="Categories", attrs=NUMBER, orderable=False)
    source = tables.Column(attrs=CLIP)
    licence = tables.Column(attrs=CLIP)
    created_at = tables.Column(verbose_name="Created", attrs=TIGHT)

    class Meta:
        model = Dataset
        fields = ()
        default = number_format.MISSING
        order_by = "-created_at"

    def render_slug(self, record: Dataset) -> SafeString:
        title = format_html(' <small class="muted d-block">{}</small>', record.title) if record.title else ""
        name = format_html('<span><a href="{}">{}</a>{}</span>', record.get_absolute_url(), record.slug, title)
        return format_html('<span class="starred">{}{}</span>', tags.star(record), name)

    def render_status(self, record: Dataset) -> SafeString:
        return tags.status_badge(record.status, label=record.get_status_display())

    def render_active_count(self, record: Dataset) -> SafeString | str:
        excluded = record.item_count - record.active_count
        text = number_format.format_count(record.active_count)
        if not excluded:
            return text
        return format_html('{} <small class="muted">+ {} excluded</small>', text, number_format.format_count(excluded))

    def render_created_at(self, value: Any) -> SafeString:
        return tags.local_time(value, date_only=True)


class ItemTable(tables.Table):
    """A table of items. Its links keep the list's filter, and it omits columns that are empty on the whole page."""

    key = tables.Column(attrs={"td": {"class": "primary"}})
    category = tables.Column(attrs={"td": {"class": "tight"}})
    input = tables.Column(accessor="excerpt", attrs={"td": {"class": "item-cell"}})
    target = tables.Column(accessor="target_excerpt", attrs={"td": {"class": "target-cell"}})
    excluded = tables.Column(attrs={"td": {"class": "clip clip-short"}})

    class Meta:
        model = Item
        fields = ()
        default = number_format.MISSING
        orderable = False
        attrs = {"class": "data-table item-table"}
        row_attrs = {"id": lambda record: f"item-{record.pk}"}

    def __init__(self, items: list[Any], *args: Any, query: str = "", **kwargs: Any) -> None:
        self.query = f"?{query}" if query else ""
        columns = {"category": "category", "input": "excerpt", "target": "target_excerpt", "excluded": "excluded"}
        empty = [name for name, field in columns.items() if not any(getattr(item, field) for item in items)]
        super().__init__(items, *args, exclude=empty, **kwargs)

    def render_key(self, record: Item) -> SafeString:
        link = render_item_link(record, self.query)
        if record.image is None:
            return link
        image = '<img class="thumb" src="{}" alt="" width="56" height="42" loading="lazy">'
        return format_html('<span class="key-cell">{}{}</span>', format_html(image, record.image.thumbnail_url), link)

    def render_input(self, record: Any) -> SafeString:
        text = f"{record.excerpt}…" if record.is_cut else record.excerpt
        return format_html('<span class="item-question">{}</span>', text)

    def render_target(self, value: str) -> SafeString:
        return format_html('<span class="item-question">{}</span>', value)

    def render_excluded(self, record: Item) -> SafeString | str:
        if not record.excluded:
            return number_format.MISSING
        return format_html('{} <span class="muted">{}</span>', tags.status_badge("excluded"), record.note)


def render_item_link(item: Item, query: str) -> SafeString:
    """Return a link with the item's key, and with the data that the page's script needs to exclude or include it."""
    return format_html(
        '<a href="{}{}" id="link-{}" data-item="{}" data-excluded="{}">{}</a>',
        reverse("item_detail", args=[item.dataset.slug, item.dataset.version, item.pk]),
        query,
        item.pk,
        item.pk,
        "yes" if item.excluded else "",
        item.key,
    )


class HistoryTable(tables.Table):
    """The changes of one row, newest first."""

    at = tables.Column(verbose_name="Time", attrs=TIGHT)
    change = tables.Column()
    actor = tables.Column(verbose_name="By")
    reason = tables.Column()

    class Meta:
        default = number_format.MISSING
        orderable = False

    def render_at(self, value: Any) -> SafeString:
        return tags.local_time(value, seconds=True)

    def render_change(self, record: StatusChange) -> SafeString:
        prefix = "" if record.aspect == "status" else format_html('<span class="muted">{}</span> ', record.aspect)
        return format_html(
            "{}{} {} {}",
            prefix,
            record.from_value or number_format.MISSING,
            _arrow(),
            tags.local_times(record.to_value),
        )


class BadgeHistoryTable(HistoryTable):
    """The changes of one row, with its statuses as badges."""

    class Meta(HistoryTable.Meta):  # A table without a Meta of its own has the defaults of django-tables2.
        pass

    def render_change(self, record: StatusChange) -> SafeString:
        is_status = record.aspect == "status"
        before, after = (
            tags.status_badge(value) if is_status else tags.local_times(value)
            for value in (record.from_value, record.to_value)
        )
        prefix = "" if is_status else format_html('<span class="muted">{}:</span> ', record.aspect)
        start = format_html("{} {} ", before, _arrow()) if record.from_value else ""
        return format_html("{}{}{}", prefix, start, after)


def _arrow() -> SafeString:
    return tags.icon("arrow-right", label="became")


class DecimalColumn(tables.Column):
    def __init__(self, places: int = 2, **kwargs: Any) -> None:
        super().__init__(**{"attrs": NUMBER, **kwargs})
        self.places = places

    def render(self, value: float) -> str:
        return tags.minus(floatformat(value, self.places))


class NormSummaryTable(tables.Table):
    """A row for each dimension of the norms of a dataset with `item_count` items."""

    dimension = tables.Column()
    items = tables.Column(attrs=NUMBER)
    average = DecimalColumn(verbose_name="Mean of means")
    lowest = DecimalColumn()
    highest = DecimalColumn()
    people = DecimalColumn(places=1, verbose_name="People per item")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def __init__(self, norms: list[dict[str, Any]], item_count: int) -> None:
        super().__init__(norms)
        self.item_count = item_count

    def render_items(self, value: int) -> SafeString | str:
        text = number_format.format_count(value)
        if value == self.item_count:
            return text
        return format_html('{} <span class="muted">of {}</span>', text, number_format.format_count(self.item_count))


class ItemNormTable(tables.Table):
    """The norms of one item."""

    dimension = tables.Column()
    mean = DecimalColumn()
    sd = DecimalColumn(verbose_name="SD")
    n = tables.Column(verbose_name="n", attrs=NUMBER)

    class Meta:
        default = number_format.MISSING
        orderable = False
        attrs = {"class": "data-table keep-table"}

    def render_n(self, value: int) -> str:
        return number_format.format_count(value)
