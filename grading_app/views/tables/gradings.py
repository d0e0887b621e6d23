"""The tables of the verdicts on one answer (gradings, preferences and former verdicts), and of sets of item rubrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from grading_app.models import GradeCondition, Grading, SupersededVerdict
from runs_app.models import TextSet
from runs_app.tables.columns import NUMBER, TimeColumn

MAX_RAW = 160  # Characters of the text from which a grader read the score.


@dataclass(frozen=True, slots=True)
class ShownVerdict:
    """A row of the table: a verdict in the words of the page."""

    by: GradeCondition
    verdict: SafeString | str
    reason: SafeString | str
    created_at: datetime | None
    superseded_at: datetime | None = None


class VerdictTable(tables.Table):
    """The verdicts on an answer. heading: of the column of verdicts, which holds numbers if it is "Score"."""

    by = tables.Column()
    verdict = tables.Column()
    reason = tables.Column()
    created_at = TimeColumn(verbose_name="Graded")
    superseded_at = TimeColumn(verbose_name="Replaced")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def __init__(self, verdicts: list[ShownVerdict], heading: str = "Score", label: str = "") -> None:
        is_former = any(verdict.superseded_at for verdict in verdicts)
        attrs = {"class": "data-table", "aria-label": label} if label else None
        super().__init__(verdicts, exclude=() if is_former else ("superseded_at",), attrs=attrs)
        column = self.columns["verdict"].column
        column.verbose_name, column.attrs = heading, NUMBER if heading == "Score" else {}

    def render_by(self, value: GradeCondition) -> SafeString:
        return format_html('<span class="chip">{}</span> {}', value.get_kind_display(), value.label)


def list_gradings(gradings: Iterable[Grading], trial: int) -> list[ShownVerdict]:
    """Return the gradings as rows of the page of the trial with this key."""
    rows = []
    for grading in gradings:
        score = (
            tags.score(grading.score) if grading.parse_ok else tags.status_badge("failed", label=grading.parse_error)
        )
        details = format_html_join(" ", '<span class="chip">{}: {}</span>', grading.details)
        call = _render_judge_link(grading.judged_by_id, trial)
        reason = _join([_render_reasoning(grading.reasoning), details, _render_raw(grading.score_raw), call])
        rows.append(ShownVerdict(grading.condition, score, reason, grading.created_at))
    return rows


def list_preferences(preferences: Iterable[Mapping[str, Any]], trial: int) -> list[ShownVerdict]:
    """Return the preferences between this answer and others, each from a dict with the position of this answer."""
    rows = []
    for preference in preferences:
        row, order = preference["row"], {"a": "first", "b": "second"}.get(preference["position"])
        verdict: SafeString | str
        if row.parse_error:
            verdict = tags.status_badge("failed", label=row.parse_error)
        elif row.winner == "tie":
            verdict = "Tie"
        elif not preference["position"]:
            verdict = str(row.get_winner_display())
        else:
            verdict = format_html("<strong>{}</strong>", "This answer") if preference["won"] else "The other answer"
        if order is not None:
            other = _render_trial_link(preference["other"])
            verdict = format_html('{} <span class="muted">shown {}, compared with {}</span>', verdict, order, other)
        reason = _join([_render_reasoning(row.reasoning), _render_judge_link(row.judged_by_id, trial)])
        rows.append(ShownVerdict(row.condition, verdict, reason, row.created_at))
    return rows


def list_former_verdicts(verdicts: Iterable[SupersededVerdict]) -> list[ShownVerdict]:
    rows = []
    for former in verdicts:
        content = former.content
        verdict: SafeString | str
        if error := content.get("parse_error"):
            verdict = tags.status_badge("failed", label=error)
        elif former.winner:
            verdict = format_html("{} against {}", former.winner, _render_trial_link(former.rival_id))
        else:
            verdict = tags.score(former.score)
        reason = _join([_render_reasoning(content.get("reasoning")) or _render_raw(content.get("score_raw"))])
        rows.append(ShownVerdict(former.condition, verdict, reason, former.given_at, former.superseded_at))
    return rows


def _render_judge_link(call: int | None, trial: int) -> SafeString:
    """Return a link to the judge's call, unless the page shows that call."""
    if call is None or call == trial:
        return tags.EMPTY
    return format_html('<a href="{}">The judge\'s call</a>', reverse("trial_detail", args=[call]))


def _render_trial_link(trial: int | None) -> SafeString:
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
