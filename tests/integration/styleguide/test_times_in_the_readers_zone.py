"""Times are shown in the browser's time zone."""

from datetime import UTC, datetime

import pytest
from django.http import HttpResponse
from django.template import engines
from django.utils import timezone

from evalsite.middleware import TimezoneMiddleware

MOMENT = datetime(2025, 3, 14, 23, 30, 5, tzinfo=UTC)


def render_with(rf, cookie):
    request = rf.get("/")
    if cookie is not None:
        request.COOKIES["tz"] = cookie
    answer = TimezoneMiddleware(
        lambda _: HttpResponse(engines["django"].from_string("{% local_time m %}").render({"m": MOMENT}))
    )
    return answer(request).content.decode()


@pytest.mark.parametrize(
    ("cookie", "shown"),
    [
        (None, "2025-03-14 23:30"),
        ("", "2025-03-14 23:30"),
        ("Asia/Tokyo", "2025-03-15 08:30"),
        ("Asia%2FTokyo", "2025-03-15 08:30"),
        ("America/Los_Angeles", "2025-03-14 16:30"),
        ("Asia/Kathmandu", "2025-03-15 05:15"),
    ],
)
def test_a_time_is_shown_in_the_zone_of_the_cookie(rf, cookie, shown):
    html = render_with(rf, cookie)
    assert f">{shown}</time>" in html
    assert 'title="2025-03-14 23:30:05 UTC"' in html
    assert 'datetime="2025-03-14T23:30:05+00:00"' in html


@pytest.mark.parametrize(
    "cookie", ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", "%00", "<script>", "UTC\n", "a" * 5000]
)
def test_a_zone_that_does_not_exist_leaves_utc(rf, cookie):
    assert ">2025-03-14 23:30</time>" in render_with(rf, cookie)


def test_the_zone_does_not_leak_into_the_next_request(rf):
    render_with(rf, "Asia/Tokyo")
    assert timezone.get_current_timezone_name() == "UTC"


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="without a zone"):
        engines["django"].from_string("{% local_time m %}").render({"m": datetime(2025, 3, 14)})  # noqa: DTZ001


def test_a_missing_time_is_a_dash():
    assert "–" in engines["django"].from_string("{% local_time None %}").render()


def test_times_in_a_text_are_shown_in_the_readers_zone():
    with timezone.override("Asia/Tokyo"):
        html = (
            engines["django"]
            .from_string("{{ text|local_times }}")
            .render({"text": "<b> until 2025-03-14 23:30 UTC, then 2025-03-15 00:00:01 UTC"})
        )
    assert html == (
        '&lt;b&gt; until <time datetime="2025-03-14T23:30:00+00:00" title="2025-03-14 23:30:00 UTC">'
        "2025-03-15 08:30</time>"
        ', then <time datetime="2025-03-15T00:00:01+00:00" title="2025-03-15 00:00:01 UTC">2025-03-15 09:00:01</time>'
    )


def test_a_stored_text_of_a_time_is_shown_like_a_time():
    template = engines["django"].from_string("{% local_time m %}")
    assert template.render({"m": MOMENT.isoformat()}) == template.render({"m": MOMENT})
