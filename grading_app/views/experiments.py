"""The list of experiments, and the design page of one experiment."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRefresh

from datasets_app.job_texts import describe_move
from datasets_app.models import Dataset
from datasets_app.tables import HistoryTable
from datasets_app.views.permissions import redirect_back
from evalsite.lib.favourites import change_star
from evalsite.lib.history import TransitionError
from evalsite.lib.permissions import is_member, members_only, readers_only
from evalsite.lib.web.form_fields import get_first_error
from evalsite.lib.web.list_page import ListPage
from evalsite.lib.web.long_text import build_numbered_text_response
from evalsite.lib.web.model_names import hides_model_names
from grading_app.grading.judging.grader_specs import list_judges
from grading_app.models import StoredRows
from grading_app.results.headlines import load_headlines
from grading_app.study_import.stored_rows import list_open_queues, request_move
from runs_app.filters import ExperimentFilter
from runs_app.forms.run_control import AssumptionsForm, RunControlForm
from runs_app.models import Experiment
from runs_app.models.totals import Totals
from runs_app.monitoring.point_status import describe_rule
from runs_app.planning import spec_io
from runs_app.planning.cost_estimate import list_cells, summarise_design
from runs_app.planning.design import Design
from runs_app.planning.drawn_models import compare_stored_draws
from runs_app.planning.points import forecast_points
from runs_app.planning.power import compute_detectable_effect
from runs_app.prompt_preview import preview_draft
from runs_app.scorers.scoring_rules import label_stored_scorer
from runs_app.tables.experiments import ExperimentTable, ManifestTable, PointForecastTable
from runs_app.views.permissions import get_editable_experiment, get_visible_experiment, may_edit

EXPERIMENTS = ListPage(ExperimentTable, "runs_app/experiment_list.html", ExperimentFilter)
MAX_KEYS = 200
MAX_MANIFESTS = 20
MAX_POINTS = 50


@require_safe
@readers_only
@hides_model_names()
def experiment_list(request: HttpRequest) -> HttpResponse:
    visible = Experiment.objects.visible_to(request.user).with_star(request.user).select_related("dataset", "owner")
    context = EXPERIMENTS.load(request, visible.with_totals())
    table = context["table"]
    table.headlines = load_headlines([row.record for row in table.paginated_rows], request.user)
    context |= {"has_scores": bool(table.headlines), "may_design": is_member(request.user), "has_stars": True}
    return EXPERIMENTS.render(request, context)


@require_POST
@readers_only
@hides_model_names()
def experiment_star(request: HttpRequest, slug: str) -> HttpResponse:
    """Add the experiment to the user's favourites, or remove it."""
    experiment = get_visible_experiment(request, slug)
    change_star(experiment, request)
    return redirect_back(request, experiment)


