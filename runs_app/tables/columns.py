"""Columns that several tables share."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format

NUMBER = {"th": {"class": "num"}, "td": {"class": "num"}}
TIGHT = {"td": {"class": "tight"}}


class CountColumn(tables.Column):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"attrs": NUMBER, "orderable": False, **kwargs})

    def render(self, value: Any) -> str:
        return number_format.format_count(value)


class TimeColumn(tables.Column):
    def __init__(self, *, seconds: bool = False, **kwargs: Any) -> None:
        super().__init__(**{"attrs": TIGHT, **kwargs})
        self.seconds = seconds

    def render(self, value: Any) -> SafeString:
        return tags.local_time(value, seconds=self.seconds)


class MoneyColumn(tables.Column):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"attrs": NUMBER, **kwargs})

    def render(self, value: Any) -> SafeString:
        return tags.money(value)
