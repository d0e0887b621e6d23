"""The pages that create and edit a design, by a form that shows its cost, or from a file."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from evalsite.lib.permissions import members_only
from evalsite.lib.web.choice_fields import fetch_choices
from evalsite.lib.web.model_names import hides_model_names
from runs_app.experiment_files import spec_errors, spec_reader
from runs_app.forms.draws import redraw_models
from runs_app.forms.experiments import ExperimentFileForm, ExperimentForm
from runs_app.forms.launched_experiment import LaunchedExperimentForm
from runs_app.models import Experiment
from runs_app.planning import spec_io
from runs_app.planning.design import Design
from runs_app.planning.design_summary import DesignSummary, summarise_design
from runs_app.views.permissions import get_editable_experiment, get_posted_data

READ_OR_WRITE = ["GET", "HEAD", "POST"]


@require_http_methods(READ_OR_WRITE)
@members_only
@hides_model_names()
def experiment_new(request: HttpRequest) -> HttpResponse:
    """Create a draft. `dataset` in the address chooses a dataset in advance."""
    key = request.GET.get("dataset", "")
    initial = {"dataset": int(key)} if key.isdecimal() and len(key) < 19 else None
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
    return render(request, "runs_app/partials/design_summary_area.html", {"summary": _summarise_choices(form)})


@require_POST
@members_only
@hides_model_names()
def experiment_prompts(request: HttpRequest) -> HttpResponse:
    """Show the prompts for the chosen dataset: those that it can fill, and the others folded. Save nothing."""
    form = ExperimentForm(request.POST, user=request.user)
    fetch_choices(form)
    context = {"form": form, "prompt_groups": form.group_prompts()}
    form.errors.pop("prompts", None)  # The person has not finished.
    return render(request, "runs_app/partials/prompt_choices.html", context)


@require_http_methods(READ_OR_WRITE)
@members_only
@hides_model_names()
def experiment_from_file(request: HttpRequest) -> HttpResponse:
    form = ExperimentFileForm(*get_posted_data(request))
    if request.method == "POST" and form.is_valid():
        try:
            spec = spec_reader.read_yaml(form.cleaned_data["text"])
            experiment = spec_io.create_experiment(spec, by=cast(User, request.user))
        except spec_errors.SpecError as problem:
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
    form.add_create_links()
    context = {
        "form": form,
        "prompt_groups": form.group_prompts(),
        "heading": heading,
        "summary": _summarise_choices(form),
        "experiment": form.instance,
        "draw_lines": form.draw_lines,
    }
    return render(request, "runs_app/experiment_form.html", context)


def _save(request: HttpRequest, form: ModelForm[Any]) -> HttpResponse:
    experiment = form.save()
    messages.success(request, f"{experiment} is saved.")
    return redirect(experiment)


def _summarise_choices(form: ExperimentForm) -> DesignSummary | None:
    """Return the summary of the choices that are valid so far, or None before a dataset is chosen."""
    if form.is_bound:
        form.is_valid()
        choices, experiment = form.cleaned_data, form.instance
        axes = [list(choices.get(name, [])) for name in ("language_models", "prompts", "samplers", "dimensions")]
        return summarise_design(Design(experiment, *axes)) if choices.get("dataset") else None
    return summarise_design(Design.load(form.instance)) if form.instance.pk else None
