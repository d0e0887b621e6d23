"""Bars of segments, without inline styles."""

import pytest
from django.template import engines
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.web import statuses

counts = st.integers(min_value=0, max_value=10**7)


@given(st.lists(counts, min_size=1, max_size=4), counts)
def test_segments_lie_side_by_side_within_the_bar(amounts, pending):
    parts = [(str(number), amount) for number, amount in enumerate(amounts)]
    placed = statuses.compute_segments(parts, sum(amounts) + pending)
    assert [part.name for part in placed] == [name for name, amount in parts if amount]
    end = 0.0
    for part in placed:
        assert part.start == pytest.approx(end, abs=0.01)
        assert part.width >= statuses.MIN_WIDTH - 0.01
        end = part.start + part.width
    assert end <= 100.01


def test_one_failure_in_a_million_stays_visible():
    done, failed = statuses.compute_segments([("done", 999_999), ("failed", 1)], 1_000_000)
    assert failed.width == statuses.MIN_WIDTH
    assert done.width + failed.width == pytest.approx(100)


def test_zero_trials_give_an_empty_bar():
    assert statuses.compute_segments([("done", 0)], 0) == []


def render(template, **context):
    return engines["django"].from_string(template).render(context)


def test_progress_has_words_for_its_colours():
    html = render("{% progress 9120 640 47 2870 %}")
    text = html.replace("\u202f", "")
    assert 'aria-label="Progress: 9120 done, 640 running, 47 failed, 2870 pending of 12677"' in text
    assert "<b>47</b> failed" in text
    assert "cancelled" not in text
    assert "style=" not in html


def test_money_without_a_limit_has_words_and_no_bar():
    html = render("{% budget spent None None %}", spent=2)
    assert "<rect" not in html
    assert "<b>$2.00</b>" in html


def test_spending_past_the_limit_stays_inside_the_bar():
    html = render("{% budget spent reserved limit %}", spent=9, reserved=3, limit=6)
    assert 'width="75.0%"' in html
    assert 'x="75.0%" y="0" width="25.0%"' in html