@require_safe
@readers_only
def experiment_detail(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    job = StoredRows.find_job(experiment) if experiment.is_archived else None
    if request.htmx.target == "rows-job" and not (job and job.is_waited_for):  # type: ignore[attr-defined]
        return HttpResponseClientRefresh()
    design = Design.load(experiment)
    totals = Totals.of(experiment.answer_runs)
    judges = {*experiment.graders, *(grader.name for grader in list_judges(experiment).values())}
    points = forecast_points(design.adaptive, design.points, experiment.samples) if design.adaptive else []
    context = {
        "experiment": experiment,
        "design": design,
        "assumptions": (assumptions := AssumptionsForm(request.GET)),
        "detectable": compute_detectable_effect(design.n_items, experiment.samples, assumptions.chosen),
        "summary": summarise_design(design),
        "points": points,
        "point_table": PointForecastTable(points[:MAX_POINTS]),
        "rule": describe_rule(design.adaptive) if design.adaptive else [],
        "adaptive_scorer": label_stored_scorer(design.adaptive.scorer) if design.adaptive else "",
        "cells": list_cells(design),
        "draws": compare_stored_draws(experiment, [model.name for model in design.models], judges),
        "sees_dataset": Dataset.objects.visible_to(request.user).filter(pk=experiment.dataset_id).exists(),
        "audience": experiment.audience_text,
        "chosen_options": experiment.describe_options(at_default=False),
        "default_options": experiment.describe_options(at_default=True),
        "scorers": [label_stored_scorer(scorer) for scorer in experiment.scorers],
        "totals": totals,
        "state": experiment.find_state(totals),
        "editable": may_edit(request, experiment),
        "job": job,
        "job_texts": describe_move(job) if job else None,
        "open_queues": list_open_queues(experiment) if experiment.is_archived else [],
        "may_design": is_member(request.user),
        "history": HistoryTable(list(experiment.history[:50])),
        "manifests": ManifestTable(list(experiment.manifests.select_related("created_by")[:MAX_MANIFESTS]), slug),
        **_build_preview_context(request, design),
    }
    return render(request, "runs_app/experiment_detail.html", context)


@require_safe
@readers_only
def experiment_preview(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the exact messages for one item, one prompt and one dimension, chosen in the URL."""
    design = Design.load(get_visible_experiment(request, slug))
    context = {"design": design, "experiment": design.experiment, **_build_preview_context(request, design)}
    return render(request, "runs_app/partials/preview.html", context)


@require_safe
@readers_only
def experiment_message(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Return one whole message of the preview as a file. `number` counts the turns from 1."""
    turns = _build_preview_context(request, Design.load(get_visible_experiment(request, slug)))["preview_turns"]
    return build_numbered_text_response((turn.text for turn, _ in turns), str(number), f"{slug}-message")


@require_safe
@readers_only
def experiment_yaml(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    response = HttpResponse(spec_io.to_yaml(experiment), content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{experiment.slug}.yaml"'
    return response


@require_safe
@readers_only
def experiment_manifest(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    manifest = get_object_or_404(get_visible_experiment(request, slug).manifests, pk=pk)
    text = json.dumps(manifest.content, indent=2, ensure_ascii=False)
    response = HttpResponse(text, content_type="application/json; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{slug}-manifest-{pk}.json"'
    return response


def _build_preview_context(request: HttpRequest, design: Design) -> dict[str, Any]:
    """Return the preview of the chosen prompt, dimension and item, by default the first of each, and the item keys."""
    prompt = _choose_row(design.prompts, request.GET.get("prompt"))
    dimension = _choose_row(design.dimensions, request.GET.get("dimension"))
    items = design.items.select_related("image").order_by("position", "pk")
    key = request.GET.get("item")
    item = items.filter(key=key).first() if key else items.first()
    preview = preview_draft(design.experiment, prompt, item, dimension) if prompt and item else None
    # Each turn gets the address of its whole text, for the same choices as in this request.
    turns = preview.turns if preview else []
    names = ("prompt", "dimension", "item")
    query = urlencode({name: request.GET[name] for name in names if request.GET.get(name)})
    urls = [reverse("experiment_message", args=[design.experiment.slug, number + 1]) for number in range(len(turns))]
    return {
        "preview_prompt": prompt,
        "preview_dimension": dimension,
        "preview_item": item,
        "preview_keys": list(items.values_list("key", flat=True)[:MAX_KEYS]),
        "preview_missing": bool(key) and item is None,
        "preview": preview,
        "preview_turns": [(turn, f"{url}?{query}" if query else url) for turn, url in zip(turns, urls, strict=True)],
    }


def _choose_row(rows: list[Any], key: str | None) -> Any:
    """Return the row with this key. Without a key, return the first row. Raise Http404 for an unknown key."""
    if not key:
        return rows[0] if rows else None
    match = next((row for row in rows if str(row.pk) == key), None)
    if match is None:
        raise Http404
    return match


@require_POST
@members_only
@hides_model_names()
def experiment_store(request: HttpRequest, slug: str) -> HttpResponse:
    return _request_move(request, get_editable_experiment(request, slug), StoredRows.STORE)


@require_POST
@members_only
@hides_model_names()
def experiment_bring_back(request: HttpRequest, slug: str) -> HttpResponse:
    return _request_move(request, get_editable_experiment(request, slug, needs_rows=False), StoredRows.BRING_BACK)


def _request_move(request: HttpRequest, experiment: Experiment, kind: str) -> HttpResponse:
    """Request a job that moves the rows of the experiment, with the reason of the form. Its page shows the progress."""
    form = RunControlForm(request.POST, reason_required=True)
    try:
        if not form.is_valid():
            messages.error(request, get_first_error(form))
        elif not request_move(experiment, kind, by=request.user, reason=form.cleaned_data["reason"]):
            messages.info(request, "The rows are already being moved, so nothing more was requested.")
    except TransitionError as problem:
        messages.error(request, str(problem))
    return redirect(experiment)
