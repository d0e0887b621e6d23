"""The pages that create, edit and preregister a design: a form that shows its cost, a file, and the frozen plan."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from evalsite.lib.permissions import members_only, readers_only
from evalsite.lib.text.hashing import hash_content
from evalsite.lib.web.addresses import read_key
from evalsite.lib.web.form_fields import fetch_choices
from evalsite.lib.web.model_names import hides_model_names
from evalsite.lib.web.sign_in import find_page
from grading_app.forms.experiments import ExperimentForm, PreregistrationForm
from grading_app.grading.judging.grader_specs import create_experiment
from runs_app.experiment_files import spec_reader
from runs_app.forms.draws import redraw_models
from runs_app.forms.experiments import ExperimentFileForm, LaunchedExperimentForm
from runs_app.models import Experiment, Preregistration
from runs_app.planning.cost_estimate import DesignSummary, summarise_design
from runs_app.planning.design import Design
from runs_app.planning.spec_io import build_spec
from runs_app.prompt_preview import preview_draft
from runs_app.views.permissions import get_editable_experiment, get_posted_data, get_visible_experiment, may_edit

READ_OR_WRITE = ["GET", "HEAD", "POST"]
CHOICES = ("prompts", "samplers", "dimensions", "judges")  # Fields whose choices are shown again.
TOO_LATE = "The plan was not frozen: the experiment was launched meanwhile, or has a plan."


@require_http_methods(READ_OR_WRITE)
@members_only
@hides_model_names()
def experiment_new(request: HttpRequest) -> HttpResponse:
    """Create a draft. The address can choose a dataset and other parts in advance, such as a new prompt."""
    initial: dict[str, Any] = {}
    for name in ("dataset", *CHOICES):
        keys = [key for key in request.GET.getlist(name) if name == "judges" or read_key(key) is not None]
        if keys:
            initial[name] = int(keys[0]) if name == "dataset" else keys
    form = ExperimentForm(get_posted_data(request)[0], user=request.user, initial=initial)
    return _edit_draft(request, form, "New experiment")


@require_http_methods(READ_OR_WRITE)
@members_only
def experiment_edit(request: HttpRequest, slug: str) -> HttpResponse:
    """Edit all fields of a draft. For a launched experiment, edit only the fields that do not change the messages."""
    experiment = get_editable_experiment(request, slug)
    if experiment.status == Experiment.Status.DRAFT:
        return _edit_draft(
            request, ExperimentForm(get_posted_data(request)[0], instance=experiment, user=request.user), f"Edit {slug}"
        )
    form = LaunchedExperimentForm(get_posted_data(request)[0], instance=experiment, user=request.user)
    if request.method == "POST" and form.is_valid():
        return _save(request, form)
    return render(request, "runs_app/experiment_settings.html", {"form": form, "experiment": experiment})


@require_POST
@members_only
@hides_model_names()
def experiment_summary(request: HttpRequest) -> HttpResponse:
    """Show the size and cost of the choices so far. Save nothing."""
    form = ExperimentForm(request.POST, user=request.user)
    context = {"summary": _summarise_choices(form), **_build_example(form)}
    return render(request, "runs_app/partials/design_summary_area.html", context)


@require_POST
@members_only
@hides_model_names()
def experiment_choices(request: HttpRequest, field: str) -> HttpResponse:
    """Show the choices of a field again, for another dataset or with one that was just made. Save nothing."""
    if field not in CHOICES:
        raise Http404
    form = ExperimentForm(request.POST, user=request.user)
    fetch_choices(form)
    groups = form.group_choices(field)
    form.errors.pop(field, None)  # The person has not finished.
    return render(request, "runs_app/partials/choices.html", {"groups": groups, "here": find_page(request)})


@require_http_methods(READ_OR_WRITE)
@members_only
@hides_model_names()
def experiment_from_file(request: HttpRequest) -> HttpResponse:
    form = ExperimentFileForm(*get_posted_data(request))
    if request.method == "POST" and form.is_valid():
        try:
            spec = spec_reader.read_yaml(form.cleaned_data["text"])
            experiment = create_experiment(spec, by=cast(User, request.user))
        except spec_reader.SpecError as problem:
            form.add_error(None, problem.problems)
        else:
            messages.success(request, f"{experiment} was created as a draft.")
            return redirect(experiment)
    return render(request, "runs_app/experiment_from_file.html", {"form": form})


def _edit_draft(request: HttpRequest, form: ExperimentForm, heading: str) -> HttpResponse:
    is_preview = "look" in request.POST or "draw" in request.POST
    if "draw" in request.POST:
        form = redraw_models(form)
    if request.method == "POST" and not is_preview and form.is_valid():
        return _save(request, form)
    fetch_choices(form)
    form.explain_empty_choices()
    context = {
        "form": form,
        "choices": {name: form.group_choices(name) for name in ("language_models", *CHOICES)},
        "heading": heading,
        "here": request.path,
        "summary": _summarise_choices(form),
        **_build_example(form),
        "experiment": form.instance,
        "draw_lines": form.draw_lines,
    }
    return render(request, "runs_app/experiment_form.html", context)


def _save(request: HttpRequest, form: ModelForm[Any]) -> HttpResponse:
    experiment = form.save()
    messages.success(request, f"{experiment} is saved.")
    return redirect(experiment)


def _build_example(form: ExperimentForm) -> dict[str, Any]:
    """Return the first request of the choices so far: the first prompt, on the first item and dimension."""
    if form.is_bound:
        form.is_valid()
        chosen = form.cleaned_data
    elif form.instance.pk:
        chosen = {name: list(getattr(form.instance, name).all()) for name in ("prompts", "dimensions")}
        chosen["dataset"] = form.instance.dataset
    else:
        chosen = {}
    dataset, prompt = chosen.get("dataset"), next(iter(chosen.get("prompts", ())), None)
    if dataset is None or prompt is None:
        return {}
    item = dataset.items.active().select_related("image").order_by("position", "pk").first()
    dimension = next(iter(chosen.get("dimensions", ())), None)
    if item is None:
        return {}
    return {
        "example": preview_draft(form.instance, prompt, item, dimension),
        "example_item": item,
        "example_prompt": prompt,
    }


def _summarise_choices(form: ExperimentForm) -> DesignSummary | None:
    """Return the summary of the choices that are valid so far, or None before a dataset is chosen."""
    if form.is_bound:
        form.is_valid()
        choices, experiment = form.cleaned_data, form.instance
        axes = [list(choices.get(name, [])) for name in ("language_models", "prompts", "samplers", "dimensions")]
        return summarise_design(Design(experiment, *axes)) if choices.get("dataset") else None
    return summarise_design(Design.load(form.instance)) if form.instance.pk else None


@require_http_methods(["GET", "HEAD", "POST"])
@readers_only
def experiment_preregistration(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the frozen plan, or the form that freezes one before the launch."""
    experiment = (
        get_editable_experiment(request, slug) if request.method == "POST" else get_visible_experiment(request, slug)
    )
    plan = find_plan(experiment)
    may_freeze = plan is None and experiment.status == Experiment.Status.DRAFT and may_edit(request, experiment)
    form = PreregistrationForm(get_posted_data(request)[0], experiment) if may_freeze else None
    if form is not None and form.is_valid():
        content = {**form.cleaned_data, "design": hash_content(build_spec(experiment))}
        try:
            with transaction.atomic():
                Preregistration.freeze(experiment, content, by=request.user)
            messages.success(request, "The plan is frozen. It never changes, and reports compare the results with it.")
        except DatabaseError:
            messages.error(request, TOO_LATE)
        return redirect("experiment_preregistration", slug)
    context = {"experiment": experiment, "state": experiment.state, "plan": plan, "form": form}
    return render(request, "grading_app/preregistration.html", context)


@require_safe
@readers_only
def preregistration_text(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the frozen plan as Markdown, for an archive of preregistrations."""
    plan = find_plan(get_visible_experiment(request, slug))
    if plan is None:
        raise Http404
    response = HttpResponse(plan.to_markdown(), content_type="text/markdown; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{slug}-preregistration.md"'
    return response


def find_plan(experiment: Experiment) -> Preregistration | None:
    plan: Preregistration | None = (
        Preregistration.objects.select_related("experiment").filter(experiment=experiment).first()
    )
    return plan
