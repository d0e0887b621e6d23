"""The tables of queues, of their results and of rated items."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from grading_app.grading.rating.questions import list_questions
from grading_app.grading.rating.queue_results import QuestionResult, list_item_means
from grading_app.models import RatingQueue
from grading_app.results.table import ResultColumn, ResultTable, Row
from runs_app.models import Trial
from runs_app.models.conditions import load_labels
from runs_app.tables.columns import NUMBER


class QueueTable(tables.Table):
    name = tables.Column(verbose_name="Queue", attrs={"td": {"class": "primary"}})
    status = tables.Column()
    dataset = tables.Column(verbose_name="Rated units")
    n_raters = tables.Column(verbose_name="Raters", attrs=NUMBER)
    n_given = tables.Column(verbose_name="Ratings", attrs=NUMBER)
    owner = tables.Column()
    created_at = tables.Column(verbose_name="Created", attrs={"td": {"class": "tight"}})

    class Meta:
        model = RatingQueue
        fields = ()
        default = number_format.MISSING

    def render_name(self, record: RatingQueue) -> SafeString:
        return format_html(
            '<a href="{}">{}</a> <small class="muted d-block">{}</small>',
            record.get_absolute_url(), record.name, record.title,
        )  # fmt: skip

    def render_dataset(self, record: RatingQueue) -> str:
        return f"answers of {record.experiment}" if record.rates_answers else str(record.dataset)

    def render_status(self, record: RatingQueue) -> SafeString:
        return tags.status_badge(record.status, label=record.get_status_display())

    def render_n_given(self, value: int, record: RatingQueue) -> str:
        if experiment := record.stored_experiment:
            return format_html('<a href="{}">in a file</a>', experiment.get_absolute_url())
        return number_format.format_count(value)

    def order_n_given(self, rows: QuerySet[Any], is_descending: bool) -> tuple[QuerySet[Any], bool]:
        """Sort queues whose ratings are in a file last in both directions, because their number is not counted."""
        return rows.order_by("is_in_file", "-n_given" if is_descending else "n_given", "-created_at", "pk"), True

    def render_created_at(self, value: Any) -> SafeString:
        return tags.local_time(value, date_only=True)


class ItemMeansTable(tables.Table):
    key = tables.Column(verbose_name="Item", attrs={"td": {"class": "primary"}})
    category = tables.Column(attrs={"td": {"class": "tight"}})
    question = tables.Column(verbose_name="On")
    n = tables.Column(verbose_name="Ratings", attrs=NUMBER)
    mean = tables.Column(attrs=NUMBER)
    sd = tables.Column(verbose_name="SD", attrs=NUMBER)
    seconds = tables.Column(verbose_name="Median time (s)", attrs=NUMBER)

    class Meta:
        default = number_format.MISSING

    def render_key(self, value: str, record: dict[str, Any]) -> SafeString:
        link = format_html('<a href="{}">{}</a>', record["address"], value)
        return (
            format_html('{} <small class="muted d-block">{}</small>', link, record["answer"])
            if record["answer"]
            else link
        )

    def render_mean(self, value: float) -> str:
        return f"{value:.2f}"

    def render_sd(self, value: float) -> str:
        return f"{value:.2f}"

    def render_seconds(self, value: float) -> str:
        return f"{value:.1f}"


def make_question_table(results: list[QuestionResult], queue: RatingQueue) -> ResultTable:
    """Return the results of a queue: a row for each dimension or criterion."""
    columns = [
        ResultColumn("name", "Question" if queue.rubric else "Dimension"),
        ResultColumn("n", "Ratings", "count"),
        ResultColumn("items", capfirst(queue.unit_label_plural), "count"),
        ResultColumn("raters", "Raters", "count"),
        ResultColumn("mean", "Mean", "number"),
        ResultColumn("sd", "SD of items", "number"),
        ResultColumn("within", "SD of raters", "number"),
        ResultColumn("alpha", "Alpha, nominal" if queue.rates_pairs else "Alpha, ordinal", "coefficient"),
        ResultColumn("icc", "ICC(2,1)", "coefficient"),
        ResultColumn("icc_interval", "95 % interval", "coefficient_interval"),
    ]
    left_out = ("mean", "sd", "within", "icc", "icc_interval") if queue.rates_pairs else ()
    rows: list[Row] = [
        {
            **{name: getattr(result, name) for name in ("name", "n", "items", "raters", "mean", "sd", "within")},
            "alpha": result.alpha.estimate if result.alpha else None,
            "icc": result.icc.estimate if result.icc else None,
            "icc_interval": (result.icc.low, result.icc.high) if result.icc and result.icc.low is not None else None,
        }
        for result in results
    ]
    return ResultTable("questions", "Results", [one for one in columns if one.name not in left_out], rows)


def list_item_rows(queue: RatingQueue) -> list[dict[str, Any]]:
    """Return the rated items, those with the fewest ratings first."""
    items = {row[0]: row for row in queue.dataset.items.values_list("pk", "key", "category")}
    answers = _list_answer_labels(queue) if queue.rates_answers else {}
    question_names = {question.key: question.name for question in list_questions(queue)}
    rows = [
        {
            "key": items[line.item][1],
            "category": items[line.item][2],
            "question": question_names[line.dimension, line.criterion],
            "n": line.n,
            "mean": line.mean,
            "sd": line.sd,
            "seconds": line.seconds,
            "answer": " or ".join(answers[key] for key in (line.trial, line.rival) if key),
            "address": (
                reverse("trial_detail", args=[line.trial])
                if line.trial
                else reverse("item_detail", args=[queue.dataset.slug, queue.dataset.version, line.item])
            ),
        }
        for line in list_item_means(queue)
    ]
    return sorted(rows, key=lambda row: (row["n"], row["key"], row["question"]))


def _list_answer_labels(queue: RatingQueue) -> dict[int, str]:
    """Return the condition of each rated answer, and its wave if there are several. Raters never see it."""
    names_wave = queue.experiment is not None and queue.experiment.has_several_waves()
    keys = {key for pair in queue.answers.values_list("trial", "rival") for key in pair if key}
    trials = Trial.objects.filter(pk__in=keys).select_related("run__wave")
    labels = load_labels([queue.experiment_id] if queue.experiment_id else [])
    answers = trials.defer("answer", "raw_response", "messages", "reasoning")
    return {
        trial.pk: f"{trial.run.get_label(labels, names_wave=names_wave)}, sample {trial.sample_idx}"
        for trial in answers
    }
