"""The matrix of items by conditions in an experiment, and the pages of one item: its answers and its transcript."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import django_tables2 as tables
import numpy as np
from django.core.paginator import Paginator
from django.db.models import Q
from django.db.models.functions import Left
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe
from django_htmx.http import push_url

from datasets_app.models import Item, Norm
from datasets_app.tables import ItemNormTable
from evalsite.lib.permissions import readers_only
from evalsite.lib.text import number_format
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.addresses import change_query
from evalsite.lib.web.filters import list_filter_chips
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.model_names import hides_model_names
from grading_app.models import Grading
from grading_app.results.analysis.data import narrow_scores
from grading_app.results.frames import load_condition_labels
from grading_app.results.item_answers import MAX_MESSAGES, ItemAnswers, get_answer_page, load_transcript
from grading_app.results.item_matrix import (
    AMOUNTS,
    MAX_CONDITIONS,
    ItemSelection,
    MatrixForm,
    get_items_per_page,
    load_cells,
    load_norm_means,
    make_matrix_table,
    select_items,
)
from grading_app.results.scope import Scope
from grading_app.results.stored_results import get_item_scores
from grading_app.results.waves import find_pooled_waves
from grading_app.statistics.item_scores import ItemScores
from grading_app.views.blind import get_blind_context
from grading_app.views.tables.results import CellStyle
from grading_app.views.tables_and_figures import make_requested_file
from runs_app.models import Annotation, Condition, Trial
from runs_app.models.annotations import group_by_item, group_by_trial
from runs_app.tables.columns import NUMBER, TIGHT
from runs_app.views.annotations import build_panel_context
from runs_app.views.permissions import get_visible_experiment

MAX_ANSWERS = 50
"""The number of answers of a cell in the panel."""
EXCERPT_LENGTH = 160
"""The number of characters of a question, and of its target, in the head of a row."""
CELL_PARAMETERS = ("measure", "wave", "missing", "exclude")
"""The parameters of the matrix that a cell's page keeps."""


class ItemAnswerTable(tables.Table):
    """All answers to one item, with a row for each condition and dimension."""

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
        lines = []
        for trial in record.answers:
            wave = f"{trial.run.wave}, " if trial.run.wave.number else ""
            lines.append((trial.get_absolute_url(), f"{wave}sample {trial.sample_idx}", _describe_scores(trial)))
        return format_html_join("", '<div class="answer-links"><a href="{}">{}</a> {}</div>', lines)


