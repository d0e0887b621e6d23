"""Template tags for the components of the site's design. Every value is escaped; no input is marked safe."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django import template
from django.template.base import render_value_in_context
from django.template.context import Context, RequestContext
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString
from django_tables2 import Table

from evalsite.lib.permissions import is_member, is_reader, may_open, uses_admin
from evalsite.lib.text import diff, number_format
from evalsite.lib.web import long_text, statuses
from evalsite.lib.web.statuses import ICONS, SPRITE

register = template.Library()

EMPTY = SafeString()

NOTICE_ICONS = {
    "good": "check-lg",
    "bad": "x-octagon-fill",
    "hold": "exclamation-triangle",
    "live": "info-circle",
    "neutral": "info-circle",
}

register.filter("reads", is_reader)
register.filter("belongs", is_member)
register.filter("beginning", long_text.shorten)
register.filter("uses_admin", uses_admin)


@register.filter
def minus(number: str) -> str:
    """Replace the hyphens of a formatted number with the typographic minus sign. Apply it after `floatformat`."""
    return number.replace("-", "−")


@register.filter
def score(value: float | None) -> str:
    """Format a score, or return "" for None."""
    return "" if value is None else number_format.format_score(value)


@register.filter
def share_of_one(value: float | None) -> str:
    """Return a share as `.84`; 1 is `1.00`."""
    return number_format.MISSING if value is None else f"{value:.2f}".removeprefix("0")


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """Render an icon of the sprite. An icon without a label is decoration and hidden from screen readers.

    Raise ValueError if the sprite has no icon of this name.
    """
    if name not in ICONS:
        raise ValueError(f"no icon is called {name!r}; see evalsite/lib/web/statuses.py")
    href = f"{static(SPRITE)}#{name}"
    if label:
        markup = '<svg class="icon" role="img" aria-label="{}" focusable="false"><use href="{}"></use></svg>'
        return format_html(markup, label, href)
    return format_html('<svg class="icon" aria-hidden="true" focusable="false"><use href="{}"></use></svg>', href)


@register.simple_tag
def star(row: Any) -> SafeString:
    """Render the button that adds the row to the user's favourites, or removes it.

    The row comes from `with_star`; without it, the result is empty. The page includes `partials/star_form.html`.
    """
    is_starred = getattr(row, "is_starred", None)
    if is_starred is None:
        return SafeString()
    return format_html(
        '<button type="submit" class="star" form="star-form" formaction="{}" name="starred" value="{}" '
        'aria-pressed="{}" title="{}">{}</button>',
        row.get_star_url(),
        "0" if is_starred else "1",
        "true" if is_starred else "false",
        "Remove from favourites" if is_starred else "Add to favourites",
        icon("star-fill" if is_starred else "star", label=f"Favourite: {row}"),
    )


@register.simple_tag
def status_badge(status: Any, label: str = "", title: str = "") -> SafeString:
    """Render a status as shape, colour and word. `status` is a word or a member of a TextChoices."""
    if status is None or status == "":
        return format_html('<span class="unknown">{}</span>', number_format.MISSING)
    word = str(getattr(status, "value", status))
    look = statuses.get_look(word)
    text = label or str(getattr(status, "label", word.replace("_", " ").capitalize()))
    hint = format_html(' title="{}"', title) if title else EMPTY
    return format_html(
        '<span class="status tone-{} shape-{}"{}>{}<span>{}</span></span>',
        look.tone,
        look.icon,
        hint,
        icon(look.icon),
        text,
    )


@register.simple_tag
def progress(
    done: int,
    running: int = 0,
    failed: int = 0,
    pending: int = 0,
    cancelled: int = 0,
    *,
    legend: bool = True,
    label: str = "Progress",
) -> SafeString:
    """Render a progress bar with its legend.

    The numbers are counts of trials or of anything else. `pending` is the empty part of the bar.
    """
    counts = [("done", done), ("running", running), ("failed", failed), ("cancelled", cancelled)]
    total = sum(amount for _, amount in counts) + pending
    description = [
        (name, number_format.format_count(n)) for name, n in [*counts, ("pending", pending)] if n or name == "done"
    ]
    aria_label = (
        f"{label}: "
        + ", ".join(f"{text} {name}" for name, text in description)
        + f" of {number_format.format_count(total)}"
    )
    return format_html(
        '<div class="meter">{}{}</div>',
        _render_bar(statuses.compute_segments(counts, total), aria_label),
        _render_legend(description) if legend else EMPTY,
    )


@register.simple_tag
def budget(
    spent: Decimal | None, reserved: Decimal | None, limit: Decimal | None, *, legend: bool = True
) -> SafeString:
    """Render money spent and reserved against a limit, all in US dollars. Without a limit, render only the words."""
    description = [("spent", number_format.format_money(spent)), ("reserved", number_format.format_money(reserved))]
    description += [("budget", number_format.format_money(limit))] if limit is not None else []
    words = _render_legend(description, amount_first=False) if legend else EMPTY
    if limit is None:
        return format_html('<div class="meter">{}</div>', words)
    parts = [("spent", float(spent or 0)), ("reserved", float(reserved or 0))]
    total = max(float(limit), sum(amount for _, amount in parts))
    aria_label = "Budget: " + ", ".join(f"{name} {text}" for name, text in description)
    return format_html(
        '<div class="meter">{}{}</div>', _render_bar(statuses.compute_segments(parts, total), aria_label), words
    )


def _render_bar(segments: list[statuses.Segment], aria_label: str) -> SafeString:
    rects = format_html_join(
        "",
        '<rect class="bar-{}" x="{}%" y="0" width="{}%" height="100%"></rect>',
        ((part.name, part.start, part.width) for part in segments),
    )
    return format_html('<svg class="bar" role="img" aria-label="{}">{}</svg>', aria_label, rects)


def _render_legend(description: list[tuple[str, str]], *, amount_first: bool = True) -> SafeString:
    order = '<li class="key-{0}"><b>{1}</b> {0}</li>' if amount_first else '<li class="key-{0}">{0} <b>{1}</b></li>'
    return format_html('<ul class="legend">{}</ul>', format_html_join("", order, description))


@register.simple_tag
def money(value: Decimal | float | str | None) -> SafeString:
    """Format US dollars with suitable digits and show the exact value on hover. None becomes "unknown"."""
    text = number_format.format_money(value)
    if text == "unknown":
        return format_html('<span class="unknown">{}</span>', text)
    return format_html('<span class="figure-text" title="${}">{}</span>', format(Decimal(str(value)), "f"), text)


@register.simple_tag
def count(value: float | Decimal | None) -> str:
    """Format a number with thin spaces between thousands. The result is plain text, also valid in attributes."""
    return number_format.format_count(value)


@register.simple_tag
def duration(seconds: float | timedelta | None) -> str:
    """Format seconds or a timedelta in at most two units. The result is plain text."""
    return number_format.format_duration(seconds)


@register.simple_tag
def local_time(moment: datetime | str | None, *, seconds: bool = False, date_only: bool = False) -> SafeString:
    """Render a time in the reader's time zone, with UTC on hover. Raise ValueError for a time without a zone.

    A text is a time in ISO 8601, as JSON columns store it.
    """
    if moment is None:
        return format_html('<span class="unknown">{}</span>', number_format.MISSING)
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if timezone.is_naive(moment):
        raise ValueError("a time without a zone cannot be shown in the reader's")
    pattern = "%Y-%m-%d" if date_only else "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    utc = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        utc.isoformat(timespec="seconds"),
        utc.strftime("%Y-%m-%d %H:%M:%S"),
        timezone.localtime(moment).strftime(pattern),
    )


UTC_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d)(:\d\d)? UTC")


@register.filter
def local_times(text: str) -> SafeString:
    """Escape a text, and show its times in UTC, such as `2026-03-01 14:05 UTC`, as `local_time` does."""
    texts, start = [], 0
    for match in UTC_TIME.finditer(text):
        moment = datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3] or ''}+00:00")
        texts += [conditional_escape(text[start : match.start()]), local_time(moment, seconds=bool(match[3]))]
        start = match.end()
    return format_html_join("", "{}", ((one,) for one in (*texts, conditional_escape(text[start:]))))


@register.simple_tag
def breadcrumbs(*parts: str) -> SafeString:
    """Render pairs of label and address, then this page's label: `{% breadcrumbs "Datasets" url name %}`."""
    pairs = list(zip(parts[:-1:2], parts[1::2], strict=True))
    links = format_html_join("", '<li><a href="{1}">{0}</a></li>', pairs)
    current = format_html('<li aria-current="page">{}</li>', parts[-1]) if parts else EMPTY
    return format_html('<nav class="crumbs" aria-label="Breadcrumbs"><ol>{}{}</ol></nav>', links, current)


