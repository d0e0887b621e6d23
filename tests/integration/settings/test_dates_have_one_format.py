"""Dates and times have one format, on pages and in the admin."""

from datetime import UTC, date, datetime

from django.utils import formats


def test_dates_are_iso_dates_with_24_hour_times():
    moment = datetime(2026, 3, 5, 14, 7, tzinfo=UTC)
    assert formats.localize(moment) == "2026-03-05 14:07"
    assert formats.localize(date(2026, 3, 5)) == "2026-03-05"
    assert formats.localize_input(date(2026, 3, 5)) == "2026-03-05"
