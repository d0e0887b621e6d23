"""The table of trials, with a column for each grader of their experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from runs_app.models import Trial
from runs_app.tables import NUMBER, TIGHT


class ScoreColumn(tables.Column):
    """The score of a trial by one grader, with the extracted answer. `gradings` are keyed by (trial, grader)."""

    def __init__(self, grader: Any, gradings: Mapping[tuple[int, int], Any]) -> None:
        super().__init__(verbose_name=grader.label, empty_values=(), orderable=False, attrs=TIGHT)
        self.grader, self.gradings = grader, gradings

    def render(self, record: Trial) -> SafeString | str:
        grading = self.gradings.get((record.pk, self.grader.pk))
        if grading is None:
            return number_format.MISSING
        if grading.score is None:
            return format_html('<span class="muted">{}</span>', grading.parse_error)
        text = number_format.format_score(grading.score)
        if self.grader.kind == "rule":
            text = {0: "✗ wrong", 1: "✓ right"}.get(grading.score, text)
        return format_html('{} <span class="mono muted">{}</span>', text, grading.score_raw[:40])


class TrialTable(tables.Table):
    """A page of trials. `query` is the filter; links carry it, so that next and previous stay within the filter."""

    id = tables.Column(verbose_name="Trial", attrs=TIGHT)
    item = tables.Column(attrs={"td": {"class": "mono tight"}})
    dimension = tables.Column(attrs=TIGHT)
    sample_idx = tables.Column(verbose_name="Sample", attrs=NUMBER)
    condition = tables.Column(accessor="run__condition", attrs={"td": {"class": "clip clip-short"}})
    status = tables.Column(attrs=TIGHT)
    rating = tables.Column(attrs=NUMBER)
    answer = tables.Column(accessor="excerpt", empty_values=(), attrs={"td": {"class": "clip clip-answer"}})
    cost_usd = tables.Column(verbose_name="Cost", attrs=NUMBER, empty_values=())

    class Meta:
        model = Trial
        fields = ()
        default = number_format.MISSING
        orderable = False
        attrs = {"class": "data-table"}

    def __init__(self, *args: Any, query: str = "", scores: Sequence[ScoreColumn] = (), **kwargs: Any) -> None:
        self.query = f"?{query}" if query else ""
        columns = [(f"score_{one.grader.pk}", one) for one in scores]
        super().__init__(*args, extra_columns=columns, sequence=("...", "answer", "cost_usd"), **kwargs)

    def render_id(self, record: Trial) -> SafeString:
        return format_html('<a href="{}{}">{}</a>', reverse("trial_detail", args=[record.pk]), self.query, record.pk)

    def render_dimension(self, record: Trial) -> str:
        return record.dimension.name if record.dimension else number_format.MISSING

    def render_condition(self, record: Trial) -> str:
        return record.run.condition.label

    def render_status(self, record: Any) -> SafeString:
        kinds = {
            "empty": record.status == Trial.Status.DONE and not record.excerpt,
            "truncated": record.truncated,
            "refused": record.refused,
            "unreadable": bool(record.parse_error),
            "from cache": record.from_cache,
        }
        chips = [format_html(' <span class="chip">{}</span>', name) for name, is_so in kinds.items() if is_so]
        return format_html("{}" * (1 + len(chips)), tags.status_badge(record.status), *chips)

    def render_answer(self, record: Any) -> SafeString | str:
        if record.error_class and not record.excerpt:
            return format_html('<span class="muted">{}: {}</span>', record.error_class, record.error_excerpt)
        return record.excerpt or number_format.MISSING

    def render_cost_usd(self, record: Trial) -> SafeString | str:
        return tags.money(record.cost_usd) if record.status == Trial.Status.DONE else number_format.MISSING
