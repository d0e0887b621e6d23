"""The author's Markdown becomes blocks of plain texts; HTML, pictures and scripts stay text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.publish.report.document import LONGEST, Code, Heading, Listing, Paragraph, Span, read_markdown


def test_each_kind_of_block_is_read():
    text = "# A *title*\n\nOne **two** `three`\nfour\n\n> quoted\n\n- a\n- b\n\n1. c\n\n```\ncode\n```"
    heading, plain, quote, bullets, numbers, code = read_markdown(text)
    assert heading == Heading("A title")
    assert plain.spans == [
        Span("One "),
        Span("two", strong=True),
        Span(" "),
        Span("three", code=True),
        Span(" "),
        Span("four"),
    ]
    assert quote == Paragraph([Span("quoted")], "quote")
    assert bullets == Listing([[Span("a")], [Span("b")]])
    assert numbers == Listing([[Span("c")]], is_ordered=True)
    assert code == Code("code")


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:alert(1))",
        "[x](data:text/html,y)",
        "[x](vbscript:y)",
        "[x](//evil.example)",
        "[x](/admin/)",
        "<javascript:alert(1)>",
        "[x](JaVaScRiPt:y)",
        "[x]: javascript:y\n\n[x]",
    ],
)
def test_only_web_and_mail_addresses_are_links(text):
    assert not any(span.href for block in read_markdown(text) for span in block.spans)


def test_web_addresses_are_links():
    (block,) = read_markdown("[x](https://example.org/?a=1&b=2)")
    assert block.spans == [Span("x", href="https://example.org/?a=1&b=2")]


def test_html_stays_text():
    (block, other) = read_markdown("<script>alert(1)</script>\n\nA <b onclick=x>b</b>")
    assert (
        "".join(span.text for span in [*block.spans, *other.spans]) == "<script>alert(1)</script>A <b onclick=x>b</b>"
    )


def test_a_text_is_truncated_at_its_limit():
    (block,) = read_markdown("a" * (LONGEST + 100))
    assert len(block.spans[0].text) == LONGEST


@given(st.text(max_size=200))
def test_no_text_makes_parsing_fail(text):
    for block in read_markdown(text):
        spans = block.spans if isinstance(block, Paragraph) else []
        assert all(not span.href or span.href.lower().startswith(("http://", "https://", "mailto:")) for span in spans)
