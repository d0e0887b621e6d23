"""The table of all answers to one item, with a row for each condition and dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from datasets_app.models import Item, Norm
from evalsite.lib.text import number_format
from grading_app.results.item_answers import ItemAnswers
from runs_app.tables.columns import NUMBER, TIGHT


class ItemAnswerTable(tables.Table):
    experiment = tables.Column(accessor="experiment__slug", attrs=TIGHT)
    condition = tables.Column(accessor="condition__label", attrs={"td": {"class": "clip clip-short"}})
    dimension = tables.Column(accessor="dimension__name", attrs=TIGHT)
    done = tables.Column(verbose_name="Answers", attrs=NUMBER)
    mean = tables.Column(verbose_name="Rating", empty_values=(), attrs=NUMBER)
    scores = tables.Column(empty_values=())
    answers = tables.Column(verbose_name="First answers", empty_values=())

    class Meta:
        orderable = False
        default = number_format.MISSING
        attrs = {"class": "data-table"}

    def __init__(self, rows: list[ItemAnswers], item: Item, norms: Mapping[str, Norm]) -> None:
        super().__init__(rows)
        self.item, self.norms = item, norms
        if not any(row.dimension for row in rows):
            self.exclude = ("dimension", "mean")

    def render_experiment(self, record: ItemAnswers) -> SafeString:
        return format_html('<a href="{}">{}</a>', record.experiment.get_absolute_url(), record.experiment.slug)

    def render_condition(self, value: str, record: ItemAnswers) -> SafeString:
        anchor = f"c{record.condition.pk}-{record.dimension.pk}" if record.dimension else f"c{record.condition.pk}"
        url = reverse("item_transcript", args=[record.experiment.slug, self.item.pk])
        return format_html('<a href="{}#{}">{}</a>', url, anchor, value)

    def render_done(self, record: ItemAnswers) -> SafeString:
        query: dict[str, Any] = {
            "experiment": record.experiment.slug, "condition": record.condition.pk, "item": self.item.key
        }  # fmt: skip
        if record.dimension:
            query["dimension"] = record.dimension.pk
        text = str(record.done) if record.done == record.n else f"{record.done} of {record.n}"
        return format_html('<a href="{}?{}">{}</a>', reverse("trial_list"), urlencode(query), text)

    def render_mean(self, record: ItemAnswers) -> SafeString | str:
        if record.mean is None:
            return number_format.MISSING
        norm = self.norms.get(record.dimension.name) if record.dimension else None
        sd_text = "" if record.sd is None else f"SD {record.sd:.2f}"
        distance = "" if norm is None else f"norm {record.mean - norm.mean:+.2f}".replace("-", "−")
        details = ", ".join(part for part in (sd_text, distance) if part)
        return format_html('{} <span class="muted small">{}</span>', _format_number(record.mean), details)

    def render_scores(self, record: ItemAnswers) -> SafeString | str:
        if not record.scores:
            return number_format.MISSING
        rows = (
            (
                score.grader.label,
                _format_number(score.mean),
                "" if score.sd is None else f"SD {score.sd:.2f}, ",
                score.n,
            )
            for score in record.scores
        )
        return format_html_join("", '<div>{} <strong>{}</strong> <span class="muted small">{}n {}</span></div>', rows)

    def render_answers(self, record: ItemAnswers) -> SafeString:
        lines = [(trial.get_absolute_url(), _get_name(trial), _describe_scores(trial)) for trial in record.answers]
        return format_html_join("", '<div class="answer-links"><a href="{}">{}</a> {}</div>', lines)


def _format_number(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _get_name(trial: Any) -> str:
    wave = f"{trial.run.wave}, " if trial.run.wave.number else ""
    return f"{wave}sample {trial.sample_idx}"


def _describe_scores(trial: Any) -> str:
    if trial.status != "done":
        return str(trial.error_class or trial.get_status_display())
    text = str(trial.excerpt)
    return text if trial.rating is None else f"{trial.rating}: {text}" if text != str(trial.rating) else text
