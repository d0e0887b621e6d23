"""The tables of trials, with a column for each grader of their experiment, and of attempts and preflights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django_tables2.data import TableListData

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from runs_app.models import Attempt, Preflight, Trial
from runs_app.models.conditions import load_labels
from runs_app.tables.columns import NUMBER, TIGHT, CountColumn, MoneyColumn, TimeColumn
from runs_app.trial_list.trial_order import COLUMNS as SORTED_COLUMNS
from runs_app.trial_list.trial_order import INDEXED, TrialOrder

# The status whose badge style each outcome shares.
OUTCOME_STATUS: dict[str, str] = {
    Attempt.Outcome.OK: "done",
    Attempt.Outcome.TRANSIENT: "failed",
    Attempt.Outcome.PERMANENT: "failed",
    Attempt.Outcome.ENDPOINT: "paused",
    Attempt.Outcome.RELEASED: "cancelled",
    Attempt.Outcome.LOST: "failed",
    Attempt.Outcome.LATE: "paused",
    Attempt.Outcome.CACHED: "done",
}


class AttemptTable(tables.Table):
    finished_at = TimeColumn(seconds=True, verbose_name="Ended")
    outcome = tables.Column()
    error = tables.Column(empty_values=())
    http_status = tables.Column(verbose_name="HTTP", attrs=NUMBER)
    latency_ms = tables.Column(verbose_name="Latency", attrs=NUMBER)
    input_tokens = CountColumn(verbose_name="Tokens in")
    output_tokens = CountColumn(verbose_name="Tokens out")
    cost_usd = MoneyColumn(verbose_name="Cost", empty_values=())
    worker = tables.Column()

    class Meta:
        model = Attempt
        fields = ()
        default = number_format.MISSING
        orderable = False

    def render_outcome(self, record: Attempt) -> SafeString:
        # The served model and provider share this column, because two more columns would not fit on the page.
        badge = tags.status_badge(OUTCOME_STATUS[record.outcome], label=record.get_outcome_display())
        provider = f"by {record.served_provider}" if record.served_provider else ""
        served = " ".join(part for part in (record.served_model, provider) if part)
        return format_html('{}<br><small class="muted">{}</small>', badge, served) if served else badge

    def render_error(self, record: Attempt) -> str:
        return ": ".join(part for part in (record.error_class, record.error) if part) or number_format.MISSING

    def render_latency_ms(self, value: int) -> str:
        return number_format.format_duration(value / 1000)


class RecentAttemptTable(AttemptTable):
    """The attempts of a run, each with its trial."""

    trial = tables.Column(accessor="trial_id", linkify=("trial_detail", {"pk": tables.A("trial_id")}), attrs=TIGHT)

    class Meta(AttemptTable.Meta):
        sequence = ("trial", "...")


class PreflightTable(tables.Table):
    asked_at = TimeColumn(seconds=True, verbose_name="Time")
    status = tables.Column(verbose_name="Outcome")
    result_text = tables.Column(verbose_name="Details")
    cost_usd = MoneyColumn(verbose_name="Cost", empty_values=())
    actor = tables.Column(verbose_name="By")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def render_status(self, record: Preflight) -> SafeString:
        badge = tags.status_badge(record.status)
        if not record.outdated_since:
            return badge
        return format_html('{} <span class="muted small">{}</span>', badge, "checked before the endpoint changed")

    def render_cost_usd(self, record: Preflight) -> SafeString | str:
        return tags.money(record.cost_usd) if record.was_made and record.finished_at else number_format.MISSING


SCORE = {"th": {"class": "score-head"}, "td": {"class": "score-cell"}}
DEFAULT_COLUMNS = (
    "id",
    "item",
    "dimension",
    "sample_idx",
    "condition",
    "status",
    "rating",
    "score",
    "answer",
    "cost_usd",
)
"""Columns that are shown by default. `score` stands for the columns of all graders."""


class SortedRows(TableListData):
    """The rows of a page, in the database's order."""

    def order_by(self, aliases: Any) -> None:
        """Do nothing, because the rows are sorted already."""


class ScoreColumn(tables.Column):
    """The score of a trial by one grader, with the extracted answer. `gradings` are keyed by (trial, grader)."""

    def __init__(self, grader: Any, gradings: Mapping[tuple[int, int], Any]) -> None:
        super().__init__(verbose_name=grader.label, empty_values=(), orderable=False, attrs=SCORE)
        self.grader, self.gradings = grader, gradings

    def render(self, record: Trial) -> SafeString | str:
        grading = self.gradings.get((record.pk, self.grader.pk))
        if grading is None:
            return number_format.MISSING
        if grading.score is None:
            return format_html('<span class="muted">{}</span>', grading.parse_error)
        if not grading.shows_read_text:
            return str(grading.score_text)
        return format_html('{} <span class="mono muted">{}</span>', grading.score_text, grading.score_raw[:40])