@register.simple_tag(takes_context=True)
def nav_link(context: RequestContext, url_name: str, label: str, *, also: str = "") -> SafeString:
    """Render a link of the navigation, or "" if the reader may not open its page.

    The link is marked as current within its section and below the addresses in `also`, which spaces separate.
    """
    try:
        href = reverse(url_name)
    except NoReverseMatch:
        return EMPTY
    if not may_open(context["user"], href):
        return EMPTY
    current = _mark_current(context, href, section=href != "/")
    if not current and any(_mark_current(context, other, section=True) for other in also.split()):
        current = format_html(' aria-current="{}"', "true")
    return format_html('<a href="{}"{}>{}</a>', href, current, label)


@register.simple_tag
def term(address: str, text: str) -> SafeString:
    """Render a term as a link to its section in the help. address: such as `glossary#condition`."""
    page, _, anchor = address.partition("#")
    return format_html('<a class="help-link" href="{}#{}">{}</a>', reverse("help_page", args=[page]), anchor, text)


@register.simple_tag(takes_context=True)
def tab(context: RequestContext, href: str, label: str, amount: int | None = None, *, within: str = "") -> SafeString:
    """Render one tab of a `<nav class="tabs">`.

    The tab is marked as current on its own page and on pages below `within`. `amount` is a small count beside the
    label.
    """
    number = (
        EMPTY
        if amount is None
        else format_html(' <span class="tab-count">{}</span>', number_format.format_count(amount))
    )
    current = _mark_current(context, href, section=False)
    if within and getattr(context.get("request"), "path", "").startswith(within):
        current = format_html(' aria-current="{}"', "true")
    return format_html('<a href="{}"{}>{}{}</a>', href, current, label, number)


