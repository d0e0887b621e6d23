"""The table of item rubric sets."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from runs_app.models import TextSet

NUMBER = {"th": {"class": "num"}, "td": {"class": "num"}}


class TextSetTable(tables.Table):
    name = tables.Column(verbose_name="Set", attrs={"td": {"class": "primary"}}, order_by=("name", "-version"))
    status = tables.Column()
    dataset = tables.Column()
    n_texts = tables.Column(verbose_name="Texts", attrs=NUMBER)
    created_by = tables.Column(verbose_name="By")
    created_at = tables.Column(verbose_name="Created", attrs={"td": {"class": "tight"}})

    class Meta:
        model = TextSet
        fields = ()
        order_by = ("name",)
        default = number_format.MISSING

    def render_name(self, record: TextSet) -> SafeString:
        return format_html('<a href="{}">{}</a>', reverse("text_set", args=[record.name, record.version]), record)

    def render_status(self, record: TextSet) -> SafeString:
        return tags.status_badge(record.status, label=record.get_status_display())

    def render_n_texts(self, value: int) -> str:
        return number_format.format_count(value)

    def render_created_at(self, value: Any) -> SafeString:
        return tags.local_time(value)