class TrialTable(tables.Table):
    """A page of trials. Links carry the filter, `query`, so that next and previous stay within it."""

    id = tables.Column(verbose_name="Trial", attrs=TIGHT)
    item = tables.Column(attrs={"td": {"class": "item-cell"}})
    category = tables.Column(accessor="item__category", attrs=TIGHT)
    dimension = tables.Column(attrs=TIGHT)
    wave = tables.Column(accessor="run__wave", attrs=TIGHT)
    sample_idx = tables.Column(verbose_name="Sample", attrs=NUMBER)
    condition = tables.Column(accessor="run__condition", attrs={"td": {"class": "name-cell"}})
    status = tables.Column(attrs=TIGHT)
    notes = tables.Column(empty_values=(), attrs=TIGHT)
    rating = tables.Column(attrs=NUMBER)
    target = tables.Column(accessor="item__target", attrs={"td": {"class": "clip clip-short"}})
    answer = tables.Column(accessor="excerpt", empty_values=(), attrs={"td": {"class": "answer-cell"}})
    length = tables.Column(verbose_name="Characters", accessor="answer_length", attrs=NUMBER)
    input_tokens = tables.Column(verbose_name="Tokens in", attrs=NUMBER)
    output_tokens = tables.Column(verbose_name="Tokens out", attrs=NUMBER)
    latency = tables.Column(accessor="latency_ms", attrs=NUMBER)
    cost_usd = tables.Column(verbose_name="Cost", attrs=NUMBER, empty_values=())

    class Meta:
        model = Trial
        fields = ()
        default = number_format.MISSING
        orderable = False
        attrs = {"class": "data-table"}

    def __init__(
        self,
        rows: Sequence[Trial],
        *,
        query: str = "",
        scores: Sequence[ScoreColumn] = (),
        annotations: Mapping[int, Sequence[Any]] | None = None,
        chosen: Sequence[str] = (),
        order: TrialOrder | None = None,
        descending_keys: bool = False,
        sorts_all: bool = False,
    ) -> None:
        """chosen: names of columns, or empty for the default ones. sorts_all: columns without an index are sortable."""
        self.labels = load_labels({row.run.experiment_id for row in rows})
        self.query = f"?{query}" if query else ""
        self.annotations = annotations or {}
        extra = [(f"score_{column.grader.pk}", column) for column in scores]
        names = list(TrialTable.base_columns)
        index = names.index("target")
        sequence = (*names[:index], *[name for name, _ in extra], *names[index:])
        super().__init__(SortedRows(list(rows)), extra_columns=extra, sequence=sequence)
        self.sorts_all = sorts_all
        self.offered = [(name, self.columns[name].verbose_name) for name in self.sequence]
        self.shown = self._select_columns(chosen, order.name if order is not None else "id")
        for name in self.sequence:
            sortable = (
                name == "id" or name in INDEXED or (sorts_all and (name in SORTED_COLUMNS or name in dict(extra)))
            )
            self.columns[name].column.orderable = sortable
        self.exclude = tuple(name for name in self.sequence if name not in self.shown)
        self.order_by = order.parameter if order is not None else "-id" if descending_keys else "id"

    def _select_columns(self, chosen: Sequence[str], sorted_by: str) -> set[str]:
        """Return the names of the visible columns, which always include the one that sorts the list."""
        available = {name for name, _ in self.offered}
        required = {"id", sorted_by} & available
        if names := available & set(chosen):
            return required | names
        default = {name for name in available if name in DEFAULT_COLUMNS or name.startswith("score_")}
        trials = [row.record for row in self.rows]
        if trials and not any(trial.dimension_id or trial.rating is not None for trial in trials):
            default -= {"dimension", "rating"}
        if trials and not any(trial.sample_idx for trial in trials):
            default -= {"sample_idx"}
        return required | default | ({"notes"} if self.annotations else set())

    def render_notes(self, record: Trial) -> SafeString | str:
        """Show flags and notes as icons with their texts as titles, and tags as chips."""
        marks = [_render_mark(annotation) for annotation in self.annotations.get(record.pk, ())]
        return format_html_join(" ", "{}", ((mark,) for mark in marks)) or number_format.MISSING

    def render_latency(self, value: int) -> str:
        return number_format.format_duration(value / 1000)

    def render_wave(self, record: Trial) -> str:
        return str(record.run.wave)

    def render_id(self, record: Trial) -> SafeString:
        return format_html('<a href="{}{}">{}</a>', reverse("trial_detail", args=[record.pk]), self.query, record.pk)

    def render_item(self, record: Any) -> SafeString:
        """Show the key with the beginning of the question and of the target."""
        target = format_html('<span class="item-target">= {}</span>', record.item_target) if record.item_target else ""
        question = format_html('<span class="item-question">{}</span>', record.item_excerpt)
        url = reverse("item_transcript", args=[record.run.experiment.slug, record.item_id])
        head = format_html(
            '<span class="item-head"><a class="mono" href="{}">{}</a>{}</span>', url, record.item.key, target
        )
        return format_html("{}{}", head, question)

    def render_dimension(self, record: Trial) -> str:
        return record.dimension.name if record.dimension else number_format.MISSING

    def render_condition(self, record: Trial) -> str:
        return self.labels[record.run.condition_id]

    def render_status(self, record: Any) -> SafeString:
        kinds = {
            "empty": record.status == Trial.Status.DONE and not record.excerpt,
            "truncated": record.truncated,
            "refused": record.refused,
            "unreadable": bool(record.parse_error),
            "from cache": record.from_cache,
        }
        chips = [format_html(' <span class="chip">{}</span>', name) for name, applies in kinds.items() if applies]
        return format_html("{}" * (1 + len(chips)), tags.status_badge(record.status), *chips)

    def render_answer(self, record: Any) -> SafeString | str:
        if record.error_class and not record.excerpt:
            return format_html('<span class="muted">{}: {}</span>', record.error_class, record.error_excerpt)
        return format_html("<span>{}</span>", record.excerpt) if record.excerpt else number_format.MISSING

    def render_cost_usd(self, record: Trial) -> SafeString | str:
        return tags.money(record.cost_usd) if record.status == Trial.Status.DONE else number_format.MISSING


def _render_mark(annotation: Any) -> SafeString:
    if annotation.kind == "tag":
        return format_html('<span class="chip mono">{}</span>', annotation.text)
    name, label = ("flag", "Flag") if annotation.kind == "flag" else ("chat-left-text", "Note")
    return format_html('<span title="{}">{}</span>', annotation.text[:300], tags.icon(name, label))