def _mark_current(context: RequestContext, href: str, *, section: bool) -> SafeString:
    path = getattr(context.get("request"), "path", "")
    if path == href:
        return format_html(' aria-current="{}"', "page")
    return format_html(' aria-current="{}"', "true") if section and path.startswith(href) else EMPTY


@register.simple_tag
def text_diff(pieces: Iterable[diff.Piece] | None, tag: str) -> SafeString:
    """Render one side of a text comparison: each piece that differs inside `tag`, such as del, ins or mark."""
    marked = (
        (format_html("<{0}>{1}</{0}>", tag, piece.text) if piece.differs else piece.text,) for piece in pieces or ()
    )
    return format_html_join("", "{}", marked)


@register.simple_block_tag
def empty_state(
    content: str,
    title: str,
    icon_name: str = "search",
    *,
    action_url: str = "",
    action_label: str = "",
    second_url: str = "",
    second_label: str = "",
) -> SafeString:
    """Render the placeholder of an empty list: an icon, a title, a sentence (the block's content) and the next step."""
    links = [("btn btn-primary", action_url, action_label), ("btn", second_url, second_label)]
    parts = {
        "title": title,
        "text": _drop_if_blank(content),
        "icon_name": icon_name,
        "links": [link for link in links if link[1]],
    }
    return render_to_string("partials/empty_state.html", parts)


def _drop_if_blank(content: str) -> str:
    return content if content.strip() else ""


