"""The tables of the verdicts on one answer: gradings, preferences and former verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from runs_app.tables.columns import NUMBER, TimeColumn

MAX_RAW = 160  # Characters of the text from which a grader read the score.


class VerdictTable(tables.Table):
    by = tables.Column(accessor="condition")
    reason = tables.Column(empty_values=())
    created_at = TimeColumn(verbose_name="Graded")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def __init__(self, verdicts: list[Any], trial: int) -> None:
        """Show the verdicts on the page of the trial with this key."""
        super().__init__(verdicts)
        self.trial = trial

    def render_by(self, value: Any) -> SafeString:
        return format_html('<span class="chip">{}</span> {}', value.get_kind_display(), value.label)

    def _render_judge_link(self, call: int | None) -> SafeString:
        if call is None or call == self.trial:
            return tags.EMPTY
        return format_html('<a href="{}">The judge\'s call</a>', reverse("trial_detail", args=[call]))


class GradingTable(VerdictTable):
    score = tables.Column(attrs=NUMBER, empty_values=())

    class Meta(VerdictTable.Meta):
        sequence = ("by", "score", "...")

    def render_score(self, record: Any) -> SafeString | str:
        return tags.score(record.score) if record.parse_ok else tags.status_badge("failed", label=record.parse_error)

    def render_reason(self, record: Any) -> SafeString | str:
        details = format_html_join(" ", '<span class="chip">{}: {}</span>', record.details)
        texts = [_render_reasoning(record.reasoning), details, _render_raw(record.score_raw)]
        return _join([*texts, self._render_judge_link(record.judged_by_id)])


class PreferenceTable(VerdictTable):
    """The preferences between this answer and others, each in a dict with the position of this answer."""

    by = tables.Column(accessor="row__condition")
    created_at = TimeColumn(accessor="row__created_at", verbose_name="Graded")
    preference = tables.Column(empty_values=())

    class Meta(VerdictTable.Meta):
        attrs = {"class": "data-table", "aria-label": "Preferences of judges and people between two answers"}
        sequence = ("by", "preference", "...")

    def render_preference(self, record: Mapping[str, Any]) -> SafeString:
        order = {"a": "first", "b": "second"}.get(record["position"])
        if order is None:
            return format_html("{}", _render_winner(record))
        return format_html(
            '{} <span class="muted">shown {}, compared with {}</span>',
            _render_winner(record), order, _render_trial_link(record["other"]),
        )  # fmt: skip

    def render_reason(self, record: Mapping[str, Any]) -> SafeString | str:
        row = record["row"]
        return _join([_render_reasoning(row.reasoning), self._render_judge_link(row.judged_by_id)])


class FormerVerdictTable(VerdictTable):
    score = tables.Column(attrs=NUMBER, empty_values=())
    created_at = TimeColumn(accessor="given_at", verbose_name="Graded")
    superseded_at = TimeColumn(verbose_name="Replaced")

    class Meta(VerdictTable.Meta):
        sequence = ("by", "score", "...")

    def render_score(self, record: Any) -> SafeString | str:
        if error := record.content.get("parse_error"):
            return tags.status_badge("failed", label=error)
        if record.winner:
            return format_html("{} against {}", record.winner, _render_trial_link(record.rival_id))
        return tags.score(record.score)

    def render_reason(self, record: Any) -> SafeString | str:
        content = record.content
        return _join([_render_reasoning(content.get("reasoning")) or _render_raw(content.get("score_raw"))])


def _render_winner(record: Mapping[str, Any]) -> SafeString | str:
    row = record["row"]
    if row.parse_error:
        return tags.status_badge("failed", label=row.parse_error)
    if row.winner == "tie":
        return "Tie"
    if not record["position"]:
        return str(row.get_winner_display())
    return format_html("<strong>{}</strong>", "This answer") if record["won"] else "The other answer"


def _render_trial_link(trial: int) -> SafeString:
    return format_html('<a href="{}">trial {}</a>', reverse("trial_detail", args=[trial]), trial)


def _render_reasoning(text: str | None) -> SafeString:
    return format_html('<p class="grading-reasoning">{}</p>', text) if text else tags.EMPTY


def _render_raw(text: str | None) -> SafeString:
    if not text:
        return tags.EMPTY
    shown = Truncator(text).chars(MAX_RAW)
    return format_html('<span class="muted">read <span class="mono">{}</span></span>', shown)


def _join(parts: list[SafeString]) -> SafeString | str:
    return format_html_join(" ", "{}", ((part,) for part in parts if part)) or number_format.MISSING