def _format_number(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _describe_scores(trial: Any) -> str:
    if trial.status != "done":
        return str(trial.error_class or trial.get_status_display())
    text = str(trial.excerpt)
    return text if trial.rating is None else f"{trial.rating}: {text}" if text != str(trial.rating) else text


@require_safe
@readers_only
@hides_model_names()
def experiment_matrix(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    blind = get_blind_context(request, experiment)
    form = MatrixForm(request.GET, experiment, blind["blind"])
    scope = form.get_scope()
    context = {
        "experiment": experiment,
        "filter": {"form": form, "usual_fields": form.usual_fields, "rare_fields": form.rare_fields},
        "scope": scope,
        **blind,
    }
    context["chips"] = list_filter_chips(form, request)
    context["state"] = experiment.state
    cached = get_item_scores(experiment, scope.measure, scope.wave, scope.excluded_answers) if scope else None
    if scope is None or cached is None or cached.value is None:
        if "format" in request.GET:
            raise Http404
        return render(
            request, "grading_app/matrix.html", {**context, "cached": cached, "here": request.get_full_path()}
        )
    all_scores = narrow_scores(scope, cached.value.scores)
    all_scores = all_scores.select_conditions([key for key in form.labels if key in all_scores.conditions])
    choices = form.cleaned_data
    scores = select_items(
        scope, all_scores, ItemSelection(choices["sort"], choices["show"], choices["a"], choices["b"])
    )
    if "format" in request.GET:
        response = make_requested_file(request, [make_matrix_table(scope, scores, form.labels)], scope.experiment.slug)
        if response is None:
            raise Http404
        return response
    context |= _make_page_context(request, scope, scores, form)
    context |= {
        "n_items": len(all_scores.items),
        "pooled": find_pooled_waves(experiment, scope.wave),
        "needs_both": not scores.is_binary and (choices["a"] is None) != (choices["b"] is None),
    }
    return render(request, "grading_app/matrix.html", context)


def _make_page_context(request: HttpRequest, scope: Scope, scores: ItemScores, form: MatrixForm) -> dict[str, Any]:
    """Return one page of rows, in two queries for its items and its cells, and one for norms.

    Many conditions have pages of their own. Conditions with answers without a score are on the first of them.
    """
    ordered = scores.conditions
    if len(ordered) > MAX_CONDITIONS:
        ordered = ordered[np.argsort(scores.missing.sum(axis=0) == 0, kind="stable")]
    condition_page = Paginator(ordered.tolist(), MAX_CONDITIONS).get_page(request.GET.get("columns"))
    pages = Paginator(range(len(scores.items)), get_items_per_page(scores))
    scores = scores.select_conditions(list(condition_page))
    page = pages.get_page(request.GET.get("page"))
    positions = np.arange(len(scores.items))
    page_scores = scores.select_items((positions >= page.start_index() - 1) & (positions < page.end_index()))
    items, conditions = page_scores.items.tolist(), page_scores.conditions.tolist()
    display = form.cleaned_data["display"]
    cells = load_cells(scope, items, conditions, display if display in AMOUNTS else "")
    norms = load_norm_means(scope, page_scores).tolist()
    rows_of_items = Item.objects.select_related("image").only("key", "category", "image")
    items_by_key = rows_of_items.annotate(
        excerpt=Left("input", EXCERPT_LENGTH), target_excerpt=Left("target", EXCERPT_LENGTH)
    ).in_bulk(items)
    flags = Annotation.objects.current().of_experiment(scope.experiment).flags().filter(item__in=items)
    flags_by_item = group_by_item(list(flags))
    style = CellStyle(scope, page_scores.is_binary, display)
    parameters = [(name, value) for name in CELL_PARAMETERS for value in request.GET.getlist(name) if value]
    matrix_url = reverse("experiment_matrix", args=[scope.experiment.slug])
    query = f"?{urlencode(parameters)}" if parameters else ""
    rows = []
    for item, norm in zip(items, norms, strict=True):
        links = [
            (key, f"{matrix_url}{item}/{key}/{query}", f"{items_by_key[item].key}, {form.labels[key]}")
            for key in conditions
        ]
        cells_of_item = [style.make_cell(cells.get((item, key)), norm, address, name) for key, address, name in links]
        rows.append(
            {
                "item": items_by_key[item],
                "norm": None if norm != norm else norm,
                "cells": cells_of_item,
                "flags": "; ".join(flag.text for flag in flags_by_item.get(item, ())),
            }
        )
    return {
        "rows": rows,
        "heads": [form.labels[key] for key in conditions],
        "page": page,
        "condition_page": condition_page,
        "display": display,
        "is_share": page_scores.is_binary,
        "previous_url": _get_page_url(request, page.previous_page_number()) if page.has_previous() else "",
        "next_url": _get_page_url(request, page.next_page_number()) if page.has_next() else "",
    }


def _get_page_url(request: HttpRequest, number: int) -> str:
    return f"?{change_query(request, page=str(number))}"


@require_safe
@readers_only
@hides_model_names()
def matrix_cell(request: HttpRequest, slug: str, item: int, condition: int) -> HttpResponse:
    """Show the answers of one cell, as a panel for htmx or as a page."""
    experiment = get_visible_experiment(request, slug)
    form = MatrixForm(request.GET, experiment, get_blind_context(request, experiment)["blind"])
    scope = form.get_scope()
    if scope is None:
        raise Http404
    conditions = Condition.objects.filter(experiment=experiment, stage=Condition.Stage.GENERATE)
    condition_row = get_object_or_404(conditions.select_related("model", "prompt", "sampler"), pk=condition)
    item_row = get_object_or_404(Item.objects.filter(dataset=experiment.dataset_id).select_related("image"), pk=item)
    runs = condition_row.runs.filter(wave=scope.wave) if scope.wave else condition_row.runs.all()
    of_cell = Trial.objects.filter(run__in=list(runs.values_list("pk", flat=True)), item=item_row)
    if scope.measure.dimension:
        of_cell = of_cell.filter(dimension=scope.measure.dimension)
    ordered = of_cell.select_related("run__wave", "dimension").order_by("run__wave__number", "sample_idx", "pk")
    trials = list(ordered.defer("raw_response", "messages", "reasoning")[: MAX_ANSWERS + 1])
    annotations = group_by_trial(trials)
    context = {
        "experiment": experiment,
        "item": item_row,
        "condition": condition_row,
        "label": form.labels.get(condition_row.pk, "") if scope.blind else condition_row.label,
        "scope": scope,
        "norm": _get_norm(scope, item_row),
        "answers": _list_answers(scope, trials[:MAX_ANSWERS], annotations),
        "is_cut": len(trials) > MAX_ANSWERS,
        "item_annotations": [row for row in next(iter(annotations.values()), []) if not row.trial_id],
        "query": request.GET.urlencode(),
        "is_panel": wants_part(request),
    }
    if wants_part(request):
        panel = render(request, "grading_app/partials/matrix_cell.html", context)
        return push_url(panel, False)  # The address stays that of the matrix.
    return render(request, "grading_app/matrix_cell.html", {**context, "state": experiment.state})


def _list_answers(
    scope: Scope, trials: list[Trial], annotations: Mapping[int, list[Annotation]]
) -> list[dict[str, Any]]:
    """Return each trial with its annotations and its scores by the measure's grader, in one query."""
    gradings: dict[int, list[Grading]] = {}
    if not scope.measure.is_rating:
        rows = Grading.objects.filter(condition__experiment=scope.experiment)
        rows = (
            rows.filter(condition__assignment__queue=scope.measure.grader)
            if scope.measure.is_of_people
            else rows.filter(condition=scope.measure.grader)
        )
        for grading in rows.filter(trial__in=trials).select_related("condition").order_by("pk"):
            gradings.setdefault(grading.trial_id, []).append(grading)
    return [
        {
            "trial": trial,
            "gradings": gradings.get(trial.pk, []),
            "annotations": [row for row in annotations.get(trial.pk, ()) if row.trial_id],
        }
        for trial in trials
    ]


def _get_norm(scope: Scope, item: Item) -> Norm | None:
    if scope.measure.dimension is None or not scope.measure.is_rating:
        return None
    names = scope.experiment.dimensions.filter(pk=scope.measure.dimension).values("name")
    return item.norms.filter(dimension__in=names).first()


@require_safe
@readers_only
def item_page(request: HttpRequest, pk: int) -> HttpResponse:
    item: Item = get_object_or_404(Item.objects.visible_to(request.user).select_related("dataset", "image"), pk=pk)
    page, rows = get_answer_page(item, request.user, request.GET.get("page"))
    norms = list(item.norms.all())
    context = {
        "item": item,
        "dataset": item.dataset,
        "norms": ItemNormTable(norms),
        "page": page,
        "table": ItemAnswerTable(rows, item, {norm.dimension: norm for norm in norms}),
        "count_label": f"{format_count(page.paginator.count)} conditions",
        "previous_url": f"?page={page.previous_page_number()}" if page.has_previous() else "",
        "next_url": f"?page={page.next_page_number()}" if page.has_next() else "",
        **build_panel_context(request, item),
    }
    return render(request, "grading_app/item_page.html", context)


@require_safe
@readers_only
@hides_model_names()
def item_transcript(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Show one item over all conditions of an experiment: messages, answers, reasoning, tool calls and verdicts."""
    experiment = get_visible_experiment(request, slug)
    items = Item.objects.filter(dataset=experiment.dataset_id)
    item: Item = get_object_or_404(items.select_related("image"), pk=pk)
    blind = get_blind_context(request, experiment)
    letters = blind["blind"].assign_letters() if blind["blind"] else None
    labels = load_condition_labels(experiment, letters=letters)
    transcript = load_transcript(experiment, item, labels, request.user, request.GET.get("page"))
    page = transcript.page
    before = items.filter(Q(position__lt=item.position) | Q(position=item.position, pk__lt=pk))
    after = items.filter(Q(position__gt=item.position) | Q(position=item.position, pk__gt=pk))
    norms = list(item.norms.all())
    context = {
        "experiment": experiment,
        "state": experiment.state,
        "item": item,
        "transcript": transcript,
        "max_messages": MAX_MESSAGES,
        "names_wave": experiment.has_several_waves(),
        "previous_item": before.order_by("-position", "-pk").values_list("pk", flat=True).first(),
        "next_item": after.order_by("position", "pk").values_list("pk", flat=True).first(),
        "norms": ItemNormTable(norms),
        "page": page,
        "count_label": f"{format_count(page.paginator.count)} conditions",
        "previous_url": f"?page={page.previous_page_number()}" if page.has_previous() else "",
        "next_url": f"?page={page.next_page_number()}" if page.has_next() else "",
        **blind,
        **build_panel_context(request, item),
    }
    return render(request, "grading_app/item_transcript.html", context)