@register.simple_block_tag
def notice(
    content: str, tone: str = "live", icon_name: str = "", *, role: str = "", dismissible: bool = False
) -> SafeString:
    """Render a note above the content it is about. `tone` is good, bad, hold, live or neutral and gives the icon."""
    parts = {
        "tone": tone,
        "icon_name": icon_name or NOTICE_ICONS[tone],
        "role": role,
        "text": _drop_if_blank(content),
        "dismissible": dismissible,
    }
    return render_to_string("partials/notice.html", parts)


@register.filter
def message_tone(level_tag: str) -> str:
    """Return the tone of a notice that shows a message of this level."""
    return {"success": "good", "error": "bad", "warning": "hold"}.get(level_tag, "live")


@register.simple_block_tag(takes_context=True)
def action(
    context: Context,
    content: str,
    url: str,
    label: str,
    icon_name: str = "",
    *,
    submit_label: str = "",
    tone: str = "",
    reason: str = "",
    name: str = "",
    value: str = "",
    small: bool = False,
) -> SafeString:
    """Render a button that opens a form with one sentence (the block's content), a reason and the button that posts.

    `reason` is "required", "optional" or "" for none; `name` and `value` make a hidden input. `tone` may be "danger".
    """
    parts = {
        "text": _drop_if_blank(content),
        "url": url,
        "label": label,
        "icon_name": icon_name,
        "submit_label": submit_label or label,
        "tone": tone,
        "reason": reason,
        "name": name,
        "value": value,
        "small": small,
        "csrf_token": context.get("csrf_token"),
    }
    return render_to_string("partials/action.html", parts)


@register.inclusion_tag("partials/rest_of_text.html")
def rest_of_text(text: str | None, url: str = "", *, post_to: str = "", size: int = 0) -> dict[str, Any]:
    """Render how much of a long text `beginning` shows, with a link to the whole text. A short text gives nothing.

    With `post_to`, a button sends the surrounding form to this address instead, because the text is not saved yet.
    size: of the whole text in bytes, if `text` may be its beginning only.
    """
    shown = long_text.shorten(text)
    length = len(text or "")
    return {
        "cut": length > len(shown) or size > len(shown.encode()),
        "shown": len(shown),
        "length": length,
        "size": size,
        "url": url,
        "post_to": post_to,
    }


@register.inclusion_tag("partials/turn.html")
def turn(
    role: str,
    text: str = "",
    *,
    image_url: str = "",
    image_alt: str = "",
    note: str = "",
    whole_url: str = "",
    post_to: str = "",
    size: int = 0,
) -> dict[str, Any]:
    """Render one turn of a conversation as it was sent or received. `role` is system, user, assistant or another.

    A long text is cut; `whole_url` is the address of a file with the whole text. A button posts the surrounding form to
    `post_to` for it instead, because the text is not saved yet. size: of the whole text in bytes, if `text` may be
    cut already.
    """
    known = {"system": "gear", "user": "person", "assistant": "robot"}
    return {
        "role": role,
        "role_class": role if role in known else "other",
        "icon_name": known.get(role, "chat-left-text"),
        "text": text,
        "image_url": image_url,
        "image_alt": image_alt,
        "note": note,
        "whole_url": whole_url,
        "post_to": post_to,
        "size": size,
    }


@register.simple_tag(takes_context=True)
def table_rows(context: Context, table: Table) -> SafeString:
    """Render the rows of a table of django-tables2.

    All cells of a column have the same attributes and label. A loop in a template would compute them for each cell.
    """
    columns = [
        (
            column.name,
            format_html(
                '<td {} role="cell" data-label="{}"><div class="cell">', column.attrs["td"].as_html(), column.header
            ),
        )
        for column in table.columns
    ]
    rows = (
        (
            row.attrs.as_html(),
            format_html_join(
                "",
                "{}{}</div></td>",
                ((start, render_value_in_context(row.get_cell(name), context)) for name, start in columns),
            ),
        )
        for row in table.paginated_rows
    )
    return format_html_join("", '<tr {} role="row">{}</tr>', rows)
